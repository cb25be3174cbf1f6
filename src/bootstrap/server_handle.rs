//! The handle of a server that listens.
//!
//! Always holds: it owns no listener; those live on their loops, and go on when the last handle is dropped. Any thread
//! may use it.

use crate::{
    Completion, EventLoop, Result,
    event_loop::{ListenerCommand, ListenerMail, ListenerShared, LoopMail, ServerClosed, ServerShared},
    sync::completion_of_all,
};
use std::{
    fmt,
    net::SocketAddr,
    sync::{Arc, PoisonError},
};

/// A listening server; dropping the handle lets it run.
///
/// `A` says how it names where it listens: a [`SocketAddr`] for TCP, a `UnixAddress` for a Unix socket, an
/// [`Address`](crate::Address) for one that was bound to either.
#[derive(Clone)]
pub struct Server<A = SocketAddr> {
    address: A,
    shared: Arc<ServerShared>,
    listeners: Vec<(EventLoop, Arc<ListenerShared>)>,
}

impl<A> Server<A> {
    /// Of a server whose listeners are still to come.
    pub(super) fn new(address: A, shared: Arc<ServerShared>) -> Self {
        Server { address, shared, listeners: Vec::new() }
    }

    pub(super) fn add(&mut self, acceptor: EventLoop, listener: Arc<ListenerShared>) {
        self.listeners.push((acceptor, listener));
    }

    /// Where it listens.
    pub fn local_address(&self) -> A
    where
        A: Clone,
    {
        self.address.clone()
    }

    /// Accepts connections, or leaves them waiting in the listener's backlog; those that are there stay.
    ///
    /// # Errors
    /// If the acceptor's queue is full, or the acceptor is shut down. Of several acceptors the others are told.
    pub fn set_accepting(&self, on: bool) -> Result {
        let mut result = Ok(());
        for (acceptor, listener) in &self.listeners {
            let command = ListenerCommand::SetAccepting(on);
            let mail = Box::new(ListenerMail { listener: listener.clone(), command });
            result = result.and(acceptor.shared.submit(LoopMail::Source(mail), 0).map_err(Into::into));
        }
        result
    }

    /// Stops listening; connections that were accepted stay.
    pub fn close(&self) -> Completion {
        self.close_listeners();
        self.closed()
    }

    pub(super) fn close_listeners(&self) {
        for (acceptor, listener) in &self.listeners {
            // A full queue must not keep anybody from closing; a loop that has ended has closed its listeners.
            let mail = Box::new(ListenerMail { listener: listener.clone(), command: ListenerCommand::Close });
            let _ = acceptor.shared.submit_always(LoopMail::Source(mail));
        }
    }

    /// Completes when it no longer listens: closed, shut down with its loop, or failed. If each loop listens
    /// ([`ServerBootstrap::listener_per_loop`](crate::ServerBootstrap::listener_per_loop)), when the last one has ended.
    pub fn closed(&self) -> Completion {
        match &mut *self.shared.closed.lock().unwrap_or_else(PoisonError::into_inner) {
            ServerClosed::Done => Completion::ready(Ok(())),
            ServerClosed::Awaited(_, waiting) => {
                let acceptors = self.listeners.iter().map(|(acceptor, _)| acceptor.shared.id);
                let (completer, completion) = completion_of_all(acceptors.collect());
                waiting.push(completer);
                completion
            }
        }
    }
}

impl<A: fmt::Debug> fmt::Debug for Server<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acceptors: Vec<_> = self.listeners.iter().map(|(acceptor, _)| acceptor).collect();
        f.debug_struct("Server").field("address", &self.address).field("acceptors", &acceptors).finish()
    }
}
