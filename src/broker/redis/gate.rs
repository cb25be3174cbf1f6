//! `CheckGate`: lets operations pass once the server is known to be suitable.
//!
//! Invariants: operations pass in the order of their calls. One check runs at a time. Without a
//! verdict, operations wait for a check, and fail with its error.

use crate::{
    broker::{
        pending_limit::{MAX_PENDING_BYTES, PendingLimit, PendingPermit},
        store::BrokerError,
    },
    machine::{self, Mutex},
};
use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

/// The largest number of operations that wait for a check.
const MAX_WAITING: usize = 16_384;

/// How long operations are refused after a check has found an unsuitable server.
const REFUSAL_LIFE: Duration = Duration::from_secs(5);

type WaitingCall = Box<dyn FnOnce(Result<(), BrokerError>) + Send>;

pub(super) struct CheckGate {
    state: Mutex<CheckState>,
    limit: Arc<PendingLimit>,
}

#[derive(Default)]
struct CheckState {
    verdict: Option<Result<(), BrokerError>>,
    /// When a verdict that is an error ends, so that the server is checked again.
    expires: Option<Instant>,
    is_checking: bool,
    /// Whether operations that have waited pass, which new ones must not overtake.
    is_draining: bool,
    waiting: VecDeque<(WaitingCall, PendingPermit)>,
}

impl Default for CheckGate {
    fn default() -> Self {
        CheckGate { state: Mutex::default(), limit: PendingLimit::new(MAX_WAITING, MAX_PENDING_BYTES) }
    }
}

impl CheckGate {
    /// Calls `operation` now or after a check. Returns whether the caller has to begin the check.
    #[must_use]
    pub(super) fn pass(
        &self,
        weight: usize,
        operation: impl FnOnce(Result<(), BrokerError>) + Send + 'static,
    ) -> bool {
        let mut state = self.state.lock();
        let is_expired = state.expires.is_some_and(|expires| expires <= machine::now());
        let verdict = match &state.verdict {
            Some(verdict) if !state.is_draining && !is_expired => verdict.clone(),
            _ => {
                let Some(permit) = self.limit.take(weight) else {
                    drop(state);
                    operation(Err(BrokerError::Full("too many operations wait for a check".into())));
                    return false;
                };
                state.waiting.push_back((Box::new(operation), permit));
                let begins = !state.is_checking && !state.is_draining;
                state.is_checking |= begins;
                return begins;
            }
        };
        drop(state);
        operation(verdict);
        false
    }

    /// Begins a check. Returns `false` if one is running.
    pub(super) fn begin(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().is_checking, true)
    }

    /// Ends a check. A transient error fails the waiting operations, and the next operation begins
    /// another check.
    pub(super) fn finish(&self, result: Result<(), BrokerError>) {
        let mut state = self.state.lock();
        state.is_checking = false;
        if !result.as_ref().is_err_and(BrokerError::is_transient) {
            state.expires = result.is_err().then(|| machine::now() + REFUSAL_LIFE);
            state.verdict = Some(result.clone());
        }
        if std::mem::replace(&mut state.is_draining, true) {
            return;
        }
        while let Some((operation, permit)) = state.waiting.pop_front() {
            drop((state, permit));
            operation(result.clone());
            state = self.state.lock();
        }
        state.is_draining = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Passed(Arc<Mutex<Vec<(u32, bool)>>>);

    impl Passed {
        fn operation(&self, number: u32) -> impl FnOnce(Result<(), BrokerError>) + Send + 'static {
            let passed = self.0.clone();
            move |result| passed.lock().push((number, result.is_ok()))
        }

        fn take(&self) -> Vec<(u32, bool)> {
            std::mem::take(&mut self.0.lock())
        }
    }

    #[test]
    fn operations_wait_for_one_check_and_pass_in_order() {
        let (gate, passed) = (Arc::new(CheckGate::default()), Passed::default());
        assert!(gate.pass(0, passed.operation(1)), "the first one begins the check");
        let (inner, of_inner) = (gate.clone(), passed.operation(4));
        let nested = passed.operation(2);
        assert!(!gate.pass(0, move |result| {
            nested(result);
            assert!(!inner.pass(0, of_inner), "it waits behind the third one");
        }));
        assert!(!gate.pass(0, passed.operation(3)) && !gate.begin());
        assert_eq!(passed.take(), []);
        gate.finish(Ok(()));
        assert_eq!(passed.take(), [(1, true), (2, true), (3, true), (4, true)]);
        assert!(gate.begin() && !gate.pass(0, passed.operation(5)), "it passes during the second check");
        gate.finish(Err(BrokerError::Unreachable("".into())));
        assert!(!gate.pass(0, passed.operation(6)));
        gate.finish(Err(BrokerError::Unsuitable("".into())));
        assert!(!gate.pass(0, passed.operation(7)));
        assert_eq!(passed.take(), [(5, true), (6, true), (7, false)]);
    }

    #[test]
    fn an_unsuitable_server_is_checked_again_after_some_time() {
        let (gate, passed) = (CheckGate::default(), Passed::default());
        assert!(gate.begin());
        gate.finish(Err(BrokerError::Unsuitable("".into())));
        assert!(!gate.pass(0, passed.operation(1)));
        assert_eq!(passed.take(), [(1, false)]);
        gate.state.lock().expires = Some(machine::now());
        assert!(gate.pass(0, passed.operation(2)) && passed.take().is_empty(), "it begins a check");
        gate.finish(Ok(()));
        assert!(!gate.pass(0, passed.operation(3)));
        assert_eq!(passed.take(), [(2, true), (3, true)]);
    }

    #[test]
    fn an_unreachable_server_is_checked_again_with_the_next_operation() {
        let (gate, passed) = (CheckGate::default(), Passed::default());
        for number in 0..3 {
            assert!(gate.pass(0, passed.operation(number)));
            gate.finish(Err(BrokerError::Unreachable("".into())));
            assert_eq!(passed.take(), [(number, false)]);
        }
    }

    #[test]
    fn the_number_of_waiting_operations_is_limited() {
        let (gate, passed) = (CheckGate::default(), Passed::default());
        for number in 0..MAX_WAITING as u32 {
            let _ = gate.pass(0, passed.operation(number));
        }
        assert!(!gate.pass(0, passed.operation(u32::MAX)));
        assert_eq!(passed.take(), [(u32::MAX, false)]);
        gate.finish(Ok(()));
        assert_eq!(passed.take().len(), MAX_WAITING);
    }

    #[test]
    fn the_bytes_of_waiting_operations_are_limited() {
        let (gate, passed) = (CheckGate::default(), Passed::default());
        assert!(gate.pass(MAX_PENDING_BYTES, passed.operation(1)));
        assert!(!gate.pass(1, passed.operation(2)));
        assert_eq!(passed.take(), [(2, false)]);
        gate.finish(Ok(()));
        assert!(!gate.pass(1, passed.operation(3)));
        assert_eq!(passed.take(), [(1, true), (3, true)]);
    }
}
