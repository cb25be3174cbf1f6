//! The state that the handle of a server shares with its listeners.
//!
//! Invariant: wherever a listener ends, the handle is notified, because dropping the listener's
//! [`ListenerGuard`] does so. Any thread reads. The loops of the listeners write.

use super::ListenerCommand;
use crate::{
    error::{Error, Result},
    event_loop::source_inbox::SourceInbox,
    sync::{Locked, Waiters},
};
use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

/// The state that a server's handle shares with its listeners.
pub(crate) struct ServerShared {
    pub(crate) closed: Locked<ServerClosed>,
}

pub(crate) enum ServerClosed {
    /// The number of listeners that have not ended, the result of the others, and the completers
    /// that wait for their end.
    Awaited(usize, Result, Waiters),
    Done(Result),
}

/// The state that a server's handle shares with the loop of one listener.
pub(crate) struct ListenerShared {
    pub(crate) inbox: Arc<SourceInbox<ListenerCommand>>,
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
        self.set_closed(Err(Error::ShutDown));
    }
}

impl ServerShared {
    /// Creates the state of a server with this number of listeners.
    pub(crate) fn new(listeners: usize) -> Self {
        let state = ServerClosed::Awaited(listeners, Err(Error::ShutDown), Waiters::default());
        ServerShared { closed: Locked::new(state) }
    }

    /// Notes that a listener has ended. The last one ends the server, with the first error of any.
    fn listener_ended(&self, ended: Result) {
        let done = self.closed.change(|closed| {
            let ServerClosed::Awaited(listeners, result, waiting) = closed else { return (None, None) };
            // The first failure counts. A listener whose loop has shut down before it began does
            // not make the end of the others a failure.
            let replaces = match (&*result, &ended) {
                (Err(Error::ShutDown), _) => true,
                (Ok(()), Err(error)) => !matches!(error, Error::ShutDown),
                _ => false,
            };
            if replaces {
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
        ListenerShared { inbox: SourceInbox::new(), ended: AtomicBool::new(false), server }
    }

    /// Notes that the listener has ended. Only the first call takes effect.
    pub(crate) fn set_closed(&self, result: Result) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.server.listener_ended(result);
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    /// Returns the result of a server whose listeners have ended with these results, in this order.
    fn result_of(ends: &[Result]) -> Result {
        let server = ServerShared::new(ends.len());
        ends.iter().for_each(|end| server.listener_ended(end.clone()));
        server.closed.change(|closed| match closed {
            ServerClosed::Done(result) => (result.clone(), ()),
            ServerClosed::Awaited(..) => panic!("all listeners have ended"),
        })
    }

    #[test]
    fn the_first_failure_is_the_result_and_a_shutdown_only_if_no_listener_began() {
        let (ok, shut_down) = (|| Ok(()), || Err(Error::ShutDown));
        let failed = |why: &'static str| Err(Error::other(why));
        assert!(result_of(&[ok(), ok()]).is_ok());
        assert!(result_of(&[shut_down(), ok()]).is_ok());
        assert!(result_of(&[ok(), shut_down()]).is_ok());
        assert!(matches!(result_of(&[shut_down(), shut_down()]), Err(Error::ShutDown)));
        for ends in [[ok(), failed("one"), failed("two")], [failed("one"), shut_down(), ok()]] {
            assert_eq!(result_of(&ends).unwrap_err().to_string(), "one");
        }
    }
}
