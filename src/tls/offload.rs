//! `Handshake`: a step of a handshake on a worker pool.
//!
//! Session and input travel to the worker; the result waits for the loop in a slot that both share.
//!
//! Invariants: a step is wanted as long as the filter holds the slot. A panic ends the step, not
//! the worker. The loop never waits for the lock longer than the worker needs to store the result.

use super::session::Session;
use crate::{
    error::{Error, Result, caught},
    machine::Mutex,
    worker_pool::{Work, WorkerPool},
};
use std::sync::Arc;

/// The slot for the result of a step.
pub(super) struct Handshake(Arc<Mutex<Option<Result<HandshakeStep>>>>);

/// A step of a handshake: its input and, after `run`, its result.
pub(super) struct HandshakeStep {
    pub(super) session: Box<Session>,
    /// Input, decrypted in place.
    pub(super) input: Vec<u8>,
    pub(super) plain: Vec<u8>,
    pub(super) output: Vec<u8>,
    /// The number of consumed bytes.
    pub(super) consumed: Result<usize>,
}

impl HandshakeStep {
    fn new(session: Box<Session>, input: &[u8]) -> Self {
        HandshakeStep { session, input: input.into(), plain: Vec::new(), output: Vec::new(), consumed: Ok(0) }
    }

    fn run(mut self) -> Self {
        self.consumed = {
            let plain = &mut self.plain;
            self.session.read(&mut self.input, &mut |bytes| plain.extend_from_slice(bytes), &mut self.output)
        };
        self
    }
}

impl Handshake {
    /// Gives `session` and `input` to a worker, which calls `wake` when the result is in the slot.
    ///
    /// # Errors
    /// The session if the pool accepts no work.
    pub(super) fn submit(
        pool: &WorkerPool,
        session: Box<Session>,
        input: &[u8],
        wake: impl FnOnce() + Send + 'static,
    ) -> Result<Self, Box<Session>> {
        let slot = Arc::new(Mutex::new(None));
        let task = Task { step: HandshakeStep::new(session, input), slot: slot.clone(), wake };
        match pool.submit(task) {
            Ok(()) => Ok(Handshake(slot)),
            Err(refused) => Err(refused.into_inner().step.session),
        }
    }

    /// Takes the result, if it is there.
    pub(super) fn take(&self) -> Option<Result<HandshakeStep>> {
        self.0.lock().take()
    }
}

struct Task<W> {
    step: HandshakeStep,
    slot: Arc<Mutex<Option<Result<HandshakeStep>>>>,
    wake: W,
}

impl<W: FnOnce() + Send> Work for Task<W> {
    fn is_wanted(&self) -> bool {
        Arc::strong_count(&self.slot) > 1
    }

    fn run(self: Box<Self>) -> bool {
        let Task { step, slot, wake } = *self;
        let mut result = None;
        let panic = caught(|| result = Some(Ok(step.run())));
        let panicked = panic.is_some();
        let result = result.unwrap_or_else(|| Err(Error::panicked(panic.unwrap_or_default())));
        *slot.lock() = Some(result);
        // The channel may be gone; then its session ends here.
        drop(slot);
        wake();
        panicked
    }
}
