//! A token bucket: the number of bytes that may move now, and the time at which more may move.
//!
//! A bucket is one number: the time at which it would be full. A reservation moves that time on, so
//! each later one gets a later time. The channels of a group take turns that way, without a list of
//! them. Shares become smaller with the number of channels that wait.
//!
//! Invariants: in any time `t`, at most `rate * t + burst` bytes are given out. Waiting channels
//! are served in the order in which they reserved. Unused bytes are returned. Pure: time is an
//! argument, in nanoseconds since any origin. It may stand still or step back a little.

const SECOND: u128 = 1_000_000_000;

/// The shortest burst, and the shortest wait that is worth a timer: 10 ms, as a fraction of a
/// second.
const SHORTEST: u64 = 100;

/// The longest wait for one share if no other channel waits, as a fraction of a second: 100 ms.
const LONGEST: u64 = 10;

/// The smallest share with many waiting channels, so that each system call moves enough bytes.
const LEAST_SHARE: u64 = 1024;

#[derive(Debug)]
pub(super) struct Bucket {
    /// Bytes per second; greater than 0.
    rate: u64,
    /// The time that it takes to fill the bucket.
    burst: u64,
    /// The bytes that a waiting channel reserves at once.
    share: u64,
    /// The time at which the bucket will be full if nothing more is taken. The later, the emptier
    /// the bucket. If it is later than `burst` from now, bytes are reserved in advance.
    full_at: u64,
}

/// Reserved bytes, and the time at which they may move.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Booking {
    pub(super) bytes: usize,
    pub(super) at: u64,
}

impl Bucket {
    /// Returns a full bucket, with its rate in bytes per second and its burst in bytes. `None` if
    /// there is no limit. A burst of 0 is replaced by the bytes of 100 ms; bursts below the bytes
    /// of 10 ms are raised to that.
    pub(super) fn new(rate: u64, burst: usize) -> Option<Self> {
        if rate == 0 {
            return None;
        }
        let shortest = (rate / SHORTEST).max(1);
        let burst = if burst == 0 { rate / LONGEST } else { burst as u64 }.max(shortest);
        let share = (burst / 2).min(rate / LONGEST).max(shortest);
        Some(Bucket { rate, burst: time_of(burst, rate), share, full_at: 0 })
    }

    /// Returns the bucket with other settings. Reserved bytes are carried over. An empty bucket
    /// stays empty, but does not owe more than the new burst: otherwise a lower rate would pay for
    /// the old burst with a long pause. `None` if there is no limit any more.
    pub(super) fn changed(&self, rate: u64, burst: usize, now: u64) -> Option<Self> {
        let mut changed = Self::new(rate, burst)?;
        let missing = self.full_at.saturating_sub(now);
        let reserved = time_of(bytes_in(missing.saturating_sub(self.burst), self.rate), rate);
        let taken = time_of(bytes_in(missing.min(self.burst), self.rate), rate).min(changed.burst);
        changed.full_at = now.saturating_add(taken).saturating_add(reserved);
        Some(changed)
    }

    /// Takes up to `want` bytes and returns their number.
    pub(super) fn take(&mut self, want: usize, now: u64) -> usize {
        let full_at = self.full_at.max(now);
        let there = bytes_in(now.saturating_add(self.burst).saturating_sub(full_at), self.rate);
        let taken = there.min(want as u64);
        self.full_at = full_at.saturating_add(time_of(taken, self.rate));
        taken as usize
    }

    /// Reserves a share in advance. `waiting` is the number of channels that wait already.
    pub(super) fn book(&mut self, waiting: u64, now: u64) -> Booking {
        let bytes = self.share(waiting);
        self.full_at = self.full_at.max(now).saturating_add(time_of(bytes, self.rate));
        Booking { bytes: bytes as usize, at: self.full_at.saturating_sub(self.burst).max(now) }
    }

    /// Returns the bytes that one channel may take at once. The share shrinks with the number of
    /// waiting channels, so that each of them gets a turn soon.
    pub(super) fn share(&self, waiting: u64) -> u64 {
        (self.share / (waiting + 1)).max(LEAST_SHARE.min(self.share))
    }

    /// Returns bytes that were taken or reserved and have not moved.
    pub(super) fn give_back(&mut self, bytes: usize) {
        self.full_at = self.full_at.saturating_sub(time_of(bytes as u64, self.rate));
    }
}

/// Returns the time for `bytes`, rounded up.
fn time_of(bytes: u64, rate: u64) -> u64 {
    u64::try_from((u128::from(bytes) * SECOND).div_ceil(u128::from(rate))).unwrap_or(u64::MAX)
}

/// Returns the bytes of `time`.
fn bytes_in(time: u64, rate: u64) -> u64 {
    u64::try_from(u128::from(time) * u128::from(rate) / SECOND).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn a_full_bucket_gives_its_burst_and_then_its_rate() {
        let mut bucket = Bucket::new(1000, 500).unwrap();
        assert_eq!(bucket.take(400, 0), 400);
        assert_eq!(bucket.take(400, 0), 100);
        assert_eq!(bucket.take(400, 0), 0);
        assert_eq!(bucket.take(400, 100 * MS), 100);
        assert_eq!(bucket.take(usize::MAX, 100_000 * MS), 500, "no more than the burst after any idle time");
        bucket.give_back(200);
        assert_eq!(bucket.take(usize::MAX, 100_000 * MS), 200);
    }

    #[test]
    fn waiting_channels_are_served_in_order() {
        let mut bucket = Bucket::new(10_000, 2_000).unwrap();
        assert_eq!(bucket.take(usize::MAX, 0), 2_000);
        let first = bucket.book(0, 0);
        assert_eq!(first, Booking { bytes: 1_000, at: 100 * MS });
        let second = bucket.book(1, 0);
        assert_eq!(second, Booking { bytes: 1_000, at: 200 * MS }, "no share is smaller than the least one");
        assert_eq!(bucket.take(1, 150 * MS), 0, "new bytes are reserved");
        assert_eq!(bucket.take(1, 199 * MS), 0);
        assert_eq!(bucket.take(usize::MAX, 210 * MS), 100);
    }

    #[test]
    fn shares_shrink_with_the_number_of_waiting_channels() {
        let mut bucket = Bucket::new(1_000_000, 0).unwrap();
        bucket.take(usize::MAX, 0);
        let bookings: Vec<_> = (0..100).map(|waiting| bucket.book(waiting, 0)).collect();
        assert_eq!(bookings[0], Booking { bytes: 50_000, at: 50 * MS });
        assert_eq!(bookings[1], Booking { bytes: 25_000, at: 75 * MS });
        assert!(bookings.windows(2).all(|two| two[0].at < two[1].at && two[0].bytes >= two[1].bytes));
        assert!(bookings[99].at < 1_000 * MS, "the last of a hundred waits {} ns", bookings[99].at);
        assert!(bookings[99].bytes >= LEAST_SHARE as usize);
    }

    #[test]
    fn a_wait_is_10_to_100_ms_or_one_byte_long() {
        for (rate, burst, wait) in [
            (1_000_000, 0, 50 * MS),
            (1_000_000, 1, 10 * MS),
            (1_000_000, 1_000_000, 100 * MS),
            (20, 0, 50 * MS),
            (1, 0, 1_000 * MS),
            (u64::MAX, 0, 50 * MS),
        ] {
            let mut bucket = Bucket::new(rate, burst).unwrap();
            while bucket.take(usize::MAX, 0) > 0 {}
            let at = bucket.book(0, 0).at;
            assert!(at.abs_diff(wait) <= 1, "{rate} bytes a second, {burst} at once: {at}");
        }
    }

    #[test]
    fn a_change_keeps_the_debt() {
        let mut bucket = Bucket::new(1_000, 1_000).unwrap();
        bucket.take(1_000, 0);
        bucket.book(0, 0);
        let mut changed = bucket.changed(10_000, 1_000, 0).unwrap();
        assert_eq!(changed.take(1, 9 * MS), 0, "100 bytes are owed");
        assert_eq!(changed.take(usize::MAX, 20 * MS), 100);
        assert!(bucket.changed(0, 0, 0).is_none());
        assert!(Bucket::new(0, 1).is_none());
    }

    #[test]
    fn a_lower_rate_does_not_pay_for_the_old_burst() {
        let mut bucket = Bucket::new(10_000_000, 1_000_000).unwrap();
        assert_eq!(bucket.take(usize::MAX, 0), 1_000_000);
        let mut changed = bucket.changed(10_000, 1_000, 0).unwrap();
        assert_eq!(changed.take(usize::MAX, 0), 0, "an empty bucket stays empty");
        assert_eq!(changed.take(usize::MAX, 50 * MS), 500);
    }

    #[derive(Debug, Clone)]
    enum Step {
        Take(usize),
        Book,
        /// Returns a part of the bytes that were taken last.
        GiveBack(u8),
        Wait(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0usize..100_000).prop_map(Step::Take),
            Just(Step::Book),
            any::<u8>().prop_map(Step::GiveBack),
            (0u64..200 * MS).prop_map(Step::Wait),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn moved_bytes_never_exceed_rate_and_burst(
            rate in 1u64..10_000_000,
            burst in 0usize..1_000_000,
            steps in prop::collection::vec(step(), 0..100),
        ) {
            let mut bucket = Bucket::new(rate, burst).unwrap();
            // The most that a bucket with its own burst holds; rounding loses up to one
            // nanosecond's worth.
            let burst = u128::from(bytes_in(bucket.burst, rate)) + 1;
            let (mut now, mut moved, mut last) = (0u64, 0u128, 0usize);
            // Reservations whose time has not come.
            let mut booked: Vec<Booking> = Vec::new();
            for step in steps {
                match step {
                    Step::Take(want) => {
                        last = bucket.take(want, now);
                        prop_assert!(last <= want);
                        moved += last as u128;
                    }
                    Step::Book => booked.push(bucket.book(booked.len() as u64, now)),
                    Step::GiveBack(part) => {
                        let part = last * usize::from(part) / 255;
                        bucket.give_back(part);
                        moved -= part as u128;
                        last -= part;
                    }
                    Step::Wait(time) => now += time,
                }
                booked.retain(|booking| {
                    if booking.at <= now {
                        moved += booking.bytes as u128;
                    }
                    booking.at > now
                });
                let may = burst + u128::from(now) * u128::from(rate) / SECOND;
                prop_assert!(moved <= may, "{moved} bytes moved of {may} by {now}");
            }
        }
    }
}
