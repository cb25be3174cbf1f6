//! When a ping is due, and when a peer is dead.
//!
//! Pure: time and traffic are arguments. [`Heartbeat`](super::Heartbeat) states the invariants.

use crate::{
    clock::nanos,
    pipeline::{Stage, StageContext},
};
use std::time::Duration;

/// The settings of a [`Pulse`], in nanoseconds.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PulseSettings {
    pub(crate) interval: u64,
    pub(crate) misses: u32,
    pub(crate) jitter: u64,
}

/// What is known of a peer's answers.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Pulse {
    /// The time of the last answer.
    alive: u64,
    /// The time of the last ping, and the number of pings since the last answer.
    pinged: u64,
    unanswered: u32,
    dead: bool,
}

/// The traffic of a channel at the time `now`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) now: u64,
    /// When bytes were last read, and when the kernel last took bytes.
    pub(crate) read: u64,
    pub(crate) written: u64,
    /// Whether written bytes are pending.
    pub(crate) is_blocked: bool,
    /// Whether the channel accepts pings: its output has not ended.
    pub(crate) takes_pings: bool,
    /// Whether every byte that was read counts as an answer.
    pub(crate) bytes_answer: bool,
    /// Whether the peer has ended its stream, so that it cannot answer.
    pub(crate) has_ended: bool,
    /// Whether a silent peer is pinged although bytes are sent to it.
    pub(crate) pings_silence: bool,
}

impl Traffic {
    /// Returns the traffic of a stage's channel.
    pub(crate) fn of<S: Stage>(ctx: &StageContext<'_, S>, bytes_answer: bool) -> Self {
        let now = nanos(ctx.now());
        Traffic {
            now,
            read: nanos(ctx.last_read()),
            // A traffic limit may hold output back although the peer would take it.
            written: if ctx.writing_was_held_up() { now } else { nanos(ctx.last_written()) },
            is_blocked: ctx.pending_bytes() > 0,
            takes_pings: ctx.takes_writes(),
            // The answers that count are not read during a pause, so unread bytes may be answers.
            bytes_answer: bytes_answer || !ctx.expects_input() || ctx.reading_was_held_up(),
            has_ended: ctx.has_all_input(),
            pings_silence: false,
        }
    }
}

/// What to do now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Beat {
    Wait,
    Ping,
    /// The peer has not responded for this long.
    Dead {
        after: Duration,
    },
}

impl Pulse {
    /// Starts at the time `now`. Returns the time of the first beat.
    pub(crate) fn start(&mut self, settings: &PulseSettings, now: u64) -> u64 {
        (self.alive, self.pinged) = (now, now);
        now.saturating_add(settings.interval)
    }

    /// Records an answer.
    pub(crate) fn answer(&mut self, now: u64) {
        self.alive = now;
        self.unanswered = 0;
    }

    /// Returns what to do now, and the time of the next beat.
    pub(crate) fn beat(&mut self, settings: &PulseSettings, traffic: Traffic) -> (Beat, u64) {
        let Traffic { now, read, written, is_blocked, takes_pings, .. } = traffic;
        let Traffic { bytes_answer, has_ended, pings_silence, .. } = traffic;
        let later = now.saturating_add(settings.interval);
        if has_ended && !is_blocked {
            self.answer(now);
        }
        if bytes_answer && read > self.alive {
            self.alive = read;
        }
        if self.alive >= self.pinged {
            self.unanswered = 0;
        }
        // The peer cannot answer a ping behind pending bytes. Instead, its kernel has to take
        // bytes. A peer that has ended its stream counted as alive up to an interval before that.
        let intervals = u64::from(settings.misses).saturating_add(1 + u64::from(has_ended));
        let patience = settings.interval.saturating_mul(intervals);
        let stirred = self.alive.max(read).max(written);
        if is_blocked {
            let is_stuck = now.saturating_sub(stirred) >= patience;
            if is_stuck && !self.dead {
                return (self.die(now, stirred), later);
            }
            // A busy peer that has recovered may not have been pinged since. One that takes bytes
            // and answers no ping has not recovered.
            self.dead = is_stuck || self.dead && self.unanswered > settings.misses;
        }
        let quiet_since = if pings_silence { written.min(self.alive) } else { written };
        let due = quiet_since.max(self.pinged).saturating_add(settings.interval);
        if now < due || is_blocked {
            // The pending bytes may be sent long before the patience ends.
            return (Beat::Wait, if is_blocked { later } else { due });
        }
        if self.unanswered > settings.misses {
            return (if self.dead { Beat::Wait } else { self.die(now, self.alive) }, later);
        }
        if !takes_pings {
            return (Beat::Wait, later);
        }
        self.dead = false;
        self.pinged = now;
        self.unanswered += 1;
        (Beat::Ping, later)
    }

    fn die(&mut self, now: u64, since: u64) -> Beat {
        self.dead = true;
        Beat::Dead { after: Duration::from_nanos(now.saturating_sub(since)) }
    }
}
