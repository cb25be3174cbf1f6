//! Outgoing connections that are not established yet.
//!
//! Invariants: the callback of an attempt is called exactly once, however the attempt ends. When an
//! attempt has failed, its connection no longer counts before the callback is called. Runs on the
//! loop's thread.

use crate::{
    channel::{Due, driver::Ready},
    error::{Error, Result, SendError},
    event_loop::{
        STREAM_INTEREST, WATCHING,
        connection::{ConnectCallback, Connection, Established},
        mail::LoopMail,
        shared::LoopShared,
        source::{AtShutdown, LoopContext, NewSource, RegisterFn, Source, Transition},
        source_inbox::{SourceCommand, SourceInbox},
    },
    metrics::Metrics,
    sync::Locked,
    timer::QueueKey,
};
use std::{
    io::{self, ErrorKind},
    sync::Arc,
    time::Duration,
};

/// The identity of an attempt to connect, known before its loop has received the attempt.
#[derive(Clone)]
pub(crate) struct Attempt(Arc<AttemptState>);

struct AttemptState {
    inbox: Arc<SourceInbox<CancelConnect>>,
    cancelling: Locked<Cancelling>,
}

#[derive(Default)]
struct Cancelling {
    /// Set by the first cancel. The loop refuses the command of a cancel that precedes the attempt,
    /// and refuses the attempt because of this flag.
    is_cancelled: bool,
    /// Cancels the attempts of which this one consists: for several addresses, or on another loop.
    parts: Option<Arc<CancelParts>>,
}

type CancelParts = dyn Fn() + Send + Sync;

/// Cancels an attempt to connect. Ignored if its channel is established.
struct CancelConnect;

impl SourceCommand for CancelConnect {}

impl Attempt {
    pub(crate) fn new() -> Self {
        let cancelling = Locked::new(Cancelling::default());
        Attempt(Arc::new(AttemptState { inbox: SourceInbox::new(), cancelling }))
    }

    /// Sets the function that cancels the attempt, because it consists of others. Calls it at once
    /// if the attempt was cancelled before. Called at most once per attempt.
    pub(crate) fn cancels_with(&self, cancel: impl Fn() + Send + Sync + 'static) {
        let cancel: Arc<CancelParts> = Arc::new(cancel);
        let is_cancelled = self.0.cancelling.change(|cancelling| {
            let before = cancelling.parts.replace(cancel.clone());
            (cancelling.is_cancelled, before)
        });
        if is_cancelled {
            cancel();
        }
    }

    /// Cancels the attempt, whether or not its loop has received it. `event_loop` is its loop.
    pub(crate) fn cancel(&self, event_loop: &LoopShared) {
        let parts = self.0.cancelling.change(|cancelling| {
            cancelling.is_cancelled = true;
            (cancelling.parts.clone(), ())
        });
        if let Some(cancel) = parts {
            return cancel();
        }
        // A full queue must not prevent this. The attempts of a loop that has ended have ended with
        // it.
        let _ = self.0.inbox.submit_always(event_loop, CancelConnect);
    }

    /// Returns whether both are the same attempt.
    pub(crate) fn is(&self, other: &Attempt) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    fn is_cancelled(&self) -> bool {
        self.0.cancelling.read(|cancelling| cancelling.is_cancelled)
    }
}

/// An outbound connection that is being established.
pub(crate) struct Connecting {
    /// `None` once the connection is established.
    pending: Option<Pending>,
    attempt: Attempt,
    /// The limit in nanoseconds, or 0 for none.
    timeout: u64,
    deadline: Option<QueueKey>,
}

struct Pending {
    connection: Connection,
    callback: Box<dyn ConnectCallback>,
}

impl Connecting {
    /// Creates an attempt whose socket has started to connect. A `timeout` of 0 means no limit.
    pub(crate) fn new(
        connection: Connection,
        callback: Box<dyn ConnectCallback>,
        attempt: Attempt,
        timeout: u64,
    ) -> Self {
        Connecting { pending: Some(Pending { connection, callback }), attempt, timeout, deadline: None }
    }

    /// Puts the attempt into the queue of its loop. A refusal fails it.
    pub(crate) fn submit(self, event_loop: &LoopShared) {
        Self::fail_refused(event_loop.submit_with(0, Box::new(self), |attempt| LoopMail::Open(attempt)));
    }

    /// Like [`Connecting::submit`], but ignores the limit of the queue.
    pub(crate) fn submit_always(self, event_loop: &LoopShared) {
        Self::fail_refused(event_loop.submit_always_with(Box::new(self), |attempt| LoopMail::Open(attempt)));
    }

    fn fail_refused(submitted: Result<(), SendError<Box<Self>>>) {
        if let Err(refused) = submitted {
            let (attempt, error) = refused.into_parts();
            attempt.fail(error);
        }
    }

    /// Closes the socket, then notifies the program.
    pub(crate) fn fail(self, error: Error) {
        if let Some(Pending { connection, callback }) = self.pending {
            drop(connection);
            callback.failed(error);
        }
    }

    /// Returns whether the connection is established, or the error of the attempt.
    fn is_connected(&mut self, ready: Ready) -> Result<bool> {
        let Some(Pending { connection, callback }) = &self.pending else { return Ok(false) };
        let stream = &connection.stream;
        // Writability alone is not success. The socket's error and the presence of a peer decide.
        let connected = match stream.take_error() {
            Ok(Some(e)) | Err(e) => Err(e),
            Ok(None) => match stream.has_peer() {
                Err(e) if e.kind() == ErrorKind::NotConnected && !ready.is_error() => return Ok(false),
                other => other,
            },
        };
        connected.map_err(|e| Error::io("connecting", e))?;
        if callback.is_wanted() { Ok(true) } else { Err(Error::Cancelled) }
    }

    /// Completes the attempt if the connection is established. `ready` is empty without an event.
    fn finish(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        match self.is_connected(ready) {
            Ok(true) => {}
            Ok(false) => return Transition::Stay,
            Err(e) => return Transition::End(Err(e)),
        }
        self.cancel_deadline(ctx);
        let Some(mut pending) = self.pending.take() else { return Transition::Stay };
        pending.connection.local = pending.connection.stream.local_address();
        if pending.connection.local.is_some() && pending.connection.local == pending.connection.peer {
            // TCP connects a socket to itself if the system has chosen the port of the server,
            // which does not listen. The reset frees the port for the server.
            pending.connection.reset_on_close(ctx.loop_name);
            self.pending = Some(pending);
            return Transition::End(Err(Error::io("connecting", ErrorKind::ConnectionRefused.into())));
        }
        match pending.connection.make_start() {
            Ok(start) => {
                let Pending { connection, callback } = pending;
                Transition::Establish(Box::new(Established { connection, start, callback, ready }))
            }
            Err(e) => {
                self.pending = Some(pending);
                Transition::End(Err(e))
            }
        }
    }

    fn cancel_deadline(&mut self, ctx: &mut LoopContext<'_>) {
        if let Some(deadline) = self.deadline.take() {
            drop(ctx.io.services.cancel_timer(deadline));
        }
    }
}

impl NewSource for Connecting {
    fn open(mut self: Box<Self>, ctx: &mut LoopContext<'_>) -> Option<Box<dyn Source>> {
        // The loop drops the command of an earlier cancel. A later command follows the attempt.
        if self.attempt.is_cancelled() {
            self.refuse(ctx.loop_name, ctx.metrics, Error::Cancelled);
            return None;
        }
        let Pending { connection, .. } = self.pending.as_mut()?;
        if let Err(e) = ctx.io.selector.register(connection.stream.source(), ctx.key.token(), STREAM_INTEREST)
        {
            self.refuse(ctx.loop_name, ctx.metrics, Error::io(WATCHING, e));
            return None;
        }
        if self.timeout > 0 {
            let deadline = ctx.io.services.now.saturating_add(self.timeout);
            self.deadline = Some(ctx.io.services.queue.insert(deadline, Due::Source(ctx.key)));
        }
        self.attempt.0.inbox.opened(ctx.key);
        Some(self)
    }

    fn is_outgoing(&self) -> bool {
        true
    }

    fn refuse(self: Box<Self>, _loop_name: &str, metrics: &Metrics, error: Error) {
        metrics.connect_errors.add(1);
        self.fail(error);
    }
}

impl Source for Connecting {
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        self.finish(ctx, ready)
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        // The new channel needs the other conditions, which are not reported again.
        if ready.is_readable() || ready.is_hang_up() {
            return self.finish(ctx, ready);
        }
        ctx.io.carry_over(ctx.key, false);
        Transition::Stay
    }

    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.finish(ctx, Ready::NONE)
    }

    fn mail(&mut self, _ctx: &mut LoopContext<'_>) -> Transition {
        match self.attempt.0.inbox.take() {
            Some(CancelConnect) => Transition::End(Err(Error::Cancelled)),
            None => Transition::Stay,
        }
    }

    fn timer(&mut self, _ctx: &mut LoopContext<'_>) -> Transition {
        self.deadline = None;
        let after = Duration::from_nanos(self.timeout);
        Transition::End(Err(Error::TimedOut { operation: "connecting", after }))
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        let Pending { connection, .. } = self.pending.as_mut()?;
        Some(register(connection.stream.source(), STREAM_INTEREST))
    }

    fn is_outgoing(&self) -> bool {
        true
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        AtShutdown::End(Err(Error::ShutDown))
    }

    fn close(&mut self, _ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        (Transition::End(Err(Error::ShutDown)), false)
    }

    fn fail(&mut self, _ctx: &mut LoopContext<'_>, error: Error) -> Transition {
        Transition::End(Err(error))
    }

    fn end(mut self: Box<Self>, ctx: &mut LoopContext<'_>, result: Result) {
        self.cancel_deadline(ctx);
        let Some(Pending { connection, .. }) = &mut self.pending else { return };
        if let Err(e) = ctx.io.selector.deregister(connection.stream.source()) {
            log::debug!("{}: deregistering a connection: {e:#}", ctx.loop_name);
        }
        ctx.metrics.connect_errors.add(1);
        self.fail(result.err().unwrap_or(Error::Cancelled));
    }
}
