//! The program's handle of an event source.

use super::{command::EventSourceCommand, interest::Interest};
use crate::{
    error::{Error, Result},
    event_loop::{EventLoop, source_inbox::SourceInbox},
    sync::{Completion, Locked, Waiters, completion},
};
use std::{fmt, sync::Arc};

/// The state that handles share with the source's slot.
pub(super) struct SourceShared {
    end: Locked<EndState>,
}

enum EndState {
    Awaited(Waiters),
    Done(Result),
}

impl Default for SourceShared {
    fn default() -> Self {
        SourceShared { end: Locked::new(EndState::Awaited(Waiters::default())) }
    }
}

impl SourceShared {
    /// Records the end of the source. Only the first call takes effect.
    pub(super) fn end(&self, result: Result) {
        let done = EndState::Done(again(&result));
        let waiting = self.end.change(|end| match end {
            EndState::Awaited(waiting) => {
                let waiting = waiting.take();
                (waiting, Err(std::mem::replace(end, done)))
            }
            EndState::Done(_) => (Vec::new(), Ok(done)),
        });
        for completer in waiting {
            completer.complete(again(&result));
        }
    }
}

fn again(result: &Result) -> Result {
    result.as_ref().copied().map_err(Error::clone)
}

/// A handle to a source that is registered on an event loop. See [`EventLoop::register`].
///
/// Can be cloned, sent and shared. Dropping all handles leaves the source registered.
pub struct SourceHandle<S> {
    event_loop: EventLoop,
    shared: Arc<SourceShared>,
    inbox: Arc<SourceInbox<EventSourceCommand<S>>>,
}

impl<S: Send + 'static> SourceHandle<S> {
    pub(super) fn new(
        event_loop: EventLoop,
        shared: Arc<SourceShared>,
        inbox: Arc<SourceInbox<EventSourceCommand<S>>>,
    ) -> Self {
        SourceHandle { event_loop, shared, inbox }
    }

    /// Sets the operations that the source is watched for. Takes effect when the loop has received
    /// the request.
    ///
    /// Also re-arms the source, even with the same interest: present readiness is reported once
    /// more. This resumes a source whose callback has stopped before the source was drained. If the
    /// poll refuses the change, the source ends with that error.
    ///
    /// # Errors
    /// [`Error::Closed`] if the source has ended. [`Error::Full`] if the queue of the loop is full,
    /// [`Error::ShutDown`] if the loop is shut down.
    pub fn set_interest(&self, interest: Interest) -> Result {
        if !self.is_registered() {
            return Err(Error::Closed);
        }
        let command = EventSourceCommand::SetInterest(interest);
        Ok(self.inbox.submit(&self.event_loop.shared, command)?)
    }

    /// Deregisters the source. The completion hands it back. The callback is dropped on the loop,
    /// and is not called after the completion is done.
    ///
    /// The completion fails with [`Error::Closed`] if the source ends in another way before the
    /// loop has received the request, or was already handed back.
    ///
    /// # Errors
    /// [`Error::Closed`] if the source has ended. [`Error::ShutDown`] if the loop is shut down.
    /// Never [`Error::Full`]: the queue of the loop always takes this request.
    pub fn deregister(&self) -> Result<Completion<S>> {
        if !self.is_registered() {
            return Err(Error::Closed);
        }
        let shared = &self.event_loop.shared;
        let (completer, completion) = completion(Some(shared.id));
        self.inbox.submit_always(shared, EventSourceCommand::Deregister(completer))?;
        Ok(completion)
    }

    /// Completes when the source has ended: with `Ok` if it was deregistered, otherwise with the
    /// error that ended it. The table of [`EventLoop::register`] lists them.
    #[doc(alias = "ended")]
    pub fn closed(&self) -> Completion {
        let waiting = self.shared.end.change(|end| match end {
            EndState::Done(result) => (Err(again(result)), None),
            EndState::Awaited(waiting) => {
                let (completer, completion) = completion(Some(self.event_loop.shared.id));
                (Ok(completion), Some(waiting.push(completer)))
            }
        });
        waiting.unwrap_or_else(Completion::ready)
    }

    /// Returns whether the source has not ended.
    pub fn is_registered(&self) -> bool {
        self.shared.end.read(|end| matches!(end, EndState::Awaited(_)))
    }

    /// Returns the loop that the source is registered on.
    pub fn event_loop(&self) -> &EventLoop {
        &self.event_loop
    }
}

impl<S> Clone for SourceHandle<S> {
    fn clone(&self) -> Self {
        let SourceHandle { event_loop, shared, inbox } = self;
        SourceHandle { event_loop: event_loop.clone(), shared: shared.clone(), inbox: inbox.clone() }
    }
}

impl<S> fmt::Debug for SourceHandle<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SourceHandle")
            .field("event_loop", &self.event_loop.name())
            .field("registered", &self.shared.end.read(|end| matches!(end, EndState::Awaited(_))))
            .finish_non_exhaustive()
    }
}
