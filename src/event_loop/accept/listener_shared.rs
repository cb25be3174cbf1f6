//! The state that the handle of a server shares with its listeners.
//!
//! Invariant: wherever a listener ends, the handle is notified, because dropping the listener's
//! [`ListenerGuard`] does so. Any thread reads. The loops of the listeners write.

use crate::{Error, Result, id::Key, sync::Completer};
use std::sync::{
    Arc, Mutex, OnceLock, PoisonError,
    atomic::{AtomicBool, Ordering},
};

/// The state that a server's handle shares with its listeners.
pub(crate) struct ServerShared {
    pub(crate) closed: Mutex<ServerClosed>,
}

pub(crate) enum ServerClosed {
    /// The number of listeners that have not ended, and the completers that wait for their end.
    Awaited(usize, Vec<Completer>),
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
        ServerShared { closed: Mutex::new(ServerClosed::Awaited(listeners, Vec::new())) }
    }

    /// Notes that a listener has ended. The last one ends the server with its result.
    fn listener_ended(&self, result: impl Fn() -> Result) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if let ServerClosed::Awaited(listeners @ 2.., _) = &mut *closed {
            *listeners -= 1;
            return;
        }
        let before = std::mem::replace(&mut *closed, ServerClosed::Done);
        drop(closed);
        if let ServerClosed::Awaited(_, waiting) = before {
            for completer in waiting {
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
