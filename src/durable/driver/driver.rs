//! `Driver`: runs the engine on an event loop.
//!
//! Only the loop takes the locks of the engine and of the handlers, so neither is ever contended,
//! and a handler may use the timers. While the engine has not stopped, a timer of the loop keeps
//! the driver alive. When it expires, the loop calls the driver: due timers fire in the same turn.
//! Messages of other threads wake the loop for a turn of their own.

use crate::durable::{
    engine::{Engine, EngineMessage, EngineStep, Firing, Now},
    port::Port,
    request::{StoreReply, StoreRequest},
    topic::{Answering, TopicHandler},
    unix_millis::present_millis,
};
use crate::{
    channel::ScheduledTask,
    clock::nanos,
    error::{Error, drop_guarded},
    event_loop::EventLoop,
    machine::Mutex,
    sync::Completer,
};
use std::{sync::Arc, time::Duration};

/// The largest number of messages that the engine handles in a turn of the loop.
const MESSAGES_PER_TURN: usize = 1024;

/// The longest time in nanoseconds between two reads of the clocks that counts as one instant.
const CLOSE_TOGETHER: u64 = 50_000_000;

pub(in crate::durable) struct Driver {
    event_loop: EventLoop,
    port: Arc<Port>,
    engine: Mutex<Engine>,
    handlers: Mutex<Vec<TopicHandler>>,
    /// The timer of the next poll.
    next_poll: Mutex<Option<ScheduledTask>>,
}

impl Driver {
    pub(in crate::durable) fn new(
        event_loop: EventLoop,
        port: Arc<Port>,
        engine: Engine,
        handlers: Vec<TopicHandler>,
    ) -> Arc<Self> {
        let driver = Arc::new(Driver {
            event_loop,
            port,
            engine: Mutex::new(engine),
            handlers: Mutex::new(handlers),
            next_poll: Mutex::new(None),
        });
        let weak = Arc::downgrade(&driver);
        driver.port.inbox.connect(Box::new(move || {
            let driver = weak.upgrade();
            driver.as_ref().inspect(|driver| driver.run_soon()).is_some()
        }));
        driver
    }

    fn run_soon(self: &Arc<Self>) {
        let wakeup = Wakeup(Some(self.clone()));
        // If the loop refuses the task, or drops it at its shutdown, the wake-up ends the driver.
        let _ = self.event_loop.schedule_always(Duration::ZERO, move || wakeup.run());
    }

    /// Ends the driver, because the loop does not run scheduled tasks any more. Does so in a task
    /// as long as the loop runs those: this may be called amid a handler, and on any thread.
    fn end_soon(self: Arc<Self>) {
        let event_loop = self.event_loop.clone();
        let ending = Ending(self);
        event_loop.execute_always(move || drop(ending));
    }

    /// Nothing fires any more. Fails all pending operations.
    fn loop_ended(self: &Arc<Self>) {
        let mut steps = Vec::new();
        {
            let mut engine = self.engine.lock();
            let now = self.now();
            self.port
                .inbox
                .take(usize::MAX)
                .into_iter()
                .for_each(|message| engine.handle(message, now, &mut steps));
            engine.handle(EngineMessage::CloseNow, now, &mut steps);
        }
        self.carry_out(steps);
    }

    /// Reads both clocks. Starts learn of a jump when the engine does.
    fn now(&self) -> Now {
        let now = self.read_clocks();
        self.port.clock.observe(now.wall, now.monotonic);
        now
    }

    /// Reads both clocks, at one instant as far as possible. A thread that is stopped between the
    /// two would take it for a jump of the wall clock.
    fn read_clocks(&self) -> Now {
        let clock = &self.port.clock;
        let mut monotonic = clock.monotonic();
        for _ in 0..3 {
            let wall = present_millis(clock.wall_time_at(monotonic));
            let after = clock.monotonic();
            if after - monotonic < CLOSE_TOGETHER {
                return Now { wall, monotonic };
            }
            monotonic = after;
        }
        Now { wall: present_millis(clock.wall_time_at(monotonic)), monotonic }
    }

    /// Polls, unless a wake-up is on its way, which polls too. Two polls in a turn would call twice
    /// as many handlers.
    fn timer_expired(self: &Arc<Self>) {
        if !self.port.inbox.is_woken() {
            self.run();
        }
    }

    /// Takes the messages, fires due timers, and sets the timer of the next poll.
    fn run(self: &Arc<Self>) {
        let messages = self.port.inbox.take(MESSAGES_PER_TURN);
        let mut steps = Vec::new();
        let deadline = {
            let mut engine = self.engine.lock();
            let now = self.now();
            messages.into_iter().for_each(|message| engine.handle(message, now, &mut steps));
            engine.poll(now, &mut steps);
            engine.sleep(now).map(|sleep| now.monotonic.saturating_add(nanos(sleep)))
        };
        self.carry_out(steps);
        // Relative to the time of the poll: time may have passed since.
        let timer = deadline.and_then(|deadline| {
            let driver = self.clone();
            self.event_loop.schedule_always_at(deadline, move || driver.timer_expired()).ok()
        });
        if let Some(old) = std::mem::replace(&mut *self.next_poll.lock(), timer) {
            old.cancel();
        }
    }

    /// Calls a handler, unless the lease has ended: the handlers before it may have taken long, or
    /// the program was stopped.
    fn fire(&self, firing: Firing) {
        if firing.valid_until.is_some_and(|until| until <= self.port.clock.monotonic()) {
            let mut steps = Vec::new();
            self.engine.lock().not_called(firing, self.now(), &mut steps);
            return self.carry_out(steps);
        }
        let topic = firing.row.topic;
        self.port.metrics.fired.add(1);
        self.port.metrics.lateness.record(firing.since_due.saturating_mul(1_000_000));
        let answering = Answering::new(firing, self.port.clone());
        if let Some(handler) = self.handlers.lock().get_mut(topic) {
            handler(answering);
        }
    }

    fn carry_out(&self, steps: Vec<EngineStep>) {
        for step in steps {
            match step {
                EngineStep::Fire(firing) => self.fire(firing),
                EngineStep::Change { id, change, purpose } => {
                    self.pass(StoreRequest::Change { change, reply: StoreReply::Engine(id, purpose) });
                }
                EngineStep::Discard(effect) => drop_guarded(effect),
                EngineStep::Load(range) => self.pass(StoreRequest::Load(range)),
                EngineStep::Prune => self.pass(StoreRequest::Prune),
                EngineStep::Survey { after, limit } => self.pass(StoreRequest::Survey { after, limit }),
                EngineStep::Drain => self.pass(StoreRequest::Drain),
                EngineStep::Renew { asked, until, busy } => {
                    self.pass(StoreRequest::Renew { asked, until, busy });
                }
                EngineStep::Look { until } => self.pass(StoreRequest::Look { until }),
                EngineStep::Complete(completer, result) => completer.complete(result),
                EngineStep::FailClose(completers, error) => complete_all(completers, &Err(error)),
                EngineStep::Close(completers) => self.port.send(StoreRequest::Close(completers)),
            }
        }
    }

    /// The store's thread ends only after it was closed, and then the engine has stopped.
    fn pass(&self, request: StoreRequest) {
        if self.port.request(request).is_err() {
            log::debug!("a request to the closed timer store was dropped");
        }
    }
}

/// A task that takes the messages. If it is dropped without that, the loop has ended.
struct Wakeup(Option<Arc<Driver>>);

impl Wakeup {
    fn run(mut self) {
        if let Some(driver) = self.0.take() {
            driver.run();
        }
    }
}

impl Drop for Wakeup {
    fn drop(&mut self) {
        if let Some(driver) = self.0.take() {
            driver.end_soon();
        }
    }
}

/// Ends the driver when it is dropped: by its task, or because the loop refuses that.
struct Ending(Arc<Driver>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.loop_ended();
    }
}

fn complete_all(completers: Vec<Completer<()>>, result: &Result<(), Error>) {
    completers.into_iter().for_each(|completer| completer.complete(result.clone()));
}
