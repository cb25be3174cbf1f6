//! A model of one reconnecting client, which checks its events.

use super::super::support::{MS, SECOND, Violations};
use netwheel::{
    reconnect::{Backoff, ReconnectEvent},
    testing::simulation::sometimes,
};
use std::time::Duration;

const INITIAL: Duration = Duration::from_millis(100);
const CAP: Duration = Duration::from_secs(4);
const RESET_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Before the first attempt, and between two.
    Between,
    Connecting,
    Connected,
    GaveUp,
    Ended,
}

pub(super) struct Watch {
    name: String,
    violations: Violations,
    max_attempts: Option<u32>,
    phase: Phase,
    /// The number of the last attempt since the last stable connection.
    attempt: u32,
    /// The delays since the last stable connection.
    delays: u32,
    /// The last delay, until its attempt begins.
    delay: Duration,
    /// The sum of all delays that have passed.
    pub(super) waited: Duration,
    /// Whether the loop is being shut down, so that the client may give up at once.
    pub(super) is_shutting_down: bool,
    /// Open channels, as the handlers count them.
    channels: u32,
}

/// Returns the settings that the model assumes.
pub(super) fn backoff(jitter: bool, max_attempts: Option<u32>) -> Backoff {
    let backoff = Backoff::new().initial(INITIAL).max_delay(CAP).reset_after(RESET_AFTER).jitter(jitter);
    match max_attempts {
        Some(attempts) => backoff.max_attempts(attempts),
        None => backoff,
    }
}

impl Watch {
    pub(super) fn new(name: String, violations: Violations, max_attempts: Option<u32>) -> Self {
        Watch {
            name,
            violations,
            max_attempts,
            phase: Phase::Between,
            attempt: 0,
            delays: 0,
            delay: Duration::ZERO,
            waited: Duration::ZERO,
            is_shutting_down: false,
            channels: 0,
        }
    }

    fn must(&self, holds: bool, what: &str) {
        self.violations.unless(holds, || format!("{}: {what}, in {:?}", self.name, self.phase));
    }

    pub(super) fn is_connected(&self) -> bool {
        self.phase == Phase::Connected
    }

    /// Checks an event of the client.
    pub(super) fn observe<M>(&mut self, event: &ReconnectEvent<'_, M>) {
        match event {
            ReconnectEvent::Connecting { attempt, .. } => {
                self.must(self.phase == Phase::Between, "an attempt");
                self.must(*attempt == self.attempt + 1, "the number of an attempt");
                self.waited += std::mem::take(&mut self.delay);
                (self.phase, self.attempt) = (Phase::Connecting, *attempt);
            }
            ReconnectEvent::Connected { attempt, .. } => {
                self.must(self.phase == Phase::Connecting && *attempt == self.attempt, "a connection");
                self.phase = Phase::Connected;
            }
            ReconnectEvent::Failed { attempt, next, .. } => {
                self.must(self.phase == Phase::Connecting && *attempt == self.attempt, "a failure");
                sometimes("attempt failed");
                self.next(*next);
            }
            ReconnectEvent::Lost { held, next } => {
                self.must(self.phase == Phase::Connected, "a loss");
                sometimes("connection lost");
                if *held >= RESET_AFTER {
                    sometimes("count reset");
                    (self.attempt, self.delays) = (0, 0);
                }
                self.next(*next);
            }
            other => self.violations.add(format!("an unknown event: {other:?}")),
        }
    }

    /// Checks the delay before the next attempt.
    fn next(&mut self, delay: Option<Duration>) {
        self.phase = Phase::Between;
        let is_exhausted = self.max_attempts.is_some_and(|most| self.attempt >= most);
        let Some(delay) = delay else {
            self.must(is_exhausted || self.is_shutting_down, "gives up");
            if is_exhausted {
                sometimes("gave up");
            }
            self.phase = Phase::GaveUp;
            return;
        };
        self.must(!is_exhausted, "goes on after its last attempt");
        let longest = INITIAL.saturating_mul(1 << self.delays.min(20)).min(CAP);
        // The bound is computed with floating point numbers there.
        self.must(delay <= longest + MS / 1000, "a delay that is too long");
        self.delays += 1;
        self.delay = delay;
    }

    /// Counts a channel whose handler has become active.
    pub(super) fn opened(&mut self) {
        self.channels += 1;
        self.must(self.channels == 1, "two channels");
        self.must(self.phase != Phase::Ended, "a channel after the end");
    }

    pub(super) fn closed(&mut self) {
        self.channels -= 1;
    }

    pub(super) fn has_channel(&self) -> bool {
        self.channels > 0
    }

    /// Checks that nothing is left of a client that has ended.
    pub(super) fn ended(&mut self) {
        self.must(self.phase != Phase::Ended, "the second end");
        self.must(self.channels == 0, "an open channel after the end");
        self.phase = Phase::Ended;
    }
}

/// Longer than a client needs to end amid faults.
pub(super) const LONGEST_END: Duration = SECOND.saturating_mul(60);
