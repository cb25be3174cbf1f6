//! The requests whose responses have not arrived completely.

use crate::http::head::RequestKind;
use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
};

/// The requests of a connection whose responses have not arrived completely, oldest first.
///
/// The stage and the codec share it. The stage adds a request when it has been written. The codec
/// needs it to find the end of the response, and removes it there.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    requests: RefCell<VecDeque<Written>>,
    /// The length of the input that the codec has seen.
    arrived: Cell<u64>,
    /// Whether the server has ended its stream and all of it was decoded, so no response follows.
    has_ended: Cell<bool>,
    /// Whether bytes have arrived that belong to no request. Whatever follows cannot be trusted.
    is_spoiled: Cell<bool>,
}

/// What decides how a response is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct OutstandingRequest {
    pub(super) kind: RequestKind,
    /// Whether the request asks for another protocol, so that 101 may answer it.
    pub(super) upgrades: bool,
}

/// A request that was written.
#[derive(Debug, Clone, Copy)]
struct Written {
    request: OutstandingRequest,
    /// The length of the input that had arrived before. The response begins behind it.
    arrived_before: u64,
    /// The length of the output that was written before.
    written_before: u64,
}

impl Outstanding {
    pub(super) fn len(&self) -> usize {
        self.requests.borrow().len()
    }

    /// Adds a request that was written behind this number of bytes.
    pub(super) fn push(&self, request: OutstandingRequest, written_before: u64) {
        let arrived_before = self.arrived.get();
        self.requests.borrow_mut().push_back(Written { request, arrived_before, written_before });
    }

    /// Returns where the oldest request ends in the output, if another one follows it.
    pub(super) fn end_of_oldest(&self) -> Option<u64> {
        self.requests.borrow().get(1).map(|next| next.written_before)
    }

    /// Returns the oldest request, if the input from `start` on can answer it. Bytes that had
    /// arrived before the request was written cannot.
    pub(super) fn front_from(&self, start: u64) -> Option<OutstandingRequest> {
        let requests = self.requests.borrow();
        requests.front().filter(|written| written.arrived_before <= start).map(|written| written.request)
    }

    /// Records how many bytes of input the codec has seen.
    pub(super) fn set_arrived(&self, length: u64) {
        self.arrived.set(length);
    }

    pub(super) fn pop(&self) {
        self.requests.borrow_mut().pop_front();
    }

    pub(super) fn spoil(&self) {
        self.is_spoiled.set(true);
    }

    pub(super) fn end(&self) {
        self.has_ended.set(true);
    }

    pub(super) fn has_ended(&self) -> bool {
        self.has_ended.get()
    }

    pub(super) fn is_spoiled(&self) -> bool {
        self.is_spoiled.get()
    }
}
