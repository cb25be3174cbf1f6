//! `Port`: how a handle reaches the engine and the store.
//!
//! It holds neither the engine nor the handlers, so a handler may keep a handle.

use super::{
    engine::{EngineInbox, Permit},
    metrics::Metrics,
    request::{StoreReply, StoreRequest, refuse},
    store::Starter,
    timer_clock::TimerClock,
};
use crate::{
    error::Result,
    event_loop::EventLoop,
    sync::{Completer, Completion, Permits, Sender, completion, completion_of_all},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::SystemTime,
};

/// What all handles of a program's timers share.
pub(super) struct Port {
    pub(super) inbox: Arc<EngineInbox>,
    pub(super) requests: Sender<StoreRequest>,
    pub(super) clock: Arc<TimerClock>,
    /// The loop that runs the engine and the handlers.
    pub(super) event_loop: EventLoop,
    /// The number of the store's thread.
    pub(super) store_thread: u32,
    pub(super) metrics: Arc<Metrics>,
    pub(super) topics: Vec<String>,
    /// The topics of the store that the program does not have.
    pub(super) unknown: Vec<String>,
    /// The permits of each topic's runs.
    pub(super) runs: Vec<Arc<Permits>>,
    pub(super) permits: Arc<Permits>,
    pub(super) max_payload: usize,
    /// Whether the program has closed the timers, so that nothing is started any more.
    pub(super) is_closing: AtomicBool,
    /// How many milliseconds before their time timers are in memory.
    pub(super) near: i64,
    /// How connections of the program start timers.
    pub(super) starter: Option<Starter>,
}

impl Port {
    /// Passes a request to the store's thread. Returns it if that has ended, and a start already
    /// after a close was asked for.
    #[allow(clippy::result_large_err, reason = "the sender returns what it could not send")]
    pub(super) fn request(&self, request: StoreRequest) -> Result<(), StoreRequest> {
        let is_start = matches!(
            request,
            StoreRequest::StartMany(_) | StoreRequest::Change { reply: StoreReply::Start { .. }, .. }
        );
        if is_start && self.is_closing.load(Ordering::Acquire) {
            return Err(request);
        }
        self.requests.send(request)
    }

    /// Passes a request to the store's thread. If that has ended, the request fails with
    /// [`Error::ShutDown`](crate::error::Error::ShutDown).
    pub(super) fn send(&self, request: StoreRequest) {
        if let Err(request) = self.request(request) {
            refuse([request]);
        }
    }

    /// Returns the present time by the clock by which timers are due.
    pub(super) fn wall_time(&self) -> SystemTime {
        self.clock.wall_time()
    }

    pub(super) fn permit(&self) -> Result<Permit> {
        Permit::take(&self.permits)
    }

    /// Begins an operation of the store's thread. Without a permit, returns a completion that has
    /// failed.
    pub(super) fn begin<T>(&self) -> Result<(Completer<T>, Permit, Completion<T>), Completion<T>> {
        Self::with_permit(self.permit(), self.stored())
    }

    /// Begins an operation of the loop and of the store's thread, like [`begin`](Port::begin).
    pub(super) fn begin_on_loop<T>(&self) -> Result<(Completer<T>, Permit, Completion<T>), Completion<T>> {
        Self::with_permit(self.permit(), self.run_and_stored())
    }

    fn with_permit<T>(
        permit: Result<Permit>,
        (completer, done): (Completer<T>, Completion<T>),
    ) -> Result<(Completer<T>, Permit, Completion<T>), Completion<T>> {
        match permit {
            Ok(permit) => Ok((completer, permit, done)),
            Err(error) => {
                completer.complete(Err(error));
                Err(done)
            }
        }
    }

    /// Returns both sides of an operation of the store's thread.
    pub(super) fn stored<T>(&self) -> (Completer<T>, Completion<T>) {
        completion(Some(self.store_thread))
    }

    /// Returns both sides of an operation of the loop and of the store's thread.
    pub(super) fn run_and_stored<T>(&self) -> (Completer<T>, Completion<T>) {
        completion_of_all(Box::new([self.event_loop.shared.id, self.store_thread]))
    }
}
