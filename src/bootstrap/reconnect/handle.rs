//! The handle of a reconnecting client.
//!
//! Invariant: the handle only queries and stops the client. Dropping it does not affect the client.
//! Any thread may call everything here.

use super::reconnect_state::{ReconnectPhase, ReconnectState};
use crate::{
    channel::Channel,
    error::Error,
    event_loop::EventLoop,
    sync::{Completion, completion},
};
use std::{fmt, sync::Arc};

/// A handle to a client that reconnects. The client continues without the handle, as long as its
/// loop runs. When the client has ended, its pipeline factory and its hooks are dropped, so they
/// may own a handle.
///
/// ```no_run
/// # use netwheel::{Channel, Result, reconnect::ReconnectingChannel};
/// # fn f(client: &ReconnectingChannel<bytes::Bytes>) -> Result {
/// let channel = client.connected().wait()?; // now, or when it is connected the next time
/// channel.write("hello".into())?;
/// # Ok(())
/// # }
/// ```
pub struct ReconnectingChannel<M> {
    pub(super) reconnect_state: Arc<ReconnectState<M>>,
}

impl<M: 'static> ReconnectingChannel<M> {
    /// Returns the channel if the client is connected. The channel is available just before its
    /// handler's `active` is called. Messages written here are sent after the messages that
    /// `active` writes.
    pub fn channel(&self) -> Option<Channel<M>> {
        match &self.reconnect_state.lock().phase {
            ReconnectPhase::Connected(channel, _) => Some(channel.clone()),
            _ => None,
        }
    }

    /// Completes with the channel: immediately if the client is connected, or else when it connects
    /// the next time.
    ///
    /// Like [`ClientBootstrap::connect`](crate::ClientBootstrap::connect), it completes before the
    /// handler's `active` is called.
    ///
    /// # Errors
    /// [`Error::Cancelled`] if the client was closed, or the error of the client if the client ends
    /// first.
    pub fn connected(&self) -> Completion<Channel<M>> {
        let mut state = self.reconnect_state.lock();
        match &state.phase {
            ReconnectPhase::Connected(channel, _) => Completion::ready(Ok(channel.clone())),
            ReconnectPhase::Stopping | ReconnectPhase::Ended(None) => {
                Completion::ready(Err(Error::Cancelled))
            }
            ReconnectPhase::Ended(Some(why)) => Completion::ready(Err(why.clone())),
            _ => {
                let (completer, completion) = completion(Some(self.reconnect_state.event_loop.shared.id));
                let dropped = state.awaited.push(completer);
                drop(state);
                drop(dropped);
                completion
            }
        }
    }

    /// Closes the client. No further attempt is made, a pending attempt is cancelled, and an
    /// established connection is closed after its pending writes have been sent. Any thread may
    /// call this, also from a handler or from the event hook.
    #[doc(alias = "stop")]
    pub fn close(&self) {
        self.reconnect_state.stop();
    }

    /// Returns whether the client has been closed or has given up, and nothing of it is left.
    pub fn is_closed(&self) -> bool {
        matches!(self.reconnect_state.lock().phase, ReconnectPhase::Ended(_))
    }

    /// Completes when nothing of the client is left: no timer, no attempt, no channel. The handler
    /// of the last channel may get its `inactive` a moment later, as after [`Channel::closed`].
    ///
    /// The result is `Ok` after [`close`](ReconnectingChannel::close). It is the error of the last
    /// attempt if the client has given up
    /// ([`max_attempts`](crate::reconnect::Backoff::max_attempts)), and [`Error::Closed`] if that
    /// attempt succeeded but its connection was lost too soon. It is [`Error::ShutDown`] if the
    /// loop was shut down.
    #[doc(alias = "ended")]
    pub fn closed(&self) -> Completion {
        let mut state = self.reconnect_state.lock();
        match &state.phase {
            ReconnectPhase::Ended(None) => Completion::ready(Ok(())),
            ReconnectPhase::Ended(Some(why)) => Completion::ready(Err(why.clone())),
            _ => {
                let (completer, completion) = completion(Some(self.reconnect_state.event_loop.shared.id));
                let dropped = state.ends.push(completer);
                drop(state);
                drop(dropped);
                completion
            }
        }
    }

    /// Returns the loop that serves all connections of the client.
    pub fn event_loop(&self) -> &EventLoop {
        &self.reconnect_state.event_loop
    }
}

impl<M> Clone for ReconnectingChannel<M> {
    fn clone(&self) -> Self {
        ReconnectingChannel { reconnect_state: self.reconnect_state.clone() }
    }
}

impl<M> fmt::Debug for ReconnectingChannel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.reconnect_state.lock();
        let phase = match state.phase {
            ReconnectPhase::Between => "between",
            ReconnectPhase::Waiting(_) => "waiting",
            ReconnectPhase::Connecting(_) => "connecting",
            ReconnectPhase::Connected(..) => "connected",
            ReconnectPhase::Stopping => "stopping",
            ReconnectPhase::Ended(_) => "ended",
        };
        let calls = state.calls.clone();
        drop(state);
        let mut debug = f.debug_struct("ReconnectingChannel");
        if let Some(calls) = calls {
            debug.field("addresses", &calls.dialer.addresses());
        }
        debug.field("phase", &phase).finish()
    }
}
