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
    /// The number of listeners that have not ended, the first error of the others, and the
    /// completers that wait for their end.
    Awaited(usize, Result, Waiters),
    Done(Result),
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
        ServerShared { closed: Locked::new(ServerClosed::Awaited(listeners, Ok(()), Waiters::default())) }
    }

    /// Notes that a listener has ended. The last one ends the server, with the first error of any.
    fn listener_ended(&self, result: impl Fn() -> Result) {
        let ended = result();
        let done = self.closed.change(|closed| {
            let ServerClosed::Awaited(listeners, result, waiting) = closed else { return (None, None) };
            if result.is_ok() {
                *result = ended;
            }
            *listeners = listeners.saturating_sub(1);
            if *listeners > 0 {
                return (None, None);
            }
            let (result, waiting) = (result.clone(), waiting.take());
            let before = std::mem::replace(closed, ServerClosed::Done(result.clone()));
            (Some((result, waiting)), Some(before))
        });
        if let Some((result, waiting)) = done {
            for completer in waiting {
                completer.complete(result.clone());
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
