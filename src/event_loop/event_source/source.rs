//! The loop's side of an event source.
//!
//! Invariants: the callback is called at most once per turn. Readiness that it has not seen yet is
//! merged, never lost. The source's permit is released after the source was dropped, and `ended`
//! completes after that. Runs on the loop's thread.

use super::{
    command::EventSourceCommand,
    context::{SourceAction, SourceContext},
    handle::{SourceHandle, SourceShared},
    interest::{Interest, Readiness},
};
use crate::{
    channel::driver::Ready,
    error::{Error, Result, drop_guarded, panic_message},
    event_loop::{
        EventLoop,
        source::{AtShutdown, LoopContext, NewSource, RegisterFn, Source, Transition},
        source_inbox::SourceInbox,
    },
    machine,
    metrics::Metrics,
    sync::{Completer, Permits},
};
use mio::unix::SourceFd;
use std::{
    io,
    os::fd::{AsFd, AsRawFd, RawFd},
    panic::{AssertUnwindSafe, Location, catch_unwind},
    sync::Arc,
};

/// The program's callback for a source of type `S`.
pub(super) type Callback<S> = Box<dyn FnMut(&mut SourceContext<'_>, &mut S) -> Result<SourceAction> + Send>;

/// A permit for one event source of a loop. Dropping it releases the permit.
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

/// A source on its way to its loop.
pub(super) struct Registration<S> {
    pub(super) source: S,
    pub(super) callback: Callback<S>,
    pub(super) interest: Interest,
    pub(super) origin: &'static Location<'static>,
    pub(super) permit: SourcePermit,
    pub(super) shared: Arc<SourceShared>,
    pub(super) inbox: Arc<SourceInbox<EventSourceCommand<S>>>,
    pub(super) event_loop: EventLoop,
    pub(super) registered: Completer<SourceHandle<S>>,
}

impl<S> Registration<S> {
    /// Drops the callback and returns the source.
    pub(super) fn into_source(self) -> S {
        drop_guarded(self.callback);
        self.source
    }
}

fn descriptor(source: &impl AsFd) -> RawFd {
    source.as_fd().as_raw_fd()
}

impl<S: AsFd + Send + 'static> NewSource for Registration<S> {
    fn open(self: Box<Self>, ctx: &mut LoopContext<'_>) -> Option<Box<dyn Source>> {
        if let Err(e) = machine::refuse_in_simulation("a descriptor of the system") {
            self.refuse(ctx.loop_name, ctx.metrics, Error::io("registering an event source", e));
            return None;
        }
        let descriptor = descriptor(&self.source);
        let (source, interest) = (&mut SourceFd(&descriptor), self.interest.of_poll());
        if let Err(e) = ctx.io.selector.register(source, ctx.key.token(), interest) {
            self.refuse(ctx.loop_name, ctx.metrics, Error::io("registering an event source", e));
            return None;
        }
        ctx.metrics.event_sources.set(ctx.metrics.event_sources.read() + 1);
        let Registration {
            source,
            callback,
            interest,
            origin,
            permit,
            shared,
            inbox,
            event_loop,
            registered,
        } = *self;
        inbox.opened(ctx.key);
        Some(Box::new(EventSource {
            source,
            callback,
            descriptor,
            interest,
            pending: Readiness::default(),
            listed: false,
            failed: false,
            origin,
            permit,
            end: EndGuard(shared),
            inbox,
            event_loop,
            registered: Some(registered),
            hand_back: None,
        }))
    }

    /// Drops the source, then notifies the program.
    fn refuse(self: Box<Self>, _loop_name: &str, _metrics: &Metrics, error: Error) {
        let Registration { source, callback, permit, registered, .. } = *self;
        drop_guarded((source, callback));
        drop(permit);
        registered.complete(Err(error));
    }
}

/// An event source that is registered.
struct EventSource<S> {
    source: S,
    callback: Callback<S>,
    /// The registered descriptor. Its number may be reused by another source once this one is
    /// closed.
    descriptor: RawFd,
    interest: Interest,
    /// Readiness that has not been passed to the callback yet.
    pending: Readiness,
    /// The callback is to be called in the next turn without an event.
    listed: bool,
    /// The source ends because of an error, which is logged.
    failed: bool,
    origin: &'static Location<'static>,
    permit: SourcePermit,
    end: EndGuard,
    inbox: Arc<SourceInbox<EventSourceCommand<S>>>,
    event_loop: EventLoop,
    /// `None` once the program has its handle.
    registered: Option<Completer<SourceHandle<S>>>,
    /// Receives the source when it is deregistered.
    hand_back: Option<Completer<S>>,
}

/// Completes `ended`, also if the loop itself fails and drops its sources.
struct EndGuard(Arc<SourceShared>);

impl Drop for EndGuard {
    fn drop(&mut self) {
        self.0.end(Err(Error::ShutDown));
    }
}

impl<S: AsFd + Send + 'static> EventSource<S> {
    /// Calls the callback, and carries out the action that it returns.
    fn call(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        match self.try_call(ctx) {
            Ok(SourceAction::Continue) => Transition::Stay,
            Ok(SourceAction::Again) => {
                self.listed = true;
                let in_full = ctx.io.has_room();
                ctx.io.carry_over(ctx.key, in_full);
                Transition::Stay
            }
            Ok(SourceAction::Deregister) => Transition::End(Ok(())),
            Err(error) => self.fail(ctx, error),
        }
    }

    fn try_call(&mut self, ctx: &LoopContext<'_>) -> Result<SourceAction> {
        let readiness = std::mem::take(&mut self.pending);
        let (interest, event_loop) = (self.interest, &self.event_loop.shared);
        let mut source_ctx = SourceContext { readiness, interest, set_interest: false, event_loop };
        let (source, callback) = (&mut self.source, &mut self.callback);
        let run = || catch_unwind(AssertUnwindSafe(|| callback(&mut source_ctx, source)));
        let called = event_loop.activity.in_task(self.origin, run);
        let (interest, set_interest) = (source_ctx.interest, source_ctx.set_interest);
        let action = called.unwrap_or_else(|panic| Err(Error::panicked(panic_message(panic))))?;
        if action == SourceAction::Deregister {
            return Ok(action);
        }
        if descriptor(&self.source) != self.descriptor {
            return Err(Error::other("the descriptor of the source differs from the registered one"));
        }
        if set_interest {
            self.set_interest(ctx, interest)?;
        }
        if action == SourceAction::Again {
            self.pending.merge(readiness);
        }
        Ok(action)
    }

    /// Changes the registered interest. Present readiness is reported once more.
    fn set_interest(&mut self, ctx: &LoopContext<'_>, interest: Interest) -> Result {
        let source = &mut SourceFd(&self.descriptor);
        let changed = ctx.io.selector.reregister(source, ctx.key.token(), interest.of_poll());
        changed.map_err(|e| Error::io("changing the interest in an event source", e))?;
        self.interest = interest;
        Ok(())
    }

    /// Deregisters the source from the poll.
    fn leave(&self, ctx: &LoopContext<'_>) {
        // If the program has replaced the descriptor, its number may name another source by now.
        if descriptor(&self.source) == self.descriptor
            && let Err(e) = ctx.io.selector.deregister(&mut SourceFd(&self.descriptor))
        {
            log::debug!("deregistering an event source: {e:#}");
        }
    }
}

impl<S: AsFd + Send + 'static> Source for EventSource<S> {
    fn opened(&mut self, _ctx: &mut LoopContext<'_>) {
        if let Some(registered) = self.registered.take() {
            let (event_loop, shared) = (self.event_loop.clone(), self.end.0.clone());
            registered.complete(Ok(SourceHandle::new(event_loop, shared, self.inbox.clone())));
        }
    }

    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        self.pending.merge(Readiness::of(ready));
        // A listed source is called later in this turn. Two calls would be more than its share.
        if self.listed { Transition::Stay } else { self.call(ctx) }
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        self.pending.merge(Readiness::of(ready));
        if !self.listed {
            self.listed = true;
            ctx.io.carry_over(ctx.key, false);
        }
        Transition::Stay
    }

    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.listed = false;
        self.call(ctx)
    }

    fn mail(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        match self.inbox.take() {
            None => Transition::Stay,
            Some(EventSourceCommand::SetInterest(interest)) => match self.set_interest(ctx, interest) {
                Ok(()) => Transition::Stay,
                Err(error) => self.fail(ctx, error),
            },
            Some(EventSourceCommand::Deregister(hand_back)) => {
                self.hand_back = Some(hand_back);
                Transition::End(Ok(()))
            }
        }
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(&mut SourceFd(&self.descriptor), self.interest.of_poll()))
    }

    /// Event sources work until the loop ends.
    fn begin_shutdown(&mut self) -> AtShutdown {
        AtShutdown::Stay
    }

    fn close(&mut self, _ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        (Transition::End(Err(Error::ShutDown)), false)
    }

    fn fail(&mut self, ctx: &mut LoopContext<'_>, error: Error) -> Transition {
        ctx.metrics.event_source_errors.add(1);
        self.failed = true;
        Transition::End(Err(error))
    }

    fn end(self: Box<Self>, ctx: &mut LoopContext<'_>, result: Result) {
        ctx.metrics.event_sources.set(ctx.metrics.event_sources.read().saturating_sub(1));
        self.leave(ctx);
        let EventSource { source, callback, permit, end, hand_back, failed, origin, .. } = *self;
        if let Some(hand_back) = hand_back {
            drop_guarded(callback);
            drop(permit);
            end.0.end(Ok(()));
            return hand_back.complete(Ok(source));
        }
        drop_guarded((source, callback));
        drop(permit);
        let error = result.as_ref().err().filter(|_| failed).cloned();
        end.0.end(result);
        // The log is code of the program and may panic. The source has already ended by now.
        if let Some(error) = error {
            let level =
                if matches!(error, Error::Panicked(_)) { log::Level::Error } else { log::Level::Warn };
            log::log!(
                level,
                "{}: the event source registered at {origin} has failed: {error:#}",
                ctx.loop_name
            );
        }
    }
}
