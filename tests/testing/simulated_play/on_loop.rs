//! An executor that polls the futures of handlers on an event loop of its own.

use super::{
    kit::{Draw, Play, lock},
    settings,
};
use netwheel::{executor::Spawn, prelude::*};
use std::{
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Poll, Wake, Waker},
};

type Boxed = Pin<Box<dyn Future<Output = ()> + Send>>;

#[derive(Clone)]
pub(super) struct OnLoop(EventLoopGroup);

/// A future that is polled on the loop only. A loop that refuses its task drops it.
struct Task {
    event_loop: EventLoop,
    future: Mutex<Option<Boxed>>,
}

impl Wake for Task {
    fn wake(self: Arc<Self>) {
        let event_loop = self.event_loop.clone();
        let _ = event_loop.execute(move || self.poll());
    }
}

impl Task {
    fn poll(self: Arc<Self>) {
        let Some(mut future) = lock(&self.future).take() else { return };
        let waker = Waker::from(self.clone());
        if future.as_mut().poll(&mut std::task::Context::from_waker(&waker)) == Poll::Pending {
            *lock(&self.future) = Some(future);
        }
    }
}

impl Spawn for OnLoop {
    fn spawn(&self, future: Boxed) -> Result {
        let event_loop = self.0.next().clone();
        let task = Arc::new(Task { event_loop: event_loop.clone(), future: Mutex::new(Some(future)) });
        event_loop.execute(move || task.poll()).map_err(|refused| refused.into_parts().1)
    }
}

impl OnLoop {
    pub(super) fn new() -> Result<Self> {
        let mut draw = Draw::new();
        Ok(OnLoop(settings::group(&mut draw).max_pending_tasks(1 << 20).build()?))
    }

    pub(super) fn end(&self, play: &Play) -> Result {
        settings::end(play, &self.0, "the executor")
    }
}
