//! Time limits that close a channel: for the first byte and the first message, for reading, for
//! writing, and for a message that has begun.
//!
//! The limits for the first byte and the first message count from the creation of the channel. A
//! flag and a counter of the channel record whether they have come, so that limits which are set
//! later know. A read pays two tests of a flag for that.
//!
//! Invariants: a limit is never reached early, and each is reached at most once. Pure: `watch`
//! keeps the entry on the loop's wheel, and the channel core notifies the handler and closes. Runs
//! on the channel's loop.

use super::idle::Traffic;
use crate::{Error, PeerError, clock::nanos};
use std::time::Duration;

/// What closes a channel that is too slow; each limit is off until it is set.
///
/// A time of zero turns a limit off; others below a millisecond become a millisecond. When one is reached the handler's
/// [`error`](crate::Handler::error) is told once, then the channel closes: never early, late by at most one tick of the
/// loop's wheel (100 ms unless set otherwise) plus the loop's lag. While the program itself does not read
/// (auto-read is off), the peer cannot be late: all limits but the one for writing begin anew when it reads again.
///
/// The loop reads unread bytes from the socket before it enforces a limit on input. So a loop that
/// was held up does not close peers that have sent something in time.
///
/// To be told of quiet without an end to the channel, see [`IdleTimeouts`](crate::IdleTimeouts).
///
/// ```
/// use netwheel::TimeLimits;
/// use std::time::Duration;
///
/// let limits = TimeLimits::new()
///     .first_byte(Duration::from_secs(5))
///     .first_message(Duration::from_secs(20))
///     .read(Duration::from_secs(90))
///     .write(Duration::from_secs(30))
///     .progress(1024, Duration::from_secs(10));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
    first_byte: u64,
    first_message: u64,
    read: u64,
    write: u64,
    progress: u64,
    progress_bytes: usize,
}

impl TimeLimits {
    /// No limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// The channel fails with [`Error::TimedOut`] and closes if not a single byte has come `limit` after it was connected.
    ///
    /// Against peers that connect and say nothing. One that has sent a byte is not concerned any more.
    pub fn first_byte(mut self, limit: Duration) -> Self {
        self.first_byte = at_least_a_millisecond(limit);
        self
    }

    /// The channel fails with [`Error::TimedOut`] and closes if its handler has not been given a message `limit` after it
    /// was connected, however many bytes came.
    ///
    /// Against peers that are slow over a log-in or a request header, and do send a byte now and then. What a stage keeps
    /// for itself is no message for the handler.
    pub fn first_message(mut self, limit: Duration) -> Self {
        self.first_message = at_least_a_millisecond(limit);
        self
    }

    /// The channel fails with [`Error::TimedOut`] and closes if no byte comes for `limit`.
    pub fn read(mut self, limit: Duration) -> Self {
        self.read = at_least_a_millisecond(limit);
        self
    }

    /// The channel fails with [`Error::TimedOut`] and closes, sending no more, if the kernel has not taken all bytes of a
    /// write within `limit`.
    ///
    /// Every write has its limit, whether or not bytes move meanwhile. Of those that are written while another one waits,
    /// the time counts from when that one is gone, but at the earliest from the last of them.
    pub fn write(mut self, limit: Duration) -> Self {
        self.write = at_least_a_millisecond(limit);
        self
    }

    /// The channel fails with [`PeerError::TooSlow`] and closes if a message that has begun neither comes to its end nor
    /// brings `bytes` bytes in every `within`.
    ///
    /// Against peers that send one byte at a time so as never to be idle. A peer that has not begun a message is not
    /// concerned, however quiet; nor is one whose codec takes every byte as it comes.
    pub fn progress(mut self, bytes: usize, within: Duration) -> Self {
        self.progress = at_least_a_millisecond(within);
        self.progress_bytes = bytes;
        self
    }

    /// With a limit for writing, whether or not one was set.
    pub(crate) fn or_write(self, limit: Duration) -> Self {
        if self.write == 0 { self.write(limit) } else { self }
    }

    /// Whether there is no limit.
    pub fn is_off(&self) -> bool {
        *self == TimeLimits { progress_bytes: self.progress_bytes, ..TimeLimits::new() }
    }
}

fn at_least_a_millisecond(limit: Duration) -> u64 {
    if limit.is_zero() { 0 } else { nanos(limit.max(Duration::from_millis(1))) }
}

/// The limits of one channel, and what they are measured by.
#[derive(Debug)]
pub(crate) struct Limits {
    settings: TimeLimits,
    /// The first byte and the first message are waited for since then; none once they came.
    first_byte: Option<u64>,
    first_message: Option<u64>,
    /// Reading counts from here, if no byte came since.
    since: u64,
    /// Bytes that the kernel has taken.
    taken: u64,
    /// Bytes that were ever written, and when the last of them were.
    written: u64,
    written_at: u64,
    /// The write that is waited for.
    waiting: Option<ProgressMark>,
    /// The message that has begun.
    begun: Option<Window>,
}

/// All bytes before this one are to be taken, and count from then.
#[derive(Debug)]
struct ProgressMark {
    end: u64,
    since: u64,
}

#[derive(Debug)]
struct Window {
    since: u64,
    /// Bytes of the message that count for what came before, and that are there now.
    bytes: usize,
    now: usize,
}

/// A limit that was reached, and how the channel is to close.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) error: Error,
    /// Whether to send what was written before.
    pub(crate) send: bool,
}

impl Limits {
    pub(crate) fn new(settings: TimeLimits, now: u64) -> Self {
        Limits {
            settings,
            first_byte: Some(now),
            first_message: Some(now),
            since: now,
            taken: 0,
            written: 0,
            written_at: now,
            waiting: None,
            begun: None,
        }
    }

    pub(crate) fn settings(&self) -> TimeLimits {
        self.settings
    }

    /// Changes the limits; one that was off counts from now.
    pub(crate) fn set(&mut self, settings: TimeLimits, now: u64) {
        if self.settings.first_byte == 0 {
            restart(&mut self.first_byte, now);
        }
        if self.settings.first_message == 0 {
            restart(&mut self.first_message, now);
        }
        if self.settings.read == 0 {
            self.since = now;
        }
        self.settings = settings;
    }

    /// A byte has come.
    pub(crate) fn note_byte(&mut self) {
        self.first_byte = None;
    }

    /// The handler was given a message.
    pub(crate) fn note_message(&mut self) {
        self.first_message = None;
    }

    /// So many bytes wait to be sent. True if there is a new limit to watch.
    pub(crate) fn note_pending(&mut self, pending: usize, now: u64) -> bool {
        let written = self.taken + pending as u64;
        if self.settings.write == 0 || written <= self.written {
            return false;
        }
        (self.written, self.written_at) = (written, now);
        let begins = self.waiting.is_none();
        self.waiting.get_or_insert(ProgressMark { end: written, since: now });
        begins
    }

    /// The kernel took `n` bytes, and `pending` still wait.
    pub(crate) fn note_taken(&mut self, n: usize, pending: usize) {
        self.taken += n as u64;
        if self.waiting.as_ref().is_some_and(|mark| mark.end <= self.taken) {
            // The next ones: all that were written meanwhile, as of the last of them.
            let next = ProgressMark { end: self.written, since: self.written_at };
            self.waiting = (pending > 0 && self.written > self.taken).then_some(next);
        }
    }

    /// Of what waits, `n` bytes behind the first `keep` were dropped.
    pub(crate) fn note_dropped(&mut self, keep: usize, n: usize) {
        // None of these was counted if there was no limit to writing yet.
        self.written = self.written.saturating_sub(n as u64);
        if let Some(mark) = &mut self.waiting {
            mark.end = mark.end.saturating_sub(n as u64).max(self.taken + keep as u64);
        }
    }

    /// After a read: `kept` bytes do not make a message yet; `moved` says that some were taken before them. True if there
    /// is a new limit to watch.
    pub(crate) fn note_kept(&mut self, kept: usize, moved: bool, now: u64) -> bool {
        if self.settings.progress == 0 || kept == 0 {
            self.begun = None;
            return false;
        }
        match &mut self.begun {
            Some(window) if !moved => {
                window.now = kept;
                false
            }
            _ => {
                // What it begins with is the first of what it has to bring.
                self.begun = Some(Window { since: now, bytes: 0, now: kept });
                true
            }
        }
    }

    /// The program does not read: nobody is late meanwhile.
    pub(crate) fn pause(&mut self, now: u64) {
        restart(&mut self.first_byte, now);
        restart(&mut self.first_message, now);
        self.since = now;
        if let Some(window) = &mut self.begun {
            (window.since, window.bytes) = (now, window.now);
        }
    }

    /// The channel's own limits hold up what is written: the peer is not late meanwhile.
    pub(crate) fn pause_writing(&mut self, now: u64) {
        if let Some(mark) = &mut self.waiting {
            mark.since = now;
        }
    }

    fn first_byte_due(&self) -> Option<u64> {
        let since = self.first_byte.filter(|_| self.settings.first_byte > 0)?;
        Some(since.saturating_add(self.settings.first_byte))
    }

    fn first_message_due(&self) -> Option<u64> {
        let since = self.first_message.filter(|_| self.settings.first_message > 0)?;
        Some(since.saturating_add(self.settings.first_message))
    }

    fn read_due(&self, traffic: Traffic) -> Option<u64> {
        let from = traffic.read.max(self.since);
        (self.settings.read > 0).then(|| from.saturating_add(self.settings.read))
    }

    fn write_due(&self) -> Option<u64> {
        let mark = self.waiting.as_ref().filter(|_| self.settings.write > 0)?;
        Some(mark.since.saturating_add(self.settings.write))
    }

    fn progress_due(&self) -> Option<u64> {
        let window = self.begun.as_ref().filter(|_| self.settings.progress > 0)?;
        Some(window.since.saturating_add(self.settings.progress))
    }

    /// When the next limit is reached if nothing moves.
    pub(crate) fn deadline(&self, traffic: Traffic) -> Option<u64> {
        let first = [self.first_byte_due(), self.first_message_due()];
        let all = first.into_iter().chain([self.read_due(traffic), self.write_due(), self.progress_due()]);
        all.flatten().min()
    }

    /// Returns whether a limit is reached that input would have postponed.
    pub(crate) fn waits_for_peer(&self, traffic: Traffic, now: u64) -> bool {
        let first = [self.first_byte_due(), self.first_message_due()];
        let all = first.into_iter().chain([self.read_due(traffic), self.progress_due()]);
        all.flatten().any(|due| due <= now)
    }

    /// The limit that is reached now, if one is; it is off from then on.
    pub(crate) fn take_reached(&mut self, traffic: Traffic, now: u64) -> Option<Reached> {
        let is_due = |due: Option<u64>| due.is_some_and(|due| due <= now);
        let timed_out = |operation, after| Error::TimedOut { operation, after: Duration::from_nanos(after) };
        if is_due(self.write_due()) {
            let after = std::mem::take(&mut self.settings.write);
            return Some(Reached { error: timed_out("writing", after), send: false });
        }
        if is_due(self.first_byte_due()) {
            let after = std::mem::take(&mut self.settings.first_byte);
            return Some(Reached { error: timed_out("the first byte", after), send: true });
        }
        if is_due(self.first_message_due()) {
            let after = std::mem::take(&mut self.settings.first_message);
            return Some(Reached { error: timed_out("the first message", after), send: true });
        }
        if is_due(self.progress_due())
            && let Some(window) = &mut self.begun
        {
            let bytes = window.now.saturating_sub(window.bytes);
            if bytes < self.settings.progress_bytes {
                let within = Duration::from_nanos(std::mem::take(&mut self.settings.progress));
                let error = PeerError::TooSlow { bytes, required: self.settings.progress_bytes, within };
                return Some(Reached { error: error.into(), send: true });
            }
            (window.since, window.bytes) = (now, window.now);
        }
        if is_due(self.read_due(traffic)) {
            let after = std::mem::take(&mut self.settings.read);
            return Some(Reached { error: timed_out("reading", after), send: true });
        }
        None
    }
}

/// What is still waited for is waited for since `now`.
fn restart(since: &mut Option<u64>, now: u64) {
    if let Some(since) = since {
        *since = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const QUIET: Traffic = Traffic { read: 0, written: 0 };

    fn first(byte: u64, message: u64) -> TimeLimits {
        TimeLimits::new().first_byte(Duration::from_secs(byte)).first_message(Duration::from_secs(message))
    }

    #[test]
    fn each_first_is_waited_for_until_it_comes() {
        let mut limits = Limits::new(first(1, 3), 0);
        assert_eq!(limits.deadline(QUIET), Some(SECOND));
        limits.note_byte();
        assert_eq!(limits.deadline(QUIET), Some(3 * SECOND));
        assert!(limits.take_reached(QUIET, 3 * SECOND - 1).is_none());
        limits.note_message();
        assert_eq!(limits.deadline(QUIET), None);
        assert!(limits.take_reached(QUIET, u64::MAX).is_none());
    }

    #[test]
    fn a_first_is_missed_once() {
        let mut limits = Limits::new(first(1, 1), 0);
        let said = |reached: Option<Reached>| reached.map(|reached| format!("{:#}", reached.error));
        assert_eq!(
            said(limits.take_reached(QUIET, SECOND)).as_deref(),
            Some("the first byte timed out after 1s")
        );
        let message = said(limits.take_reached(QUIET, SECOND));
        assert_eq!(message.as_deref(), Some("the first message timed out after 1s"));
        assert_eq!(limits.deadline(QUIET), None);
    }

    #[test]
    fn firsts_that_are_switched_on_later_count_from_then_and_a_change_counts_from_the_beginning() {
        let mut limits = Limits::new(TimeLimits::new(), 0);
        limits.set(first(2, 0), 10 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(12 * SECOND));
        limits.set(first(3, 0), 11 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(13 * SECOND));
        limits.set(first(0, 1), 11 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(12 * SECOND));
    }

    #[test]
    fn a_program_that_does_not_read_has_nobody_late() {
        let mut limits = Limits::new(first(1, 2), 0);
        limits.pause(5 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(6 * SECOND));
        limits.note_byte();
        assert_eq!(limits.deadline(QUIET), Some(7 * SECOND));
        limits.pause(20 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(22 * SECOND));
    }

    #[test]
    fn bytes_that_no_limit_has_counted_may_be_dropped() {
        let mut limits = Limits::new(TimeLimits::new().read(Duration::from_secs(1)), 0);
        limits.note_pending(10, 0);
        limits.note_dropped(0, 10);
        limits.set(TimeLimits::new().write(Duration::from_secs(2)), SECOND);
        assert!(limits.note_pending(5, SECOND), "from here on they are");
        assert_eq!(limits.deadline(QUIET), Some(3 * SECOND));
    }

    #[test]
    fn only_firsts_are_limits_too() {
        assert!(TimeLimits::new().is_off() && first(0, 0).is_off());
        assert!(!first(1, 0).is_off() && !first(0, 1).is_off());
        assert!(TimeLimits::new().progress(5, Duration::ZERO).is_off());
    }
}
