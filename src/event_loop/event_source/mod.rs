//! Event sources: descriptors of the program that a loop watches in addition to its channels.
//!
//! A source and its callback move to the loop as one boxed value, whose methods the loop calls
//! through the trait `Source`. So mio's types stay out of the API, and the types of the program
//! stay out of the loop. A source occupies a slot like a channel. Events, mail, the panic guard,
//! the watchdog, a rebuild and a shutdown find it by its key.
//!
//! The poll is edge-triggered for sources too. A source whose callback returns `Again` is carried
//! over, and called in the next turn with the same readiness. An event for a carried-over source is
//! merged into that readiness. Setting the interest registers the descriptor again, which reports
//! present readiness once more.
//!
//! The system reuses the number of a closed descriptor. So a callback that replaces its descriptor
//! ends the source, and the loop does not deregister the old number.
//!
//! Invariants: a source belongs to its loop from the registration to the end. Its callback runs on
//! the loop's thread, at most once per turn. The descriptor leaves the poll before the source is
//! dropped or returned. `ended` completes however a source ends. Unix only: the poll of other
//! systems watches only sockets of mio's own types.
//!
//! Modules: `interest` (the events that are watched and reported), `context` (the callback's view),
//! `source` (the loop's side), `handle` (the program's side), `command` (from the handles to the
//! source).

mod command;
mod context;
mod handle;
mod interest;
mod source;

pub use context::{SourceAction, SourceContext};
pub use handle::SourceHandle;
pub use interest::{Interest, Readiness};

use super::{EventLoop, mail::LoopMail, source_inbox::SourceInbox};
use crate::{
    error::{Error, Resource, Result, SendError},
    sync::{Completion, completion},
};
use handle::SourceShared;
use source::{Registration, SourcePermit};
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
    /// | event | the source | [`SourceHandle::closed`] completes with |
    /// |---|---|---|
    /// | [`SourceHandle::deregister`] | is handed back | `Ok` |
    /// | the callback returns [`SourceAction::Deregister`] | is dropped on the loop | `Ok` |
    /// | the callback returns an error | is dropped on the loop, with a warning in the log | the error |
    /// | the callback panics | is dropped on the loop, with an error in the log | [`Error::Panicked`] |
    /// | a rebuild of the poll cannot move the source | is dropped on the loop | [`Error::Io`] |
    /// | the loop ends | is dropped on the loop | [`Error::ShutDown`] |
    ///
    /// Dropping all handles changes nothing: the source stays registered. Sources do not delay a
    /// shutdown. They work until the loop ends, and their callback is not called for that. A
    /// rebuild of the poll moves all sources. Present readiness is then reported once more.
    ///
    /// While the callback runs, the [`Watchdog`](crate::diagnostics::Watchdog) reports it as a task
    /// with the location of this call. [`LoopMetrics`](crate::metrics::LoopMetrics) counts sources
    /// and failed callbacks.
    ///
    /// ```
    /// use netwheel::{event_source::{Interest, SourceAction}, prelude::*};
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
    /// - [`Error::Full`] if the loop has as many sources as
    ///   [`max_event_sources`](crate::group::EventLoopGroupBuilder::max_event_sources) allows or
    ///   its queue is full.
    /// - [`Error::ShutDown`] if the loop is shut down.
    ///
    /// The source is returned.
    ///
    /// The completion fails with [`Error::Io`] if the poll does not accept the descriptor, for
    /// example a regular file, or a descriptor that is registered already. It fails with
    /// [`Error::ShutDown`] while the loop is shutting down. The source is dropped then.
    #[track_caller]
    pub fn register<S, F>(
        &self,
        source: S,
        interest: Interest,
        callback: F,
    ) -> Result<Completion<SourceHandle<S>>, SendError<S>>
    where
        S: AsFd + Send + 'static,
        F: FnMut(&mut SourceContext<'_>, &mut S) -> Result<SourceAction> + Send + 'static,
    {
        let origin = Location::caller();
        let Some(permit) = SourcePermit::take(&self.shared.event_sources) else {
            let reason =
                Error::Full { resource: Resource::EventSources, limit: self.shared.event_sources.limit() };
            return Err(SendError::new(source, reason));
        };
        let (registered, completion) = completion(Some(self.shared.id));
        let registration = Registration {
            source,
            callback: Box::new(callback),
            interest,
            origin,
            permit,
            event_loop: self.clone(),
            shared: Arc::new(SourceShared::default()),
            inbox: SourceInbox::new(),
            registered,
        };
        let submitted =
            self.shared.submit_with(0, Box::new(registration), |registration| LoopMail::Open(registration));
        match submitted {
            Ok(()) => Ok(completion),
            Err(refused) => Err(refused.map(|registration| registration.into_source())),
        }
    }
}
