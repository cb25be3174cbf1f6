//! Upper bounds for the bytes that move under a rate limit.

use super::kit::{MS, Play, SECOND, now};
use netwheel::traffic::TrafficLimits;
use std::time::{Duration, Instant};

/// The rate and the burst of one direction.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    pub(super) rate: u64,
    pub(super) burst: usize,
}

impl Limit {
    /// Returns the bytes that may move at once, as `TrafficLimits` describes it.
    fn at_once(self) -> f64 {
        let burst = if self.burst == 0 { self.rate / 10 } else { self.burst as u64 };
        burst.max(self.rate / 100).max(1) as f64
    }
}

pub(super) fn limits(read: Limit, write: Limit) -> TrafficLimits {
    let limits = TrafficLimits::new().read(read.rate).write(write.rate);
    limits.read_burst(read.burst).write_burst(write.burst)
}

/// The bytes of one direction, and how many may have moved.
///
/// It counts the bytes moved between two samples, so a sample may be late but not early.
pub(super) struct Meter {
    /// The greatest rate and burst so far.
    limit: Limit,
    present: Limit,
    /// The first burst, and what later ones have added.
    all_bursts: f64,
    begun: Instant,
    last: Instant,
    total: u64,
    /// The bytes that may still move at `last`.
    credit: f64,
    /// The most credit, in bursts.
    bursts: f64,
    /// How long a loop may work with one reading of its clock.
    slack: Duration,
}

impl Meter {
    /// Creates a meter for one channel, before the first byte moves. A channel that a late timer
    /// resumes has the share that it has reserved and, in addition, a full bucket.
    pub(super) fn of_channel(limit: Limit, now: Instant, slack: Duration) -> Self {
        let burst = limit.at_once();
        Meter {
            limit,
            present: limit,
            all_bursts: burst,
            begun: now,
            last: now,
            total: 0,
            credit: burst,
            bursts: 2.0,
            slack,
        }
    }

    /// Creates a meter for a group. Each of its channels may have a reserved share, so bytes are
    /// counted from the beginning only.
    pub(super) fn of_group(limit: Limit, now: Instant, slack: Duration) -> Self {
        Meter { bursts: f64::INFINITY, ..Self::of_channel(limit, now, slack) }
    }

    /// Notes that the limit was changed. A greater burst may move the difference at once. What was
    /// reserved under the old limit may still move, so the greatest rate counts.
    pub(super) fn change(&mut self, limit: Limit) {
        let more = (limit.at_once() - self.present.at_once()).max(0.0);
        self.present = limit;
        let burst = self.limit.at_once().max(limit.at_once());
        self.limit = Limit { rate: self.limit.rate.max(limit.rate), burst: burst as usize };
        self.credit += more;
        self.all_bursts += more;
    }

    /// Notes that `total` bytes have moved since the beginning.
    ///
    /// # Errors
    /// If that is more than the limit allows, since the beginning or since an earlier sample.
    pub(super) fn moved(&mut self, total: u64, now: Instant) -> Result<(), String> {
        let (rate, burst) = (self.limit.rate as f64, self.limit.at_once());
        let slack = 2.0 + rate * self.slack.as_secs_f64();
        let since_begun = now.saturating_duration_since(self.begun).as_secs_f64();
        let time = now.saturating_duration_since(self.last).as_secs_f64();
        let bytes = total.saturating_sub(self.total) as f64;
        self.credit += rate * time - bytes;
        (self.total, self.last) = (total, self.last.max(now));
        if self.credit < -slack || total as f64 > self.all_bursts + rate * since_begun + slack {
            return Err(format!(
                "{total} bytes in {since_begun:.3} s, {:.0} too many: {:?}",
                -self.credit, self.limit
            ));
        }
        // What was within the slack is not counted again.
        self.credit = self.credit.clamp(0.0, self.bursts * burst);
        Ok(())
    }
}

/// How late the sample of a meter may be. A stalled loop moves bytes by an old clock reading.
fn slack(play: &Play) -> Duration {
    if play.is_strict() { 5 * MS } else { SECOND }
}

/// Both directions of a channel, or of a group of channels.
pub(super) struct Meters {
    play: Play,
    name: &'static str,
    pub(super) read: Meter,
    pub(super) write: Meter,
}

impl Meters {
    pub(super) fn of_channel(play: &Play, read: Limit, write: Limit) -> Self {
        let meter = |limit| Meter::of_channel(limit, now(), slack(play));
        Meters { play: play.clone(), name: "a channel", read: meter(read), write: meter(write) }
    }

    pub(super) fn of_group(play: &Play, read: Limit, write: Limit) -> Self {
        let meter = |limit| Meter::of_group(limit, now(), slack(play));
        Meters { play: play.clone(), name: "the group", read: meter(read), write: meter(write) }
    }

    pub(super) fn moved(&mut self, read: u64, written: u64, at: Instant) {
        for (meter, total, what) in [(&mut self.read, read, "read"), (&mut self.write, written, "written")] {
            if let Err(error) = meter.moved(total, at) {
                self.play.violation(format!("{} has {what} {error}", self.name));
            }
        }
    }
}
