//! A histogram of durations that one thread writes and any thread reads.
//!
//! Invariants: recording takes a few plain loads and stores, without locked instructions or
//! allocations. A value is counted in exactly one bucket. Counts never decrease. Each power of two
//! from about a microsecond to about a minute is divided into four equal buckets (log-linear, like
//! HdrHistogram). So the bounds of a bucket differ by at most a quarter. The loop's thread records.
//! Readers take copies ([`Histogram`]), which are plain values. The histogram does not read a
//! clock.

use super::counter::Counter;
use std::{fmt, time::Duration};

/// Each power of two is divided into `1 << SUB_BITS` buckets.
const SUB_BITS: u32 = 2;

/// The first bucket ends at 1.024 µs. Shorter times are not distinguished.
const FIRST_BITS: u32 = 10;

/// The last bucket starts at 68.7 s. Longer times are not distinguished.
const LAST_BITS: u32 = 36;

/// The number of buckets, including the first and the last.
pub(crate) const BUCKETS: usize = (((LAST_BITS - FIRST_BITS) << SUB_BITS) + 2) as usize;

/// The histogram into which a loop records.
#[derive(Debug)]
pub(crate) struct Recorder {
    counts: [Counter; BUCKETS],
    sum: Counter,
    max: Counter,
}

impl Default for Recorder {
    fn default() -> Self {
        Recorder {
            counts: std::array::from_fn(|_| Counter::default()),
            sum: Counter::default(),
            max: Counter::default(),
        }
    }
}

impl Recorder {
    /// Records a value in nanoseconds. Called only on the loop's thread.
    #[inline]
    pub(crate) fn record(&self, ns: u64) {
        self.sum.add(ns);
        if ns > self.max.read() {
            self.max.set(ns);
        }
        self.counts[index(ns)].add(1);
    }

    /// Returns a copy. Callable from any thread. Values recorded concurrently may be missing.
    pub(crate) fn snapshot(&self) -> Histogram {
        Histogram {
            counts: std::array::from_fn(|index| self.counts[index].read()),
            sum: self.sum.read(),
            max: self.max.read(),
        }
    }
}

/// Returns the bucket of a value: the first one whose upper bound is not below it.
#[inline]
fn index(ns: u64) -> usize {
    // Subtract one, so that an upper bound belongs to the bucket that it ends.
    let below = ns.saturating_sub(1);
    if below >> FIRST_BITS == 0 {
        return 0;
    }
    let bits = below.ilog2();
    if bits >= LAST_BITS {
        return BUCKETS - 1;
    }
    let sub = (below >> (bits - SUB_BITS)) & ((1 << SUB_BITS) - 1);
    (1 + ((bits - FIRST_BITS) << SUB_BITS)) as usize + sub as usize
}

/// Returns the largest value of a bucket, in nanoseconds.
fn upper_bound(index: usize) -> u64 {
    if index == 0 {
        return 1 << FIRST_BITS;
    }
    if index >= BUCKETS - 1 {
        return u64::MAX;
    }
    let (octave, sub) = ((index - 1) >> SUB_BITS, (index - 1) & ((1 << SUB_BITS) - 1));
    ((1 << SUB_BITS) + sub as u64 + 1) << (FIRST_BITS - SUB_BITS + octave as u32)
}

/// A snapshot of a loop's histogram of durations.
///
/// Times from 1.024 µs to 68.7 s have a relative error of at most a quarter. Shorter times share
/// one bucket, and so do longer ones. A histogram counts from the start of the loop. To measure an
/// interval, take a snapshot at both ends and call [`since`](Histogram::since).
///
/// ```
/// use netwheel::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let before = group.next().metrics();
/// group.next().schedule(Duration::from_millis(1), || ())?.completion().wait()?;
/// let lag = group.next().metrics().lag.since(&before.lag);
/// println!("{} tasks ran, 99 % of them at most {:?} late", lag.count(), lag.quantile(0.99));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Histogram {
    counts: [u64; BUCKETS],
    sum: u64,
    max: u64,
}

impl Histogram {
    /// Returns the number of recorded values.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Returns the exact sum of all values.
    pub fn sum(&self) -> Duration {
        Duration::from_nanos(self.sum)
    }

    /// Returns the exact mean, or zero if nothing was recorded.
    pub fn mean(&self) -> Duration {
        Duration::from_nanos(self.sum.checked_div(self.count()).unwrap_or(0))
    }

    /// Returns the exact maximum, or zero if nothing was recorded.
    ///
    /// For the result of [`since`](Histogram::since), this is the upper bound of the last bucket
    /// that grew, unless all values of the loop are smaller.
    pub fn max(&self) -> Duration {
        Duration::from_nanos(self.max)
    }

    /// Returns the `q`-quantile: 0.5 is the median, and 0.99 the 99th percentile.
    ///
    /// The result is never below the true value, and less than a quarter above it. If the true
    /// value is below 1.024 µs, the result is at most 1.024 µs. If it is above 68.7 s, the result
    /// is [`max`](Histogram::max). Returns zero if nothing was recorded. `q` is clamped to the
    /// range from 0 to 1.
    pub fn quantile(&self, q: f64) -> Duration {
        let count = self.count();
        // NaN becomes 0 in the cast.
        let rank = ((q.clamp(0.0, 1.0) * count as f64).ceil() as u64).clamp(1, count.max(1));
        let mut seen = 0;
        for (index, n) in self.counts.iter().enumerate() {
            seen += n;
            if seen >= rank {
                return Duration::from_nanos(upper_bound(index).min(self.max));
            }
        }
        Duration::ZERO
    }

    /// Returns all buckets in order, including empty ones, as upper bounds and counts. Counts are
    /// not cumulative. The last bound is [`Duration::MAX`].
    pub fn buckets(&self) -> impl Iterator<Item = (Duration, u64)> + '_ {
        self.counts.iter().enumerate().map(|(index, n)| {
            let bound = upper_bound(index);
            (if bound == u64::MAX { Duration::MAX } else { Duration::from_nanos(bound) }, *n)
        })
    }

    /// Adds the values of another histogram, for example of another loop.
    pub fn merge(&mut self, other: &Histogram) {
        for (n, more) in self.counts.iter_mut().zip(&other.counts) {
            *n += more;
        }
        self.sum = self.sum.wrapping_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the values recorded since `earlier`, a snapshot of the same histogram.
    #[must_use]
    pub fn since(&self, earlier: &Histogram) -> Histogram {
        let counts: [u64; BUCKETS] =
            std::array::from_fn(|index| self.counts[index].saturating_sub(earlier.counts[index]));
        let last = counts.iter().rposition(|n| *n > 0);
        let max = last.map_or(0, |index| upper_bound(index).min(self.max));
        Histogram { counts, sum: self.sum.wrapping_sub(earlier.sum), max }
    }
}

impl Default for Histogram {
    fn default() -> Self {
        Histogram { counts: [0; BUCKETS], sum: 0, max: 0 }
    }
}

impl fmt::Debug for Histogram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Histogram")
            .field("count", &self.count())
            .field("mean", &self.mean())
            .field("p50", &self.quantile(0.5))
            .field("p99", &self.quantile(0.99))
            .field("max", &self.max())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn recorded(values: &[u64]) -> Histogram {
        let recorder = Recorder::default();
        values.iter().for_each(|ns| recorder.record(*ns));
        recorder.snapshot()
    }

    #[test]
    fn buckets_are_contiguous_and_at_most_a_quarter_apart() {
        for bucket in 0..BUCKETS - 1 {
            let bound = upper_bound(bucket);
            assert_eq!(index(bound), bucket);
            assert_eq!(index(bound + 1), bucket + 1);
            let next = upper_bound(bucket + 1);
            assert!(next == u64::MAX || next - bound <= bound / 4, "{bound} to {next}");
        }
        assert_eq!((index(0), index(u64::MAX)), (0, BUCKETS - 1));
        assert_eq!(upper_bound(BUCKETS - 2), 1 << LAST_BITS);
    }

    #[test]
    fn an_empty_histogram_returns_zeros() {
        let empty = Histogram::default();
        assert_eq!(empty, Recorder::default().snapshot());
        let zero = Duration::ZERO;
        assert_eq!((empty.count(), empty.sum(), empty.mean(), empty.max()), (0, zero, zero, zero));
        assert_eq!((empty.quantile(0.0), empty.quantile(1.0)), (zero, zero));
    }

    #[test]
    fn a_quantile_outside_0_to_1_is_clamped() {
        let histogram = recorded(&[2_000, 1_000_000]);
        for (q, end) in [(-1.0, 0.0), (f64::NEG_INFINITY, 0.0), (f64::NAN, 0.0), (7.0, 1.0)] {
            assert_eq!(histogram.quantile(q), histogram.quantile(end), "{q}");
        }
        assert_eq!(histogram.quantile(1.0), Duration::from_millis(1), "not above the largest");
    }

    #[test]
    fn extreme_values_are_counted() {
        let histogram = recorded(&[0, u64::MAX]);
        assert_eq!(histogram.count(), 2);
        assert_eq!(histogram.max(), Duration::from_nanos(u64::MAX));
        assert_eq!(histogram.buckets().last(), Some((Duration::MAX, 1)));
    }

    /// Durations of all magnitudes, up to hours.
    fn times() -> impl Strategy<Value = Vec<u64>> {
        prop::collection::vec((0u32..44, any::<u64>()).prop_map(|(bits, n)| n % (1 << bits)), 0..200)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn a_histogram_agrees_with_a_sorted_list(mut values in times(), q in 0.0..=1.0f64) {
            let histogram = recorded(&values);
            values.sort_unstable();
            let sum: u64 = values.iter().sum();
            prop_assert_eq!(histogram.count(), values.len() as u64);
            prop_assert_eq!(histogram.sum(), Duration::from_nanos(sum));
            prop_assert_eq!(histogram.max(), Duration::from_nanos(values.last().copied().unwrap_or(0)));
            prop_assert_eq!(histogram.buckets().map(|(_, n)| n).sum::<u64>(), values.len() as u64);
            let mut counted = 0;
            for (bound, n) in histogram.buckets() {
                counted += n;
                let at_most = values.iter().filter(|ns| Duration::from_nanos(**ns) <= bound).count();
                prop_assert_eq!(counted, at_most as u64);
            }
            if !values.is_empty() {
                let rank = ((q * values.len() as f64).ceil() as usize).max(1);
                let (exact, estimate) = (values[rank - 1], histogram.quantile(q).as_nanos() as u64);
                prop_assert!(estimate >= exact);
                if exact <= 1 << FIRST_BITS {
                    prop_assert!(estimate <= 1 << FIRST_BITS);
                } else if exact <= 1 << LAST_BITS {
                    prop_assert!(estimate - exact < exact.div_ceil(4), "{} is reported as {}", exact, estimate);
                } else {
                    prop_assert_eq!(estimate, values[values.len() - 1]);
                }
            }
        }

        #[test]
        fn merge_and_since_undo_each_other(first in times(), then in times()) {
            let recorder = Recorder::default();
            first.iter().for_each(|ns| recorder.record(*ns));
            let before = recorder.snapshot();
            then.iter().for_each(|ns| recorder.record(*ns));
            let after = recorder.snapshot();

            let mut both = recorded(&first);
            both.merge(&recorded(&then));
            prop_assert_eq!(&both, &after);
            let interval = after.since(&before);
            prop_assert!(interval.buckets().eq(recorded(&then).buckets()));
            prop_assert_eq!(interval.sum(), recorded(&then).sum());
            prop_assert!(interval.max() >= recorded(&then).max() && interval.max() <= after.max());
            prop_assert_eq!(after.since(&after), Histogram::default());
        }
    }
}
