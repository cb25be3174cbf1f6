//! An executor with one thread.

use netwheel::{executor::Spawn, prelude::*};
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        mpsc::{self, Sender},
    },
    task::{Context, Poll, Wake, Waker},
};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls futures on a thread that ends with the last handle and future.
pub(crate) struct OneThread(Sender<Arc<Task>>);

struct Task {
    future: Mutex<Option<Boxed>>,
    queue: Sender<Arc<Task>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let queue = self.queue.clone();
        // The thread has ended only if nothing is left to poll.
        let _ = queue.send(self);
    }
}

impl OneThread {
    pub(crate) fn new() -> Self {
        let (queue, tasks) = mpsc::channel::<Arc<Task>>();
        std::thread::spawn(move || {
            for task in tasks {
                let waker = Waker::from(task.clone());
                let mut slot = task.future.lock().unwrap();
                let Some(future) = slot.as_mut() else { continue };
                if future.as_mut().poll(&mut Context::from_waker(&waker)) == Poll::Ready(()) {
                    *slot = None;
                }
            }
        });
        OneThread(queue)
    }
}

impl Spawn for OneThread {
    fn spawn(&self, future: Boxed) -> Result {
        let task = Task { future: Mutex::new(Some(future)), queue: self.0.clone() };
        Arc::new(task).wake();
        Ok(())
    }
}
