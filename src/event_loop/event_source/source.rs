//! The loop's side of an event source.
//!
//! Always holds: the callback is called at most once per turn; readiness that it has not seen yet is
//! merged, never lost; the place among the loop's sources is free only after the source was dropped,
//! and `ended` completes after that. Runs on the loop's thread.

use super::{Interest, Readiness, SourceAction, SourceContext, handle::SourceShared};
use crate::{
    Error, Result,
    channel::driver::Ready,
    error::{drop_guarded, panic_message},
    event_loop::{Io, LoopShared, poll::Selector},
    id::Key,
    sync::Permits,
};
use mio::unix::SourceFd;
use std::{
    any::Any,
    os::fd::{AsFd, AsRawFd, RawFd},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::Arc,
};

/// A message about an event source, on its way to the loop.
pub(crate) enum SourceMail {
    Register(Registration),
    SetInterest(Key, Interest),
    Deregister(Key, HandBack),
}

/// Gets the source back, or the reason why not.
pub(super) type HandBack = Box<dyn FnOnce(Result<Box<dyn Any + Send>>) + Send>;

/// A source and its callback, whatever their types are.
pub(super) trait AnySource: Send {
    fn descriptor(&self) -> RawFd;

    fn call(&mut self, ctx: &mut SourceContext<'_>) -> Result<SourceAction>;

    /// The source alone.
    fn into_source(self: Box<Self>) -> Box<dyn Any + Send>;
}

/// A source and its callback.
pub(super) struct TypedSource<S, F> {
    pub(super) source: S,
    pub(super) callback: F,
}

impl<S, F> AnySource for TypedSource<S, F>
where
    S: AsFd + Send + 'static,
    F: FnMut(&mut SourceContext<'_>, &mut S) -> Result<SourceAction> + Send,
{
    fn descriptor(&self) -> RawFd {
        self.source.as_fd().as_raw_fd()
    }

    fn call(&mut self, ctx: &mut SourceContext<'_>) -> Result<SourceAction> {
        (self.callback)(ctx, &mut self.source)
    }

    fn into_source(self: Box<Self>) -> Box<dyn Any + Send> {
        let TypedSource { source, callback } = *self;
        drop_guarded(callback);
        Box::new(source)
    }
}

/// A place among the sources of a loop; free again when this is dropped.
pub(super) struct SourcePermit(Arc<Permits>);

impl SourcePermit {
    pub(super) fn take(places: &Arc<Permits>) -> Option<Self> {
        places.take().then(|| SourcePermit(places.clone()))
    }
}

impl Drop for SourcePermit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}

/// Completes the registration.
type Registered = Box<dyn FnOnce(Result<Key>) + Send>;

/// A source on its way to its loop.
pub(crate) struct Registration {
    pub(super) source: Box<dyn AnySource>,
    pub(super) interest: Interest,
    pub(super) origin: &'static Location<'static>,
    pub(super) permit: SourcePermit,
    pub(super) shared: Arc<SourceShared>,
    pub(super) registered: Registered,
}

impl Registration {
    /// Has the poll watch the source.
    pub(super) fn begin(
        self,
        selector: &Selector,
        key: Key,
    ) -> Result<(ForeignSlot, Registered), (Self, Error)> {
        let descriptor = self.source.descriptor();
        let interest = self.interest.of_poll();
        if let Err(e) = selector.register_for(&mut SourceFd(&descriptor), key.token(), interest) {
            return Err((self, Error::io("registering an event source", e)));
        }
        let Registration { source, interest, origin, permit, shared, registered } = self;
        let end = EndGuard(shared);
        let (pending, listed) = (Readiness::default(), false);
        let slot = ForeignSlot { source, descriptor, interest, pending, listed, origin, permit, end };
        Ok((slot, registered))
    }
}

pub(crate) struct ForeignSlot {
    source: Box<dyn AnySource>,
    /// The registered descriptor. Another source may get its number once this one is closed.
    descriptor: RawFd,
    interest: Interest,
    /// The readiness that the callback has not been called with.
    pending: Readiness,
    /// The callback is to be called in the next turn without an event.
    listed: bool,
    origin: &'static Location<'static>,
    permit: SourcePermit,
    end: EndGuard,
}

/// Completes `ended`, also if the loop itself fails and drops its sources.
struct EndGuard(Arc<SourceShared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end(Err(Error::ShutDown));
    }
}

impl ForeignSlot {
    /// Where the source was registered, for reports.
    pub(super) fn origin(&self) -> &'static Location<'static> {
        self.origin
    }

    /// An event from the poll. Returns the result if the source has ended.
    pub(super) fn handle_ready(
        &mut self,
        key: Key,
        io: &mut Io,
        shared: &Arc<LoopShared>,
        ready: Ready,
    ) -> Option<Result> {
        self.pending.merge(Readiness::of(ready));
        // A listed source is called later in this turn. Two calls would be more than its share.
        if self.listed { None } else { self.call(key, io, shared) }
    }

    /// Records an event that this turn has no time for. The source is called in the next turn.
    pub(in crate::event_loop) fn defer(&mut self, key: Key, io: &mut Io, ready: Ready) {
        self.pending.merge(Readiness::of(ready));
        if !self.listed {
            self.listed = true;
            io.list(key, false);
        }
    }

    /// The source was listed in an earlier turn. Returns the result if it has ended.
    pub(super) fn proceed(&mut self, key: Key, io: &mut Io, shared: &Arc<LoopShared>) -> Option<Result> {
        self.listed = false;
        self.call(key, io, shared)
    }

    fn call(&mut self, key: Key, io: &mut Io, shared: &Arc<LoopShared>) -> Option<Result> {
        let readiness = std::mem::take(&mut self.pending);
        let mut ctx =
            SourceContext { readiness, interest: self.interest, set_interest: false, event_loop: shared };
        let source = &mut self.source;
        let run = || catch_unwind(AssertUnwindSafe(|| source.call(&mut ctx)));
        let called = shared.activity.in_task(self.origin, run);
        let (interest, set_interest) = (ctx.interest, ctx.set_interest);
        let action = match called {
            Ok(Ok(action)) => action,
            Ok(Err(error)) => return Some(Err(error)),
            Err(panic) => return Some(Err(Error::Panicked(panic_message(panic)))),
        };
        if action == SourceAction::Deregister {
            return Some(Ok(()));
        }
        if self.source.descriptor() != self.descriptor {
            return Some(Err(Error::other("the source has another descriptor than it was registered with")));
        }
        if set_interest && let Err(error) = self.set_interest(&io.selector, key, interest) {
            return Some(Err(error));
        }
        if action == SourceAction::Again {
            self.pending.merge(readiness);
            self.listed = true;
            io.list(key, io.has_room());
        }
        None
    }

    /// Changes what the poll watches. Present readiness is reported once more.
    pub(super) fn set_interest(&mut self, selector: &Selector, key: Key, interest: Interest) -> Result {
        let source = &mut SourceFd(&self.descriptor);
        let changed = selector.reregister_for(source, key.token(), interest.of_poll());
        changed.map_err(|e| Error::io("changing the interest in an event source", e))?;
        self.interest = interest;
        Ok(())
    }

    /// What the poll watches, for a rebuild.
    pub(in crate::event_loop) fn watched(&self) -> (RawFd, mio::Interest) {
        (self.descriptor, self.interest.of_poll())
    }

    /// Leaves the poll.
    pub(super) fn leave(&self, selector: &Selector) {
        // If the program has replaced the descriptor, its number may name another source by now.
        if self.source.descriptor() == self.descriptor
            && let Err(e) = selector.deregister(&mut SourceFd(&self.descriptor))
        {
            log::debug!("an event source leaves the poll: {e}");
        }
    }

    /// Drops the source, then notifies the program.
    pub(super) fn end(self, result: Result) {
        let ForeignSlot { source, permit, end, .. } = self;
        drop_guarded(source);
        drop(permit);
        end.0.end(result);
    }

    /// Hands the source back.
    pub(super) fn into_source(self) -> Box<dyn Any + Send> {
        let ForeignSlot { source, permit, end, .. } = self;
        let source = source.into_source();
        drop(permit);
        end.0.end(Ok(()));
        source
    }
}
