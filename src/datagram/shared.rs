//! The state that the handles of a datagram channel share with its loop.
//!
//! Invariant: `closed` completes however the channel ends, because dropping the loop's
//! [`DatagramGuard`] completes it. Any thread reads. The channel's loop writes.

use super::queue;
use crate::{
    event_loop::LoopShared,
    sync::{Locked, Waiters},
};
use bytes::Bytes;
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// The state that the handles of a channel share with its loop.
pub(crate) struct DatagramShared {
    pub(super) event_loop: Arc<LoopShared>,
    pub(super) local_address: SocketAddr,
    pub(super) max_outbound: usize,
    pub(super) open: AtomicBool,
    /// The weight of the datagrams that wait for the kernel.
    pub(super) pending: AtomicUsize,
    /// The weight of the datagrams in the loop's queue.
    pub(super) queued: AtomicUsize,
    pub(super) closed: Locked<Option<Waiters>>,
}

/// The loop's side of [`DatagramShared`]. Dropping it completes `closed`.
pub(crate) struct DatagramGuard(pub(crate) Arc<DatagramShared>);

impl Drop for DatagramGuard {
    fn drop(&mut self) {
        self.0.set_closed();
    }
}

impl DatagramShared {
    pub(crate) fn new(event_loop: Arc<LoopShared>, local_address: SocketAddr, max_outbound: usize) -> Self {
        DatagramShared {
            event_loop,
            local_address,
            max_outbound,
            open: AtomicBool::new(true),
            pending: AtomicUsize::new(0),
            queued: AtomicUsize::new(0),
            closed: Locked::new(Some(Waiters::default())),
        }
    }

    pub(super) fn set_pending(&self, weight: usize) {
        self.pending.store(weight, Ordering::Relaxed);
    }

    /// Notes that a datagram has left the loop's queue.
    pub(super) fn dequeued(&self, datagram: &Bytes) {
        self.queued.fetch_sub(queue::weight(datagram), Ordering::Relaxed);
    }

    pub(super) fn set_closing(&self) {
        self.open.store(false, Ordering::Release);
    }

    /// Notes that the socket is closed, and completes `closed`.
    pub(super) fn set_closed(&self) {
        self.set_closing();
        let waiting = self.closed.change(|closed| (closed.take(), ()));
        for completer in waiting.into_iter().flat_map(|mut waiting| waiting.take()) {
            completer.complete(Ok(()));
        }
    }
}
