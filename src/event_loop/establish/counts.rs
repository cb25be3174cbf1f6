//! The counters of handshakes.
//!
//! They are counted here, and not in the tally of a turn, which each turn adds up.

use crate::{error::Error, metrics::Metrics};

pub(super) fn count_established(metrics: &Metrics) {
    metrics.handshakes.add(1);
}

pub(super) fn count_failed(metrics: &Metrics, error: &Error) {
    metrics.handshakes_failed.add(1);
    if matches!(error, Error::TimedOut { .. }) {
        metrics.handshakes_timed_out.add(1);
    }
}
