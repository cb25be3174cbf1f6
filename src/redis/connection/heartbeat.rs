//! When a connection is checked, and when it is dead.
//!
//! Invariants: a `PING` is sent only after the server has sent nothing for the interval. The
//! connection is dead if the server sends nothing within the timeout after that. Any byte counts,
//! so a long reply that arrives slowly keeps its connection. Pure; times are in nanoseconds.

/// The state of the heartbeat of one connection.
#[derive(Debug)]
pub(super) struct HeartbeatClock {
    interval: u64,
    timeout: u64,
    /// When a `PING` was sent that nothing has followed.
    sent: Option<u64>,
}

/// The next step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeartbeatStep {
    /// Looks again at this time.
    WaitUntil(u64),
    /// Sends a `PING`, and looks again at this time.
    PingAndWaitUntil(u64),
    Dead,
}

impl HeartbeatClock {
    pub(super) fn new(interval: u64, timeout: u64) -> Self {
        HeartbeatClock { interval, timeout, sent: None }
    }

    /// Looks at the connection, which has received the last bytes at `last_read`.
    pub(super) fn beat(&mut self, now: u64, last_read: u64) -> HeartbeatStep {
        self.sent = self.sent.filter(|sent| last_read <= *sent);
        if let Some(sent) = self.sent {
            let dead_at = sent.saturating_add(self.timeout);
            return if now >= dead_at { HeartbeatStep::Dead } else { HeartbeatStep::WaitUntil(dead_at) };
        }
        let quiet_at = last_read.saturating_add(self.interval);
        if now < quiet_at {
            return HeartbeatStep::WaitUntil(quiet_at);
        }
        self.sent = Some(now);
        HeartbeatStep::PingAndWaitUntil(now.saturating_add(self.timeout))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quiet_server_is_pinged_and_a_silent_one_is_dead() {
        let mut heartbeat = HeartbeatClock::new(50, 20);
        assert_eq!(heartbeat.beat(10, 0), HeartbeatStep::WaitUntil(50));
        assert_eq!(heartbeat.beat(50, 0), HeartbeatStep::PingAndWaitUntil(70));
        assert_eq!(heartbeat.beat(60, 0), HeartbeatStep::WaitUntil(70), "one PING");
        assert_eq!(heartbeat.beat(70, 55), HeartbeatStep::WaitUntil(105), "answered at 55");
        assert_eq!(heartbeat.beat(105, 55), HeartbeatStep::PingAndWaitUntil(125));
        assert_eq!(
            heartbeat.beat(124, 105),
            HeartbeatStep::WaitUntil(125),
            "bytes before the PING do not count"
        );
        assert_eq!(heartbeat.beat(125, 105), HeartbeatStep::Dead);
    }

    #[test]
    fn a_busy_connection_is_not_pinged() {
        let mut heartbeat = HeartbeatClock::new(50, 20);
        for now in 0..1000 {
            assert_eq!(heartbeat.beat(now, now), HeartbeatStep::WaitUntil(now + 50));
        }
    }
}
