//! The number of open connections, for the drain.

use crate::Event;
use bytes::Bytes;
use netwheel::Channel;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
    mpsc::Sender,
};

/// Counts clients from the end of their handshake until their connection has closed.
pub(crate) struct Connections {
    open: AtomicUsize,
    accepted: AtomicUsize,
    draining: AtomicBool,
    events: Sender<Event>,
}

impl Connections {
    pub(crate) fn new(events: Sender<Event>) -> Self {
        Connections {
            open: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
            draining: AtomicBool::new(false),
            events,
        }
    }

    /// Counts a client until it has closed.
    pub(crate) fn add(self: &Arc<Self>, client: &Channel<Bytes>) {
        self.open.fetch_add(1, Ordering::SeqCst);
        self.accepted.fetch_add(1, Ordering::Relaxed);
        let me = self.clone();
        client.closed().on_complete(move |_| {
            if me.open.fetch_sub(1, Ordering::SeqCst) == 1 && me.draining.load(Ordering::SeqCst) {
                // Fails if the main thread no longer waits.
                let _ = me.events.send(Event::Drained);
            }
        });
    }

    pub(crate) fn open(&self) -> usize {
        self.open.load(Ordering::SeqCst)
    }

    /// Returns the number of clients since the start.
    pub(crate) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Sends [`Event::Drained`] when the last client closes. Returns the number of open clients; if
    /// it is zero, the event may not be sent.
    pub(crate) fn drain(&self) -> usize {
        // Before the count is read: the last client is then seen here or sends the event.
        self.draining.store(true, Ordering::SeqCst);
        self.open()
    }
}
