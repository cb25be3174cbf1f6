//! `SkewWatch`: reports a machine whose clock is wrong.

use crate::durable::metrics::Metrics;

/// The difference that is logged, in milliseconds.
const WRONG: u64 = 500;

/// Compares the clock of this machine with that of the store, once for each reading.
#[derive(Debug, Default)]
pub(super) struct SkewWatch {
    /// How often in a row the clock was wrong.
    times: u32,
}

impl SkewWatch {
    /// Takes by how many milliseconds this machine's clock is ahead. Logs a clock that is wrong,
    /// ever less often.
    pub(super) fn observe(&mut self, ahead: i64, metrics: &Metrics) {
        metrics.clock_skew.set(ahead.unsigned_abs());
        if ahead.unsigned_abs() < WRONG {
            if self.times > 0 {
                log::info!("the clock of this machine agrees with that of the timer store again");
            }
            self.times = 0;
            return;
        }
        self.times = self.times.saturating_add(1);
        if self.times.is_power_of_two() {
            log::warn!(
                "the clock of this machine is {} ms {} that of the timer store; timers follow the store",
                ahead.unsigned_abs(),
                if ahead > 0 { "ahead of" } else { "behind" }
            );
        }
    }
}
