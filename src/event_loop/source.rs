//! The interface between a loop and everything that its poll watches.
//!
//! A source is a channel, a listener, a connection that is not established yet, a lingering socket,
//! an event source of the program, or a datagram channel. The phases of a turn call channels
//! directly, because they are the hot path, and everything else through [`Source`]. So a new kind
//! of source changes no phase.
//!
//! Invariants: a source never touches the slots of a loop. It returns a [`Transition`], and the
//! turn removes or replaces it. A source is called on its loop's thread, and never from within one
//! of its own calls.

use super::{
    connection::{Connection, Established},
    io::Io,
    load::Load,
};
use crate::{
    channel::{ChannelTimer, driver::Ready},
    error::{Error, Result},
    id::Key,
    metrics::Metrics,
};
use std::{io, sync::Arc};

/// The part of a loop that a source works with during a call.
pub(crate) struct LoopContext<'a> {
    pub(crate) io: &'a mut Io,
    pub(crate) metrics: &'a Metrics,
    /// The key of the source that is called.
    pub(crate) key: Key,
    /// The id of the loop.
    pub(crate) loop_id: u32,
    /// The name of the loop, for the log.
    pub(crate) loop_name: &'a str,
    pub(crate) load: &'a Arc<Load>,
    /// Receives the connection of [`Transition::Adopt`], which is too large to be returned.
    pub(crate) accepted: &'a mut Option<Connection>,
}

/// The turn's next step for a source after a call.
#[must_use]
pub(crate) enum Transition {
    /// Nothing: the source stays in its slot.
    Stay,
    /// Opens a channel for the connection in [`LoopContext::accepted`], then calls
    /// [`Source::resume`].
    Adopt,
    /// Replaces the source by the channel of an established connection.
    Establish(Box<Established>),
    /// Removes the source and calls [`Source::end`].
    End(Result),
}

/// The reaction of a source to the beginning of its loop's shutdown.
pub(crate) enum AtShutdown {
    /// Its handler is notified in its part of the shutdown window ([`Source::shut_down`]).
    Drain,
    /// It is notified at once, because nothing of the program would be interrupted.
    Notify,
    /// The source ends immediately.
    End(Result),
    /// It stays until the loop ends.
    Stay,
}

/// A function that registers a source with a poll.
pub(crate) type RegisterFn<'a> = dyn FnMut(&mut dyn mio::event::Source, mio::Interest) -> io::Result<()> + 'a;

/// Something that the poll of a loop watches. The methods are called by the phases of a turn.
pub(crate) trait Source {
    /// Called once, when the source is in its slot.
    fn opened(&mut self, _ctx: &mut LoopContext<'_>) {}

    /// Handles an event of the poll.
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition;

    /// Records an event that this turn has no time for. The poll does not report the event again.
    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition;

    /// Continues without an event. Called once each time an earlier turn has added the source to
    /// the list of carried-over sources (`LoopIo::carry_over`).
    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition;

    /// Continues after [`Transition::Adopt`].
    fn resume(&mut self, _ctx: &mut LoopContext<'_>) -> Transition {
        Transition::Stay
    }

    /// Takes a command of a handle out of the source's inbox and carries it out. A source may be
    /// called for a command to its predecessor in the slot. A command that it does not take is
    /// refused.
    fn mail(&mut self, _ctx: &mut LoopContext<'_>) -> Transition {
        Transition::Stay
    }

    /// Handles the expiry of the source's own timer.
    fn timer(&mut self, _ctx: &mut LoopContext<'_>) -> Transition {
        Transition::Stay
    }

    /// Handles the expiry of a timer of a channel.
    fn channel_timer(&mut self, _ctx: &mut LoopContext<'_>, _timer: ChannelTimer) -> Transition {
        Transition::Stay
    }

    /// Calls `register` with the socket and its interest, to move the source to another poll.
    /// Returns `None` if the socket is closed.
    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>>;

    /// Returns whether this side opens the connection. A shutdown reaches such sources after all
    /// channels that were accepted.
    fn is_outgoing(&self) -> bool {
        false
    }

    /// Returns how the source reacts to the beginning of the loop's shutdown.
    fn begin_shutdown(&mut self) -> AtShutdown;

    /// Notifies the handler of the shutdown.
    fn shut_down(&mut self, _ctx: &mut LoopContext<'_>) {}

    /// Closes the source because its loop ends. Also returns whether this cut off an open channel.
    fn close(&mut self, ctx: &mut LoopContext<'_>) -> (Transition, bool);

    /// Closes the source because of an error.
    fn fail(&mut self, ctx: &mut LoopContext<'_>, error: Error) -> Transition;

    /// Closes the source after its handler could not be notified of an error.
    fn close_silently(&mut self, _ctx: &mut LoopContext<'_>) {}

    /// Prepares to continue after a panic in the code of the loop or the log. Returns `false` if
    /// the source is to be closed.
    fn retry_after_panic(&mut self, _ctx: &mut LoopContext<'_>) -> bool {
        false
    }

    /// Makes the last call to the handler. The slot is free by now.
    fn inactive(&mut self, _ctx: &mut LoopContext<'_>) {}

    /// Returns the bytes of pending output that its loop counts. `None` unless the source is a
    /// datagram channel.
    #[cfg(feature = "simulation")]
    fn counted_output(&self) -> Option<usize> {
        None
    }

    /// Returns a violation of an invariant if the loop sleeps.
    #[cfg(feature = "simulation")]
    fn violation_asleep(&self) -> Option<&'static str> {
        None
    }

    /// Ends the source after [`Transition::End`]: deregisters it, drops it, and notifies the
    /// program. The slot is free by now, so a panic leaves nothing behind.
    fn end(self: Box<Self>, _ctx: &mut LoopContext<'_>, _result: Result) {}
}

/// A source on its way to its loop.
pub(crate) trait NewSource: Send {
    /// Registers the source with the poll of the loop. If that fails, notifies the program and
    /// returns `None`.
    fn open(self: Box<Self>, ctx: &mut LoopContext<'_>) -> Option<Box<dyn Source>>;

    /// Returns whether this side opens the connection. A loop that shuts down opens it while an
    /// accepted channel is left.
    fn is_outgoing(&self) -> bool {
        false
    }

    /// Notifies the program that the loop refuses the source.
    fn refuse(self: Box<Self>, loop_name: &str, metrics: &Metrics, error: Error);
}

/// A message to a source, whose type only the source and its handles know.
pub(crate) trait SourceMail: Send {
    /// Returns the key of the source, or `None` if the source could not be opened. The source
    /// arrives through the queue of the loop before its messages, so it has its key by then.
    fn key(&self) -> Option<Key>;

    /// Delivers the message to the source, which is the one in the slot of the key.
    fn deliver(self: Box<Self>, source: &mut dyn Source, ctx: &mut LoopContext<'_>) -> Transition;

    /// Drops the message because the source has ended.
    fn refuse(self: Box<Self>);
}
