//! The calls of UDP sockets in scripts.

use super::{
    backend::Side,
    bench::{Bench, Id, Socket},
    streams::name_of,
};
use crate::transport::{UdpOptions, UdpSocket};
use std::net::SocketAddr;

impl Bench {
    /// Opens a UDP socket. Notes an error.
    pub(super) fn bind_at(
        &mut self,
        name: &'static str,
        side: Side,
        address: SocketAddr,
        options: &UdpOptions,
    ) -> Option<Id> {
        let opened = {
            let _entered = self.backend.enter(side);
            UdpSocket::bind(address, options)
        };
        match opened {
            Ok(socket) => Some(self.watch(name, Socket::Datagrams(socket))),
            Err(e) => {
                self.note(format!("{name}.bind = {}", name_of(&e)));
                None
            }
        }
    }

    /// Opens a UDP socket on a free port. Its first event is forgotten.
    pub(super) fn bind(&mut self, name: &'static str, side: Side) -> Id {
        let address = SocketAddr::new(self.ip(side), 0);
        let id = self.bind_at(name, side, address, &UdpOptions::new()).expect("the socket opens");
        self.settle();
        self.forget_seen(id);
        id
    }

    pub(super) fn datagrams(&self, id: Id) -> &UdpSocket {
        match &self.slots[id.0].socket {
            Some(Socket::Datagrams(socket)) => socket,
            _ => panic!("an open UDP socket"),
        }
    }

    pub(super) fn send(&mut self, id: Id, bytes: &[u8], to: Option<SocketAddr>) {
        let result = self.datagrams(id).send(bytes, to);
        self.note_call(id, &format!("send({})", bytes.len()), &result);
    }

    /// Receives a datagram if there is one. Notes its length and first byte. Returns the sender.
    pub(super) fn receive(&mut self, id: Id, room: usize) -> Option<SocketAddr> {
        let mut buffer = vec![0; room];
        let received = self.datagrams(id).receive(&mut buffer);
        let sender = received.as_ref().ok().map(|(_, sender)| *sender);
        let text = received.map(|(n, _)| format!("{n} bytes {:?}", buffer[..n].first()));
        self.note_call(id, &format!("receive({room})"), &text);
        sender
    }

    pub(super) fn connect_datagrams(&mut self, id: Id, peer: SocketAddr) {
        let result = self.datagrams(id).connect(peer);
        let text = result.map_or_else(|e| name_of(&e), |()| "done".to_owned());
        self.note_call(id, "connect", &Ok(text));
    }

    pub(super) fn disconnect(&mut self, id: Id) {
        let result = self.datagrams(id).disconnect();
        let text = result.map_or_else(|e| name_of(&e), |()| "done".to_owned());
        self.note_call(id, "disconnect", &Ok(text));
    }
}
