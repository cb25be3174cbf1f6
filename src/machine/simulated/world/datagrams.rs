//! The state of a UDP socket.

use crate::machine::simulated::ReadyEvent;
use std::{collections::VecDeque, io, net::SocketAddr};

#[derive(Default)]
pub(super) struct Datagrams {
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
    pub(super) source: usize,
}

impl Datagrams {
    pub(super) fn readiness(&self, event: &mut ReadyEvent) {
        event.readable = !self.input.is_empty() || self.error.is_some();
        event.writable = true;
        event.error = self.error.is_some();
    }
}
