//! The requests whose responses have not arrived completely.

use crate::http::head::RequestKind;
use std::{cell::RefCell, collections::VecDeque};

/// The requests of a connection whose responses have not arrived completely, oldest first.
///
/// The stage and the codec share it: the stage adds a request when it has been written, and the
/// codec needs its method to find the end of the response.
#[derive(Debug, Default)]
pub(super) struct Outstanding {
    kinds: RefCell<VecDeque<RequestKind>>,
}

impl Outstanding {
    pub(super) fn len(&self) -> usize {
        self.kinds.borrow().len()
    }

    pub(super) fn push(&self, kind: RequestKind) {
        self.kinds.borrow_mut().push_back(kind);
    }

    pub(super) fn front(&self) -> Option<RequestKind> {
        self.kinds.borrow().front().copied()
    }

    pub(super) fn pop(&self) {
        self.kinds.borrow_mut().pop_front();
    }
}
