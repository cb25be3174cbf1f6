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
    requests: RefCell<VecDeque<OutstandingRequest>>,
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

impl Outstanding {
    pub(super) fn len(&self) -> usize {
        self.requests.borrow().len()
    }

    pub(super) fn push(&self, request: OutstandingRequest) {
        self.requests.borrow_mut().push_back(request);
    }

    pub(super) fn front(&self) -> Option<OutstandingRequest> {
        self.requests.borrow().front().copied()
    }

    pub(super) fn pop(&self) {
        self.requests.borrow_mut().pop_front();
    }

    pub(super) fn spoil(&self) {
        self.is_spoiled.set(true);
    }

    pub(super) fn is_spoiled(&self) -> bool {
        self.is_spoiled.get()
    }
}
