//! The state that the handle of a server shares with its listeners.
//!
//! Invariant: wherever a listener ends, the handle is notified, because dropping the listener's
//! [`ListenerGuard`] does so. Any thread reads. The loops of the listeners write.

use crate::{
    Error, Result,
    id::Key,
    sync::{Locked, Waiters},
};
use std::sync::{
    Arc, OnceLock,
    atomic::{AtomicBool, Ordering},
};

/// The state that a server's handle shares with its listeners.
pub(crate) struct ServerShared {
    pub(crate) closed: Locked<ServerClosed>,
}

pub(crate) enum ServerClosed {
    /// The number of listeners that have not ended, and the completers that wait for their end.
    Awaited(usize, Waiters),
    Done,
}

/// The state that a server's handle shares with the loop of one listener.
pub(crate) struct ListenerShared {
    pub(crate) key: OnceLock<Key>,
    ended: AtomicBool,
    server: Arc<ServerShared>,
}

/// The listener's side of [`ListenerShared`]. Dropping it reports the end of the listener.
pub(crate) struct ListenerGuard(pub(crate) Arc<ListenerShared>);

impl std::ops::Deref for ListenerGuard {
    type Target = ListenerShared;

    fn deref(&self) -> &ListenerShared {
        &self.0
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.set_closed(|| Err(Error::ShutDown));
    }
}

impl ServerShared {
    /// Creates the state of a server with this number of listeners.
    pub(crate) fn new(listeners: usize) -> Self {
        ServerShared { closed: Locked::new(ServerClosed::Awaited(listeners, Waiters::default())) }
    }

    /// Notes that a listener has ended. The last one ends the server with its result.
    fn listener_ended(&self, result: impl Fn() -> Result) {
        let before = self.closed.change(|closed| {
            if let ServerClosed::Awaited(listeners @ 2.., _) = closed {
                *listeners -= 1;
                return (None, ());
            }
            (Some(std::mem::replace(closed, ServerClosed::Done)), ())
        });
        if let Some(ServerClosed::Awaited(_, mut waiting)) = before {
            for completer in waiting.take() {
                completer.complete(result());
            }
        }
    }
}

impl ListenerShared {
    pub(crate) fn new(server: Arc<ServerShared>) -> Self {
        ListenerShared { key: OnceLock::new(), ended: AtomicBool::new(false), server }
    }

    /// Notes that the listener has ended. Only the first call takes effect.
    pub(crate) fn set_closed(&self, result: impl Fn() -> Result) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.server.listener_ended(result);
        }
    }
}
