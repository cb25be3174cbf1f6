//! The state of a UDP socket.

use crate::machine::simulated::{ids::SocketId, run::ReadyEvent};
use std::{collections::VecDeque, io, net::SocketAddr};

pub(super) struct Datagrams {
    /// The local address before the socket was connected.
    pub(super) bound: SocketAddr,
    pub(super) input: VecDeque<(SocketAddr, Vec<u8>)>,
    pub(super) bytes: usize,
    pub(super) peer: Option<SocketAddr>,
    pub(super) error: Option<io::ErrorKind>,
}

/// A datagram under way.
#[derive(Clone)]
pub(super) struct Flight {
    pub(super) sender: SocketAddr,
    pub(super) to_node: usize,
    pub(super) to: SocketAddr,
    pub(super) bytes: Vec<u8>,
    pub(super) source: SocketId,
}

impl Datagrams {
    pub(super) fn new(bound: SocketAddr) -> Self {
        Datagrams { bound, input: VecDeque::new(), bytes: 0, peer: None, error: None }
    }

    pub(super) fn readiness(&self, event: &mut ReadyEvent) {
        event.readable = !self.input.is_empty();
        event.writable = true;
        event.error = self.error.is_some();
    }
}
