//! `Driver`: runs the engine on an event loop.
//!
//! Any thread may send it messages; it then wakes the loop, once for any number of them. Only
//! the loop takes the engine's lock and calls handlers, so neither is ever contended, and a handler
//! may use the timers.

use super::{
    due::Answering,
    engine::{Engine, Message, Now, Step},
    topic::Handler,
    unix_millis::present_millis,
    writer::{Reply, Request},
};
use crate::{Error, EventLoop, event_loop::ScheduledTask, sync::Completer};
use crossbeam_channel::Sender;
use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

pub(super) struct Driver {
    event_loop: EventLoop,
    engine: Mutex<Engine>,
    handlers: Mutex<Vec<Handler>>,
    messages: Mutex<Vec<Message>>,
    /// Whether a task that takes the messages is on its way.
    is_woken: AtomicBool,
    /// The timer of the next poll.
    next_poll: Mutex<Option<ScheduledTask>>,
    requests: Sender<Request>,
}

impl Driver {
    pub(super) fn new(
        event_loop: EventLoop,
        engine: Engine,
        handlers: Vec<Handler>,
        requests: Sender<Request>,
    ) -> Self {
        Driver {
            event_loop,
            engine: Mutex::new(engine),
            handlers: Mutex::new(handlers),
            messages: Mutex::default(),
            is_woken: AtomicBool::new(false),
            next_poll: Mutex::new(None),
            requests,
        }
    }

    pub(super) fn wall_time(&self) -> SystemTime {
        self.event_loop.shared.time.wall_time()
    }

    /// Returns the id of the loop, for completions that it completes.
    pub(super) fn loop_id(&self) -> u32 {
        self.event_loop.shared.id
    }

    pub(super) fn tell(self: &Arc<Self>, message: Message) {
        locked(&self.messages).push(message);
        self.wake();
    }

    pub(super) fn tell_all(self: &Arc<Self>, messages: Vec<Message>) {
        if !messages.is_empty() {
            locked(&self.messages).extend(messages);
            self.wake();
        }
    }

    /// Passes a request to the store's thread. Hands it back if that has ended.
    pub(super) fn request(&self, request: Request) -> Result<(), Request> {
        self.requests.send(request).map_err(|refused| refused.0)
    }

    /// Makes the loop run the engine soon.
    pub(super) fn wake(self: &Arc<Self>) {
        if !self.is_woken.swap(true, Ordering::AcqRel) {
            let driver = self.clone();
            if self.event_loop.schedule_always(Duration::ZERO, move || driver.run()).is_err() {
                self.loop_ended();
            }
        }
    }

    /// The loop does not run tasks any more, so nothing fires. Completes all that wait with an
    /// error.
    fn loop_ended(self: &Arc<Self>) {
        let mut steps = Vec::new();
        let messages = std::mem::take(&mut *locked(&self.messages));
        let mut engine = locked(&self.engine);
        let now = self.now();
        messages.into_iter().for_each(|message| engine.handle(message, now, &mut steps));
        engine.handle(Message::CloseNow, now, &mut steps);
        drop(engine);
        self.carry_out(steps);
        self.is_woken.store(false, Ordering::Release);
    }

    fn now(&self) -> Now {
        let time = &self.event_loop.shared.time;
        Now { wall: present_millis(time.wall_time()), monotonic: time.now() }
    }

    /// Takes the messages, fires due timers, and sets the timer of the next poll.
    fn run(self: Arc<Self>) {
        self.is_woken.store(false, Ordering::Release);
        let messages = std::mem::take(&mut *locked(&self.messages));
        let mut steps = Vec::new();
        let sleep = {
            let mut engine = locked(&self.engine);
            let now = self.now();
            messages.into_iter().for_each(|message| engine.handle(message, now, &mut steps));
            engine.poll(now, &mut steps);
            engine.sleep(now)
        };
        self.carry_out(steps);
        let driver = self.clone();
        let poll = move || driver.wake();
        let timer = self.event_loop.schedule_always(sleep, poll).ok();
        if let Some(old) = std::mem::replace(&mut *locked(&self.next_poll), timer) {
            old.cancel();
        }
    }

    fn carry_out(self: &Arc<Self>, steps: Vec<Step>) {
        for step in steps {
            match step {
                Step::Fire(firing) => {
                    let topic = firing.row.topic;
                    let answering = Answering::new(firing, self.clone());
                    if let Some(handler) = locked(&self.handlers).get_mut(topic) {
                        handler(answering);
                    }
                }
                Step::Change { id, change, is_command } => {
                    let reply = if is_command { Reply::Command(id) } else { Reply::Run(id) };
                    self.pass(Request::Change { change, reply });
                }
                Step::Load(range) => self.pass(Request::Load(range)),
                Step::Renew { asked, until } => self.pass(Request::Renew { asked, until }),
                Step::Complete(completer, result) => completer.complete(result),
                Step::Close(completers) => {
                    if let Err(Request::Close(completers)) = self.request(Request::Close(completers)) {
                        complete_all(completers, &Ok(()));
                    }
                }
            }
        }
    }

    /// The store's thread ends only after it was closed, and then the engine has stopped.
    fn pass(&self, request: Request) {
        if self.request(request).is_err() {
            log::debug!("a request to the closed timer store was dropped");
        }
    }
}

fn complete_all(completers: Vec<Completer<()>>, result: &Result<(), Error>) {
    completers.into_iter().for_each(|completer| completer.complete(result.clone()));
}

/// Handlers run under a lock of the loop's own, and a panic in one is caught.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
