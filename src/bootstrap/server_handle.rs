//! The handle of a listening server.
//!
//! Invariant: the handle does not own a listener. Listeners live on their loops and continue when
//! the last handle is dropped. Any thread may use the handle.

use crate::{
    error::Result,
    event_loop::{EventLoop, ListenerCommand, ListenerShared, ServerClosed, ServerShared},
    sync::{Completion, completion_of_all},
};
use std::{fmt, net::SocketAddr, sync::Arc};

/// A handle to a listening server. The server continues when the handle is dropped.
///
/// `A` is the type of its address: [`SocketAddr`] for TCP, `UnixAddress` for a Unix socket, and
/// [`Address`](crate::net::Address) for a server that was bound to an address of either kind.
#[derive(Clone)]
pub struct Server<A = SocketAddr> {
    address: A,
    shared: Arc<ServerShared>,
    listeners: Vec<(EventLoop, Arc<ListenerShared>)>,
}

impl<A> Server<A> {
    /// Returns a handle without listeners; `add` adds them.
    pub(super) fn new(address: A, shared: Arc<ServerShared>) -> Self {
        Server { address, shared, listeners: Vec::new() }
    }

    pub(super) fn add(&mut self, acceptor: EventLoop, listener: Arc<ListenerShared>) {
        self.listeners.push((acceptor, listener));
    }

    /// Returns the address that the server is bound to.
    pub fn local_address(&self) -> A
    where
        A: Clone,
    {
        self.address.clone()
    }

    /// Starts or stops accepting connections. While it is off, new connections wait in the
    /// listener's backlog. Established connections are not affected.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if the queue of an acceptor's loop is full, or
    /// [`Error::ShutDown`](crate::Error::ShutDown) if that loop is shut down. The other acceptors
    /// of the server are changed all the same.
    pub fn set_accepting(&self, on: bool) -> Result {
        let mut result = Ok(());
        for (acceptor, listener) in &self.listeners {
            let command = ListenerCommand::SetAccepting(on);
            result = result.and(listener.inbox.submit(&acceptor.shared, command).map_err(Into::into));
        }
        result
    }

    /// Stops listening. Accepted connections stay open.
    pub fn close(&self) -> Completion {
        self.close_listeners();
        self.closed()
    }

    pub(super) fn close_listeners(&self) {
        for (acceptor, listener) in &self.listeners {
            // A full queue must not prevent closing. A loop that has ended has closed its
            // listeners.
            let _ = listener.inbox.submit_always(&acceptor.shared, ListenerCommand::Close);
        }
    }

    /// Completes when the server no longer listens: it was closed, was shut down with its loop, or
    /// failed. With [`listener_per_loop`](crate::ServerBootstrap::listener_per_loop) this is when
    /// the last listener has closed, and the result is the first failure of any.
    ///
    /// Each call returns the same result, also after the end.
    pub fn closed(&self) -> Completion {
        self.shared.closed.change(|closed| match closed {
            ServerClosed::Done(result) => (Completion::ready(result.clone()), None),
            ServerClosed::Awaited(_, _, waiting) => {
                let acceptors = self.listeners.iter().map(|(acceptor, _)| acceptor.shared.id);
                let (completer, completion) = completion_of_all(acceptors.collect());
                (completion, Some(waiting.push(completer)))
            }
        })
    }
}

impl<A: fmt::Debug> fmt::Debug for Server<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acceptors: Vec<_> = self.listeners.iter().map(|(acceptor, _)| acceptor).collect();
        f.debug_struct("Server").field("address", &self.address).field("acceptors", &acceptors).finish()
    }
}
