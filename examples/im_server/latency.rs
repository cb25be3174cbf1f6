//! Samples of the time from a message to its last copy in a member's buffer.
//!
//! Bounded, and nothing is measured while no dashboard is open. The completion of a broadcast takes
//! the sample, on the loop of the last member.

use crate::hub::lock;
use netwheel::{channel::Broadcast, time::Clock};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

/// Maximum number of samples between two events of the dashboard.
const MAX_SAMPLES: usize = 1000;

pub(crate) struct Latency {
    clock: Arc<dyn Clock>,
    is_wanted: AtomicBool,
    samples: Arc<Mutex<Vec<Duration>>>,
}

impl Latency {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Latency { clock, is_wanted: AtomicBool::default(), samples: Arc::default() }
    }

    /// Returns the time at which a message was received, if it is to be measured.
    pub(crate) fn begin(&self) -> Option<Instant> {
        let is_wanted = self.is_wanted.load(Ordering::Relaxed) && lock(&self.samples).len() < MAX_SAMPLES;
        is_wanted.then(|| self.clock.now())
    }

    /// Adds a sample when the broadcast has ended.
    pub(crate) fn end(&self, begin: Option<Instant>, broadcast: Broadcast) {
        let Some(begin) = begin else { return };
        let (samples, clock) = (self.samples.clone(), self.clock.clone());
        broadcast.report().on_complete(move |_| {
            let mut samples = lock(&samples);
            if samples.len() < MAX_SAMPLES {
                samples.push(clock.now().saturating_duration_since(begin));
            }
        });
    }

    /// Takes the samples, and sets whether to collect more.
    pub(crate) fn take(&self, is_wanted: bool) -> Vec<Duration> {
        self.is_wanted.store(is_wanted, Ordering::Relaxed);
        std::mem::take(&mut *lock(&self.samples))
    }
}
