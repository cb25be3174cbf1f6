//! Event sources of the program's own: descriptors that a loop watches beside its channels.
//!
//! Always holds: a source belongs to its loop from the registration to the end; its callback runs on
//! the loop's thread, at most once per turn; the descriptor leaves the poll before the source is
//! dropped or handed back; `ended` completes however a source ends. Unix only: the poll of other
//! systems watches only sockets of mio's own types.
//!
//! Modules: `interest` (the events that are watched and reported), `context` (the callback's view),
//! `slot` (the loop's side), `handle` (the program's side).

mod context;
mod handle;
mod interest;
mod slot;

pub use context::{SourceAction, SourceContext};
pub use handle::SourceHandle;
pub use interest::{Interest, Readiness};
pub(super) use slot::{ForeignSlot, SourceMail};

use super::{
    EventLoop,
    shared::{LifeState, LoopMail},
    sources::Slot,
    turn::Turn,
};
use crate::{
    Error, Result,
    channel::driver::Ready,
    error::{Refused, drop_guarded},
    id::Key,
    resource::EVENT_SOURCES,
    sync::{Completion, completion},
};
use handle::SourceShared;
use slot::{Registration, SourcePermit, TypedSource};
use std::{os::fd::AsFd, panic::Location, sync::Arc};

impl EventLoop {
    /// Registers any selectable descriptor on this loop: a pipe, an eventfd, a timerfd, a signalfd,
    /// inotify, or the socket of another library. Unix only.
    ///
    /// The loop owns the source from then on. It calls `callback` on its thread when the source is
    /// ready, at most once per turn, so that a busy source shares the loop with all others. The
    /// completion delivers a [`SourceHandle`], which changes the interest or takes the source back.
    /// May be called from any thread, also from the loop's own.
    ///
    /// # Readiness is edge-triggered
    ///
    /// The loop reports that a source *became* ready. It does not report again that it still is.
    /// So the callback works until an operation would block, and then returns
    /// [`SourceAction::Continue`]. To limit its work it can stop earlier and return
    /// [`SourceAction::Again`]: it is called again in the next turn, with the same readiness. The
    /// source must be in non-blocking mode, or the callback would block the loop.
    ///
    /// # How a source ends
    ///
    /// | what happens | the source | [`SourceHandle::ended`] completes with |
    /// |---|---|---|
    /// | [`SourceHandle::deregister`] | is handed back | `Ok` |
    /// | the callback returns [`SourceAction::Deregister`] | is dropped on the loop | `Ok` |
    /// | the callback returns an error | is dropped on the loop, with a warning in the log | the error |
    /// | the callback panics | is dropped on the loop, with an error in the log | [`Error::Panicked`] |
    /// | a rebuild of the poll cannot move the source | is dropped on the loop | [`Error::Io`] |
    /// | the loop ends | is dropped on the loop | [`Error::ShutDown`] |
    ///
    /// Dropping all handles changes nothing: the source stays registered. Sources do not keep a
    /// shutdown waiting. They work until the loop ends, and their callback is not called for that.
    /// A rebuild of the poll moves all sources. Whatever is ready then is reported once more.
    ///
    /// While the callback runs, the [`Watchdog`](crate::Watchdog) reports it as a task with the place
    /// of this call. [`LoopMetrics`](crate::LoopMetrics) counts sources and failed callbacks.
    ///
    /// ```
    /// use netwheel::{Interest, SourceAction, prelude::*};
    /// use std::{io::{ErrorKind, Read, Write}, os::unix::net::UnixStream, sync::mpsc};
    ///
    /// # fn main() -> Result {
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let (mut ours, theirs) = UnixStream::pair().unwrap();
    /// theirs.set_nonblocking(true).unwrap();
    ///
    /// let (sender, bytes) = mpsc::channel();
    /// let registered = group.next().register(theirs, Interest::READABLE, move |_, stream: &mut UnixStream| {
    ///     let mut buffer = [0; 1024];
    ///     loop {
    ///         match stream.read(&mut buffer) {
    ///             Ok(0) => return Ok(SourceAction::Deregister),
    ///             Ok(n) => { let _ = sender.send(buffer[..n].to_vec()); }
    ///             Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(SourceAction::Continue),
    ///             Err(e) => return Err(Error::io("reading", e)),
    ///         }
    ///     }
    /// })?;
    /// let handle = registered.wait()?;
    ///
    /// ours.write_all(b"hello").unwrap();
    /// assert_eq!(bytes.recv().unwrap(), b"hello");
    ///
    /// // The source comes back.
    /// let theirs: UnixStream = handle.deregister()?.wait()?;
    /// # drop(theirs);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The source is handed back with [`Error::Full`] if the loop has as many sources as
    /// [`max_event_sources`](crate::EventLoopGroupBuilder::max_event_sources) allows or its queue is
    /// full, and with [`Error::ShutDown`] if the loop is shut down.
    ///
    /// The completion fails with [`Error::Io`] if the poll does not accept the descriptor, for example
    /// a regular file, or a descriptor that is registered already. It fails with [`Error::ShutDown`]
    /// while the loop is shutting down. The source is dropped then.
    #[track_caller]
    pub fn register<S, F>(
        &self,
        source: S,
        interest: Interest,
        callback: F,
    ) -> Result<Completion<SourceHandle<S>>, Refused<S>>
    where
        S: AsFd + Send + 'static,
        F: FnMut(&mut SourceContext<'_>, &mut S) -> Result<SourceAction> + Send + 'static,
    {
        let origin = Location::caller();
        let Some(permit) = SourcePermit::take(&self.shared.event_sources) else {
            let reason = Error::Full { what: EVENT_SOURCES, limit: self.shared.event_sources.limit() };
            return Err(Refused { value: source, reason });
        };
        let (completer, completion) = completion(Some(self.shared.id));
        let shared = Arc::new(SourceShared::default());
        let event_loop = self.clone();
        let registered = {
            let shared = shared.clone();
            move |registered: Result<Key>| {
                completer.complete(registered.map(|key| SourceHandle::new(event_loop, key, shared)));
            }
        };
        let registration = Registration {
            source: Box::new(TypedSource { source, callback }),
            interest,
            origin,
            permit,
            shared,
            registered: Box::new(registered),
        };
        let mail = LoopMail::EventSource(Box::new(SourceMail::Register(registration)));
        let Err(refused) = self.shared.submit(mail, 0) else { return Ok(completion) };
        let LoopMail::EventSource(mail) = refused.value else { unreachable!("the same mail comes back") };
        let SourceMail::Register(registration) = *mail else { unreachable!("the same mail comes back") };
        match registration.source.into_source().downcast() {
            Ok(source) => Err(Refused { value: *source, reason: refused.reason }),
            Err(_) => unreachable!("the same source comes back"),
        }
    }
}

impl Turn {
    pub(super) fn source_mail(&mut self, mail: SourceMail) {
        match mail {
            SourceMail::Register(registration) => self.register_source(registration),
            SourceMail::SetInterest(key, interest) => {
                let Turn { sources, io, .. } = self;
                if let Some(Slot::Foreign(slot)) = sources.get(key)
                    && let Err(error) = slot.set_interest(&io.selector, key, interest)
                {
                    self.fail_event_source(key, error);
                }
            }
            SourceMail::Deregister(key, hand_back) => match self.remove_event_source(key) {
                Some(slot) => hand_back(Ok(slot.into_source())),
                None => hand_back(Err(Error::Closed)),
            },
        }
    }

    fn register_source(&mut self, registration: Registration) {
        if self.shared.state() >= LifeState::ShuttingDown {
            return registration.refuse(Error::ShutDown);
        }
        let key = match self.sources.next_key() {
            Ok(key) => key,
            Err(error) => return registration.refuse(error),
        };
        let (slot, registered) = match registration.begin(&self.io.selector, key) {
            Ok(begun) => begun,
            Err((registration, error)) => return registration.refuse(error),
        };
        self.sources.insert(Slot::Foreign(Box::new(slot)));
        let sources = &self.shared.metrics.event_sources;
        sources.set(sources.read() + 1);
        registered(Ok(key));
    }

    /// An event from the poll.
    pub(super) fn event_source_is_ready(&mut self, key: Key, ready: Ready) {
        let Turn { sources, io, shared, .. } = self;
        let Some(Slot::Foreign(slot)) = sources.get(key) else { return };
        let end = slot.handle_ready(key, io, shared, ready);
        self.after_source(key, end);
    }

    /// The source was listed in an earlier turn.
    pub(super) fn event_source_proceeds(&mut self, key: Key) {
        let Turn { sources, io, shared, .. } = self;
        let Some(Slot::Foreign(slot)) = sources.get(key) else { return };
        let end = slot.proceed(key, io, shared);
        self.after_source(key, end);
    }

    fn after_source(&mut self, key: Key, end: Option<Result>) {
        match end {
            None => {}
            Some(Ok(())) => self.end_event_source(key, Ok(())),
            Some(Err(error)) => self.fail_event_source(key, error),
        }
    }

    /// Ends a source because of an error, which is logged and counted.
    pub(super) fn fail_event_source(&mut self, key: Key, error: Error) {
        let Some(Slot::Foreign(slot)) = self.sources.get(key) else { return };
        self.shared.metrics.event_source_errors.add(1);
        let panicked = matches!(error, Error::Panicked(_));
        let level = if panicked { log::Level::Error } else { log::Level::Warn };
        let (origin, again) = (slot.origin(), error.again());
        // The log is the program's own and may panic: the source must have ended by then.
        self.end_event_source(key, Err(error));
        log::log!(level, "{}: the event source registered at {origin} is lost: {again}", self.shared.name);
    }

    /// Deregisters a source and drops it.
    pub(super) fn end_event_source(&mut self, key: Key, result: Result) {
        if let Some(slot) = self.remove_event_source(key) {
            slot.end(result);
        }
    }

    fn remove_event_source(&mut self, key: Key) -> Option<Box<ForeignSlot>> {
        if !matches!(self.sources.get(key), Some(Slot::Foreign(_))) {
            return None;
        }
        // Removed first: whatever panics, nothing of it stays.
        let Some(Slot::Foreign(slot)) = self.sources.remove(key) else { return None };
        let sources = &self.shared.metrics.event_sources;
        sources.set(sources.read().saturating_sub(1));
        slot.leave(&self.io.selector);
        Some(slot)
    }
}

impl Registration {
    /// The source cannot be registered: it is dropped, and then the program is notified.
    fn refuse(self, error: Error) {
        let Registration { source, permit, registered, .. } = self;
        drop_guarded(source);
        drop(permit);
        registered(Err(error));
    }
}
