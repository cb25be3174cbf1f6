//! `Due`: a timer that is due.

use crate::durable::{
    engine::{EngineInbox, EngineMessage, Firing, RunAnswer},
    id::TimerId,
    port::Port,
    store::StoreTransaction,
    unix_millis::system_time,
};
use crate::{
    error::{Result, panic_message},
    event_loop::EventLoop,
    machine::Mutex,
};
use serde::de::DeserializeOwned;
use std::{
    fmt,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, ThreadId},
    time::{Duration, SystemTime},
};

/// A timer that is due, passed to the handler of its topic.
///
/// The handler has to answer with [`done`](Due::done), [`done_with`](Due::done_with),
/// [`skip`](Due::skip) or [`fail`](Due::fail). It may do so later, and on any thread: move the
/// `Due` there. One that is dropped without an answer has failed, so nothing is lost by accident.
///
/// A crash before the answer is stored makes the timer fire again, with the same [`id`](Due::id)
/// and [`scheduled`](Due::scheduled): the two identify the run for handlers that deduplicate.
/// Timers that run [at most once](crate::durable::Delivery::AtMostOnce) have ended already. An
/// answer says that the handler is done, and a failure is only logged.
#[must_use = "a timer that is not answered counts as failed"]
pub struct Due<T> {
    answering: Answering,
    payload: T,
}

impl<T> Due<T> {
    pub(super) fn new(answering: Answering, payload: T) -> Self {
        Due { answering, payload }
    }

    /// Returns the timer's id.
    pub fn id(&self) -> TimerId {
        self.answering.firing.row.key.id
    }

    /// Returns the idempotency key.
    pub fn key(&self) -> Option<&str> {
        self.answering.firing.row.idempotency_key.as_deref()
    }

    /// Returns the payload.
    pub fn payload(&self) -> &T {
        &self.payload
    }

    /// Returns the number of this attempt, from 1. An attempt that the end of the program
    /// interrupted does not count if that was the first time for this timer.
    pub fn attempt(&self) -> u32 {
        self.answering.firing.row.attempt()
    }

    /// Returns the time for which the run was scheduled. Retries do not change it.
    pub fn scheduled(&self) -> SystemTime {
        system_time(self.answering.firing.row.scheduled)
    }

    /// Returns how long after the scheduled time the run began, to the millisecond.
    pub fn lateness(&self) -> Duration {
        self.answering.firing.lateness
    }

    /// Returns the number of missed runs of a periodic timer for which this run stands, besides its
    /// own: see [`Late`](crate::durable::Late). At most 1000 are counted.
    pub fn missed(&self) -> u64 {
        self.answering.firing.missed
    }

    /// Returns the event loop on which the handlers of these timers run, for example to
    /// [schedule](EventLoop::schedule) a timeout of the work, or another look at its result.
    ///
    /// ```
    /// use netwheel::durable::{Due, Late, Retry, Topic};
    /// use std::time::Duration;
    ///
    /// // Answers five seconds later, without a thread that waits.
    /// let topic = Topic::new("check", Late::RunOnce, Retry::backoff(5), |due: Due<String>| {
    ///     let event_loop = due.event_loop();
    ///     // If the loop refuses the task, dropping `due` with it fails the run.
    ///     let _ = event_loop.schedule(Duration::from_secs(5), move || due.done());
    /// });
    /// ```
    pub fn event_loop(&self) -> EventLoop {
        self.answering.port.event_loop.clone()
    }

    pub(in crate::durable) fn port(&self) -> &Arc<Port> {
        &self.answering.port
    }

    /// Returns when the run is given up because its topic has a
    /// [time limit](crate::durable::Topic::run_timeout). Its answer has no effect after that.
    ///
    /// The limit is measured by the monotonic clock. This is the same instant by the wall clock,
    /// unless the wall clock is set before that.
    pub fn deadline(&self) -> Option<SystemTime> {
        self.answering.firing.deadline.map(system_time)
    }

    /// Ends the run: the work is done.
    pub fn done(self) {
        self.answering.answer(RunAnswer::Done(None));
    }

    /// Ends the run, and makes the program's own writes in the same transaction: either both are
    /// stored or none. So the effect happens exactly once.
    ///
    /// `effect` runs on the thread of the store, and delays its other work. It is called again if
    /// the transaction could not be committed and is repeated. If it fails, its writes are rolled
    /// back and the run has failed.
    ///
    /// In a topic that runs at most once, the effect is not called.
    pub fn done_with(self, effect: impl FnMut(&mut StoreTransaction<'_>) -> Result + Send + 'static) {
        self.answering.answer(RunAnswer::Done(Some(Box::new(effect))));
    }

    /// Ends the run without its work. Counted as skipped.
    pub fn skip(self) {
        self.answering.answer(RunAnswer::Skip);
    }

    /// Reports that the work failed. The run is retried, or becomes a dead letter, as the topic's
    /// [`Retry`](crate::durable::Retry) states. The first 1024 bytes of `reason` are stored,
    /// formatted with `{:#}`: an [`Error`](crate::Error) with its causes.
    pub fn fail(self, reason: impl fmt::Display) {
        self.answering.fail(format!("{reason:#}"));
    }
}

impl<T: fmt::Debug> fmt::Debug for Due<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Due")
            .field("id", &self.id())
            .field("scheduled", &self.scheduled())
            .field("attempt", &self.attempt())
            .field("payload", &self.payload)
            .finish()
    }
}

/// The duty to answer.
pub(in crate::durable) struct Answering {
    firing: Firing,
    reply: DueReply,
    port: Arc<Port>,
}

/// Passes the answer to the engine, once.
#[derive(Clone)]
pub(super) struct DueReply {
    id: TimerId,
    run: u64,
    inbox: Arc<EngineInbox>,
    state: Arc<ReplyState>,
}

struct ReplyState {
    is_answered: AtomicBool,
    /// The thread of the handler while that runs. A panic of it is reported when it has ended.
    handler: Mutex<Option<ThreadId>>,
    /// Whether the `Due` was dropped by a panic in the handler.
    is_dropped: AtomicBool,
}

impl Answering {
    pub(in crate::durable) fn new(firing: Firing, port: Arc<Port>) -> Self {
        let state = Arc::new(ReplyState {
            is_answered: AtomicBool::new(false),
            handler: Mutex::new(None),
            is_dropped: AtomicBool::new(false),
        });
        let inbox = port.inbox.clone();
        let reply = DueReply { id: firing.row.key.id, run: firing.run, inbox, state };
        Answering { firing, reply, port }
    }

    /// Converts the payload, whose JSON is not kept beside it.
    pub(super) fn take_payload<T: DeserializeOwned>(&mut self) -> serde_json::Result<T> {
        serde_json::from_slice(&std::mem::take(&mut self.firing.row.payload))
    }

    /// Returns a second way to answer, for a handler that panics.
    pub(super) fn reply(&self) -> DueReply {
        self.reply.clone()
    }

    pub(super) fn fail(self, error: String) {
        self.reply.fail(error);
    }

    fn answer(self, answer: RunAnswer) {
        self.reply.answer(answer);
    }
}

impl DueReply {
    /// Calls a handler. If it panics before it has answered, the run has failed with the message of
    /// the panic.
    pub(super) fn guard(&self, handler: impl FnOnce()) {
        self.set_handler(Some(thread::current().id()));
        let result = catch_unwind(AssertUnwindSafe(handler));
        self.set_handler(None);
        match result {
            Err(panic) => self.fail(format!("the handler panicked: {}", panic_message(panic))),
            // The handler has caught its panic.
            Ok(()) if self.state.is_dropped.load(Ordering::Acquire) => {
                self.fail("the handler did not answer".to_owned());
            }
            Ok(()) => {}
        }
    }

    fn set_handler(&self, thread: Option<ThreadId>) {
        *self.state.handler.lock() = thread;
    }

    /// Returns whether the handler runs on this thread.
    fn is_in_handler(&self) -> bool {
        let handler = *self.state.handler.lock();
        handler == Some(thread::current().id())
    }

    fn fail(&self, error: String) {
        self.answer(RunAnswer::Failed(error));
    }

    fn answer(&self, answer: RunAnswer) {
        if !self.state.is_answered.swap(true, Ordering::AcqRel) {
            self.inbox.tell(EngineMessage::Answered { id: self.id, run: self.run, answer });
        }
    }
}

impl Drop for Answering {
    fn drop(&mut self) {
        if !thread::panicking() {
            self.reply.fail("the handler did not answer".to_owned());
        } else if self.reply.is_in_handler() {
            self.reply.state.is_dropped.store(true, Ordering::Release);
        } else {
            self.reply.fail("the thread that should answer panicked".to_owned());
        }
    }
}
