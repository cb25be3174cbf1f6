//! The calls of listeners in scripts.

use super::{
    backend::{BUFFER, Side},
    bench::{Bench, Id, Socket},
    streams::options,
};
use crate::{
    channel::driver::Ready,
    transport::{Address, Listener, ListenerOptions, Stream},
};
use std::{io, net::SocketAddr};

impl Bench {
    /// Opens the listeners of one address. Notes an error.
    pub(super) fn listen_at(
        &mut self,
        name: &'static str,
        address: SocketAddr,
        options: &ListenerOptions,
        listeners: usize,
    ) -> Vec<Id> {
        let opened = {
            let _entered = self.backend.enter(Side::Server);
            Listener::listen_all(&Address::Tcp(address), options, listeners)
        };
        match opened {
            Ok(opened) => {
                self.note(format!("{name}.listen = {}", opened.len()));
                opened.into_iter().map(|listener| self.watch(name, Socket::Listener(listener))).collect()
            }
            Err(e) => {
                self.note(format!("{name}.listen = {}", super::bench::error_name(&e)));
                Vec::new()
            }
        }
    }

    /// Opens a listener on a free port.
    pub(super) fn listen(&mut self) -> Id {
        self.listen_with(ListenerOptions::new())
    }

    pub(super) fn listen_with(&mut self, options: ListenerOptions) -> Id {
        let address = SocketAddr::new(self.ip(Side::Server), 0);
        self.listen_at("listener", address, &options.receive_buffer(BUFFER), 1)[0]
    }

    pub(super) fn accept_once(&mut self, listener: Id) -> io::Result<(Stream, Option<SocketAddr>)> {
        match &self.slots[listener.0].socket {
            Some(Socket::Listener(listener)) => {
                let (stream, peer) = listener.accept()?;
                stream.apply(&options())?;
                Ok((stream, peer))
            }
            _ => panic!("an open listener"),
        }
    }

    /// Accepts a connection if there is one, and notes the result. Returns its peer's address too.
    pub(super) fn try_accept(&mut self, listener: Id) -> Option<(Id, SocketAddr)> {
        let accepted = self.accept_once(listener);
        let result = accepted.as_ref().map(|_| "a connection").map_err(clone);
        self.note_call(listener, "accept", &result);
        let (stream, peer) = accepted.ok()?;
        let id = self.watch("server", Socket::Stream(stream));
        Some((id, peer.expect("a TCP peer has an address")))
    }

    /// Waits for a connection.
    pub(super) fn accept(&mut self, listener: Id) -> Id {
        let mut accepted = None;
        self.until("a connection", |bench| {
            accepted = bench.accept_once(listener).ok();
            accepted.is_some()
        });
        let (stream, _) = accepted.expect("a connection");
        self.watch("server", Socket::Stream(stream))
    }

    /// Waits until a listener has a connection.
    pub(super) fn wait_for_connection(&mut self, listener: Id) {
        self.wait_for(listener, Ready::READABLE);
    }
}

fn clone(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}
