//! Work that occupies the processor, as the hash of a password does.

use std::{
    hint::black_box,
    time::{Duration, Instant},
};

/// Rounds that are measured at once.
const SAMPLE: u64 = 20_000;
/// Measurements, of which the shortest counts, because the others were interrupted.
const SAMPLES: usize = 200;

/// A fixed amount of work. It takes longer if the thread has to share its processor.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CpuWork {
    rounds: u64,
}

impl CpuWork {
    /// No work.
    pub(crate) const NONE: CpuWork = CpuWork { rounds: 0 };

    /// Returns the amount of work that takes this time on a processor that is not shared. Measures
    /// the processor, which takes a few milliseconds.
    pub(crate) fn taking(time: Duration) -> Self {
        if time.is_zero() {
            return CpuWork::NONE;
        }
        let sample = CpuWork { rounds: SAMPLE };
        let measure = |_| {
            let began = Instant::now();
            sample.run();
            began.elapsed()
        };
        let shortest = (0..SAMPLES).map(measure).min().unwrap_or_default().max(Duration::from_nanos(1));
        CpuWork { rounds: (SAMPLE as f64 * time.as_secs_f64() / shortest.as_secs_f64()) as u64 }
    }

    /// Does the work on the calling thread.
    pub(crate) fn run(self) {
        let mut state = 1_u64;
        for round in 0..self.rounds {
            // Each round depends on the one before, so the compiler can neither omit nor vectorise.
            state = black_box((state ^ round).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31));
        }
    }
}
