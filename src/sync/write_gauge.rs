//! The pending weight of one channel's output, and whether its producers may continue.
//!
//! A producer on any thread reserves the weight of a message *before* it queues the message. The
//! loop takes the message with its reservation, and publishes the weight of its buffer instead. A
//! message that is not queued after all releases its reservation. So the weight of the gauge is
//! never above the sum of all pending weights: reservations, queued messages and the buffer, plus
//! the slack. Nothing is added behind the loop's back for a message that it has sent already.
//!
//! Weight and state share one word, so each change of the weight updates the state in the same
//! atomic step. Wakeups are not lost: a paused channel has a reservation, a queued message or
//! pending bytes. Processing these, or the release of the reservation, makes the loop check the
//! gauge again.
//!
//! The loop need not publish every change. While no producer is paused, the gauge may lag behind
//! the buffer by the slack, so that a small write and its flush do not touch it.
//!
//! Invariants: only [`WriteGauge::reserve`] and [`WriteGauge::update`] make the channel unwritable.
//! Only `update`, on the loop, makes it writable again. So the loop sees every pause that a
//! producer has seen, and can notify the waiters.

use super::primitives::{AtomicUsize, Ordering};
use crate::buffer::WaterMark;

/// The word's lowest bit: the channel is not writable.
const PAUSED: usize = 1;

/// The second bit: a producer has seen the pause.
const SEEN: usize = 2;

/// The third bit: the loop was requested to check the gauge, and has not done so yet.
const CHECK: usize = 4;

/// The bits below the weight.
const STATE: usize = PAUSED | SEEN | CHECK;

/// The number of these bits.
const STATE_BITS: u32 = STATE.count_ones();

/// The gauge may lag behind the buffer by this fraction of the high mark. Handles see the channel
/// unwritable earlier by the same amount.
const SLACK: usize = 16;

/// High marks below which the gauge is exact.
const EXACT_BELOW: usize = 16 * 1024;

/// Weight and writability of one channel's output.
#[derive(Debug)]
pub(crate) struct WriteGauge {
    word: AtomicUsize,
    /// The part of the weight that stands for the buffer and for messages that the loop has taken.
    /// Written on the loop only.
    known: AtomicUsize,
    /// Above this weight a reservation pauses the producers.
    high: usize,
    /// The high mark of the channel.
    mark: usize,
    /// The largest difference between buffer and gauge that is not published.
    slack: usize,
    /// Below this value of the word, a buffer within three quarters of the marks cannot reach them.
    calm: usize,
}

/// The weight of a message that is to be queued.
#[derive(Debug, Clone, Copy)]
pub(crate) enum MessageWeight {
    Known(usize),
    /// Unknown, but not less than this. Until the loop knows the size, the message fills the gauge
    /// up to its high mark, so producers pause after it.
    AtLeast(usize),
}

/// The weight that was reserved for a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ReservedWeight {
    pub(crate) weight: u32,
    /// The message must be accepted: the channel was writable, or the producer had a permit.
    pub(crate) admitted: bool,
}

const fn weight_of(word: usize) -> usize {
    word >> STATE_BITS
}

const fn word_of(weight: usize, state: usize) -> usize {
    weight << STATE_BITS | state
}

const fn is_paused(word: usize) -> bool {
    word & PAUSED != 0
}

impl WriteGauge {
    /// Creates the gauge of a channel with this water mark.
    pub(crate) fn new(mark: WaterMark) -> Self {
        let high = mark.high();
        let slack = if high < EXACT_BELOW { 0 } else { high / SLACK };
        WriteGauge {
            word: AtomicUsize::new(0),
            known: AtomicUsize::new(0),
            high: high - slack,
            mark: high,
            slack,
            calm: word_of((high / 8).min(usize::MAX >> STATE_BITS), 0),
        }
    }

    /// Sets the initial state, before producers use the gauge.
    pub(crate) fn begin(&self, weight: usize, writable: bool) {
        self.known.store(weight, Ordering::Relaxed);
        self.word.store(word_of(weight, if writable { 0 } else { PAUSED | SEEN }), Ordering::Release);
    }

    // ---- producers ------------------------------------------------------------------------------

    /// Returns whether producers may continue. The loop will see the end of a pause reported here.
    #[inline]
    pub(crate) fn is_writable(&self) -> bool {
        let word = self.word.load(Ordering::Acquire);
        !is_paused(word) || word & SEEN == 0 && !self.see_pause()
    }

    /// Records that a producer has seen the pause. Returns `false` if it has just ended.
    #[cold]
    fn see_pause(&self) -> bool {
        is_paused(self.change(|word| if is_paused(word) { word | SEEN } else { word }))
    }

    /// Reserves the weight of a message that will be queued. The channel becomes unwritable above
    /// the high mark.
    ///
    /// Returns `None` if the channel is not writable, the producer has no permit, and the message
    /// does not fit into `limit`.
    #[inline]
    pub(crate) fn reserve(
        &self,
        message: MessageWeight,
        permit: bool,
        limit: usize,
    ) -> Option<ReservedWeight> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let before = weight_of(word);
            let admitted = permit || !is_paused(word);
            let weight = match message {
                MessageWeight::Known(weight) => weight,
                MessageWeight::AtLeast(least) => least.max(self.mark.saturating_sub(before) + 1),
            };
            let weight = u32::try_from(weight).unwrap_or(u32::MAX);
            let sum = before.wrapping_add(weight as usize);
            if !admitted && sum > limit {
                return None;
            }
            let pause = if sum > self.high { PAUSED } else { 0 };
            let next = word_of(sum, word & STATE | pause);
            match self.word.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Some(ReservedWeight { weight, admitted }),
                Err(current) => word = current,
            }
        }
    }

    /// Gives back the reservation of a message that the loop will never take. Returns whether the
    /// caller must request a check of the loop ([`WriteGauge::checked`]): the reservation may have
    /// been the only pending weight during a pause. There is at most one such request at a time.
    #[must_use = "the loop must check the gauge"]
    pub(crate) fn release(&self, weight: u32) -> bool {
        let mut requests = false;
        self.change(|word| {
            let left = weight_of(word).wrapping_sub(weight as usize);
            // More than the slack is left otherwise, which the loop handles and then checks.
            requests = word & (PAUSED | CHECK) == PAUSED && left <= self.high;
            word_of(left, word & STATE | if requests { CHECK } else { 0 })
        });
        requests
    }

    // ---- on the loop ----------------------------------------------------------------------------

    /// Records that the loop has taken a message. Its weight counts until the next
    /// [`WriteGauge::update`].
    #[inline]
    pub(crate) fn take(&self, weight: u32) {
        self.known.store(self.known.load(Ordering::Relaxed) + weight as usize, Ordering::Relaxed);
    }

    /// Records that the loop has received the request for a check. It settles the gauge afterwards.
    pub(crate) fn checked(&self) {
        self.word.fetch_and(!CHECK, Ordering::AcqRel);
    }

    /// Returns the difference between a buffer of this weight and the published weight.
    #[inline]
    fn delta(&self, buffered: usize) -> isize {
        buffered.wrapping_sub(self.known.load(Ordering::Relaxed)) as isize
    }

    /// Returns whether nothing has to be published or notified for a buffer of this weight, which
    /// must be within three quarters of the high mark. A hint: `false` requires a closer look.
    #[inline]
    pub(crate) fn is_settled(&self, buffered: usize) -> bool {
        let word = self.word.load(Ordering::Acquire);
        self.delta(buffered).unsigned_abs() <= self.slack && !is_paused(word) && word < self.calm
    }

    /// Returns whether the channel would be writable with a buffer of this weight.
    #[inline]
    pub(crate) fn would_be_writable(&self, buffered: usize, mark: WaterMark) -> bool {
        let word = self.word.load(Ordering::Acquire);
        mark.writable(!is_paused(word), weight_of(word).wrapping_add_signed(self.delta(buffered)))
    }

    /// Publishes the weight of the buffer, and subtracts the messages that the loop has handled.
    /// Returns whether the channel is writable.
    ///
    /// `was` is the result of the loop's last call. If a producer has seen a pause that began since
    /// then, the first result is `false` regardless of the weight. So the handler is notified of
    /// each change in turn. A pause that ends unseen leaves no trace.
    #[inline]
    pub(crate) fn update(&self, buffered: usize, mark: WaterMark, was: bool) -> bool {
        let delta = self.delta(buffered);
        if delta != 0 {
            self.known.store(buffered, Ordering::Relaxed);
        }
        let word = self.word.load(Ordering::Acquire);
        let next = settled(word, delta, mark, was);
        if next != word {
            return !is_paused(self.change(|word| settled(word, delta, mark, was)));
        }
        !is_paused(word)
    }

    /// Replaces the word by the result of `next`, and returns the result.
    fn change(&self, mut next: impl FnMut(usize) -> usize) -> usize {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            let changed = next(word);
            match self.word.compare_exchange_weak(word, changed, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return changed,
                Err(current) => word = current,
            }
        }
    }
}

fn settled(word: usize, delta: isize, mark: WaterMark, was: bool) -> usize {
    let weight = weight_of(word).wrapping_add_signed(delta);
    let state = match word & (PAUSED | SEEN) {
        0 if weight > mark.high() => PAUSED | SEEN,
        state if state & SEEN != 0 && was => state,
        // The handler knows of the pause, or no producer has seen it.
        state if state != 0 && weight >= mark.low() => state | SEEN,
        _ => 0,
    };
    word_of(weight, word & CHECK | state)
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn mark() -> WaterMark {
        WaterMark::new(10, 20).expect("a mark")
    }

    fn gauge() -> WriteGauge {
        WriteGauge::new(mark())
    }

    /// Reserves like a producer that ignores writability.
    fn reserve(gauge: &WriteGauge, weight: usize) -> u32 {
        gauge.reserve(MessageWeight::Known(weight), false, usize::MAX).expect("there is no limit").weight
    }

    /// Acts like a loop that sends a message at once.
    fn send(gauge: &WriteGauge, weight: u32, was: bool) -> bool {
        gauge.take(weight);
        gauge.update(0, mark(), was)
    }

    #[test]
    fn only_the_loop_makes_the_channel_writable_again() {
        let gauge = gauge();
        let first = reserve(&gauge, 20);
        assert!(gauge.is_writable(), "at the mark");
        let second = reserve(&gauge, 1);
        assert!(!gauge.is_writable());
        assert!(!send(&gauge, first, true), "the loop sees the pause first");
        assert!(send(&gauge, second, false));
        assert_eq!(weight_of(gauge.word.into_inner()), 0);
    }

    #[test]
    fn an_unseen_pause_leaves_no_trace() {
        let gauge = gauge();
        let message = reserve(&gauge, 50);
        gauge.take(message);
        assert!(gauge.update(9, mark(), true), "9 are left");
        let message = reserve(&gauge, 50);
        gauge.take(message);
        assert!(!gauge.update(18, mark(), true), "18 are left");
        assert!(gauge.update(9, mark(), false));
    }

    #[test]
    fn the_state_stays_between_the_marks() {
        let gauge = gauge();
        gauge.begin(15, false);
        assert!(!gauge.update(15, mark(), false));
        assert!(!gauge.would_be_writable(10, mark()), "10 are not below 10");
        assert!(gauge.would_be_writable(9, mark()));
        assert!(gauge.update(9, mark(), false));
        assert!(gauge.update(20, mark(), true), "20 are not above 20");
        assert!(!gauge.update(21, mark(), true));
    }

    #[test]
    fn a_message_of_unknown_size_pauses_until_the_loop_has_encoded_it() {
        let gauge = gauge();
        let unknown = gauge.reserve(MessageWeight::AtLeast(5), false, 30).unwrap();
        assert_eq!(unknown, ReservedWeight { weight: 21, admitted: true });
        assert!(!gauge.update(0, mark(), true), "it is not encoded yet");
        let next = gauge.reserve(MessageWeight::AtLeast(5), false, 30).unwrap();
        assert_eq!(next, ReservedWeight { weight: 5, admitted: false }, "the gauge is full already");
        assert!(gauge.reserve(MessageWeight::AtLeast(5), false, 30).is_none(), "beyond the limit");
        gauge.take(unknown.weight);
        assert!(gauge.update(4, mark(), false), "4 were encoded");
    }

    #[test]
    fn a_released_reservation_requests_one_check_of_a_paused_channel() {
        let gauge = gauge();
        let (refused, kept) = (reserve(&gauge, 30), reserve(&gauge, 1));
        assert!(!gauge.is_writable());
        assert!(gauge.release(refused));
        let refused = reserve(&gauge, 1);
        assert!(!gauge.release(refused), "the loop has not checked yet");
        gauge.checked();
        assert!(!gauge.update(0, mark(), true), "the pause was seen");
        assert!(gauge.update(0, mark(), false));
        assert!(!gauge.release(kept), "the channel is writable");
        let (queued, refused) = (reserve(&gauge, 21), reserve(&gauge, 1));
        assert!(!gauge.release(refused), "a queued message makes the loop check");
        assert!(send(&gauge, queued, true));
    }

    #[test]
    fn every_pause_ends_in_every_interleaving() {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let gauge = Arc::new(gauge());
            let (sender, receiver) = std::sync::mpsc::channel::<Option<u32>>();
            let producers: Vec<_> = (0..2)
                .map(|_| {
                    let (gauge, sender) = (gauge.clone(), sender.clone());
                    std::thread::spawn(move || {
                        for weight in 1..50 {
                            let reserved = reserve(&gauge, weight);
                            if weight % 3 > 0 {
                                sender.send(Some(reserved)).expect("the loop is there");
                            } else if gauge.release(reserved) {
                                sender.send(None).expect("the loop is there");
                            }
                        }
                        gauge.is_writable();
                    })
                })
                .collect();
            drop(sender);
            let mut was = true;
            for mail in receiver {
                match mail {
                    Some(weight) => gauge.take(weight),
                    None => gauge.checked(),
                }
                // Like the loop, checks until nothing changes.
                while gauge.update(0, mark(), was) != was {
                    was = !was;
                }
            }
            producers.into_iter().for_each(|producer| producer.join().expect("no panic"));
            assert!(was && gauge.is_writable());
            assert_eq!(weight_of(gauge.word.load(Ordering::Relaxed)), 0);
        }
    }
}
