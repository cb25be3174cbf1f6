//! `Hop`: requests to another node without sockets.
//!
//! A request takes the latency of the link in each direction. While the link is cut, or the other
//! node has no power, it is sent again, as TCP does, until its time is over. A node that is stalled
//! answers later, and the kernel of a node whose program was killed refuses.

use super::{Machine, current, fault::Fault, threads::pause, world::retransmission};
use crate::{
    clock::{Clock, nanos},
    machine::failure::RouteError,
};
use std::time::{Duration, SystemTime};

/// The way from one node to another.
#[derive(Clone)]
pub(crate) struct Hop {
    machine: Machine,
    host: usize,
}

impl Hop {
    /// Returns the way from the calling thread's node to the node with this name.
    pub(crate) fn to(host: &str) -> Option<Self> {
        let machine = current()?;
        let host = machine.lock().nodes.iter().position(|node| node.name == host)?;
        Some(Hop { machine, host })
    }

    pub(crate) fn call<T>(&self, timeout: Duration, serve: impl FnOnce() -> T) -> Result<T, RouteError> {
        let here = self.machine.node();
        let deadline = self.now().saturating_add(nanos(timeout));
        if !self.travel(here, self.host, deadline) {
            return Err(RouteError::Lost);
        }
        let stalled_until = self.machine.lock().nodes[self.host].stalled_until;
        if stalled_until > self.now() {
            self.sleep_until(stalled_until.min(deadline));
            if stalled_until >= deadline {
                return Err(RouteError::Lost);
            }
        }
        let (is_up, has_power) = {
            let host = &self.machine.lock().nodes[self.host];
            (host.is_up, host.has_power)
        };
        if !has_power {
            // The power was lost while the request was on its way.
            self.sleep_until(deadline);
            return Err(RouteError::Lost);
        }
        let is_refused = is_up && self.machine.lock().fails(Fault::RequestRefused);
        let answer = (is_up && !is_refused).then(serve);
        let is_lost = answer.is_some() && self.machine.lock().fails(Fault::AnswerLost);
        if is_lost || !self.travel(self.host, here, deadline) {
            self.sleep_until(deadline);
            return Err(if answer.is_some() { RouteError::AnswerLost } else { RouteError::Lost });
        }
        answer.ok_or(if is_up { RouteError::Refused } else { RouteError::Unreachable })
    }

    /// Lets a message arrive. Returns `false` if it does not by the deadline.
    fn travel(&self, from: usize, to: usize, deadline: u64) -> bool {
        for attempt in 0.. {
            let delay = self.machine.lock().message_delay(from, to);
            let now = self.now();
            let next = now.saturating_add(delay.unwrap_or_else(|| retransmission(attempt)));
            // The sleep of a killed thread ends at once.
            let has_slept = self.sleep_until(next.min(deadline));
            if next > deadline || delay.is_some() || !has_slept {
                return next <= deadline && has_slept;
            }
        }
        false
    }

    fn now(&self) -> u64 {
        self.machine.lock().now()
    }

    /// Returns whether the time has come.
    fn sleep_until(&self, time: u64) -> bool {
        let left = time.saturating_sub(self.now());
        if left > 0 {
            pause(&self.machine, Duration::from_nanos(left));
        }
        self.now() >= time
    }

    pub(crate) fn wall_time(&self) -> SystemTime {
        super::clock::MachineClock::new(self.machine.shared().clone(), self.host).wall_time()
    }

    pub(crate) fn power_losses(&self) -> u64 {
        self.machine.lock().nodes[self.host].power_losses
    }

    pub(crate) fn seed(&self) -> u64 {
        self.machine.seed()
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.machine.lock().nodes[self.host].life.into()
    }
}
