//! A loop as the driver of a simulation sees it.

use super::ids::PollId;
use std::io;

/// A source that is ready: its token, and the bits of epoll(7) for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReadyEvent {
    pub(crate) token: usize,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// `EPOLLRDHUP`
    pub(crate) read_closed: bool,
    /// `EPOLLHUP`
    pub(crate) hang_up: bool,
    pub(crate) error: bool,
}

/// The result of a poll.
pub(crate) enum Polled {
    /// Sources are ready.
    Events,
    /// Only the waker was called.
    Woken,
    /// The timeout has passed, or nothing has happened.
    Nothing,
    /// A signal interrupted the poll (`EINTR`).
    Interrupted,
    Failed(io::Error),
}

/// When a loop wants to be called next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    /// Work is waiting.
    Now,
    /// After an event, or after this time, in nanoseconds of the node's clock.
    After(u64),
    /// After an event.
    Event,
    /// Not before this time, and without a poll.
    Rest(u64),
    /// Never: the loop has ended.
    Ended,
}

/// A loop that the driver runs: the part of a turn between two polls.
pub(crate) trait LoopRun {
    /// Prepares the first poll.
    fn begin(&mut self) -> Next;

    /// Runs a turn with the result of the poll, up to the next poll.
    fn turn(&mut self, polled: Polled, events: &[ReadyEvent]) -> Next;

    /// Returns the next poll after a rest.
    fn rested(&mut self) -> Next;

    /// Returns the poll in use. It changes when the loop rebuilds its poll.
    fn poll(&self) -> Option<PollId>;

    /// Returns the name of the loop.
    fn name(&self) -> &str;

    /// Returns a violation of an invariant after a turn, if there is one.
    fn check(&mut self) -> Option<String>;

    /// Returns a violation of a loop that sleeps while others run. `runs_next` is whether the
    /// machine is about to run the loop.
    fn lost_wakeup(&self, runs_next: bool) -> Option<&'static str>;

    /// Drops the loop without notifying its handlers, because its process was killed.
    fn kill(self: Box<Self>);
}
