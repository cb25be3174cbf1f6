//! Time limits that close a channel: for the first byte and the first message, for reading, for
//! writing, and for an incomplete message.
//!
//! The limits for the first byte and the first message count from the creation of the channel. A
//! flag and a counter of the channel record whether they have arrived, so that limits which are set
//! later know. This costs each read two tests of a flag.
//!
//! Invariants: a limit is never reached early, and each is reached at most once. Pure: `watch`
//! keeps the entry on the loop's wheel, and the channel core notifies the handler and closes. Runs
//! on the channel's loop.

use super::{Paused, idle::Traffic};
use crate::{
    clock::nanos,
    error::{Error, PeerError},
};
use std::time::Duration;

/// Time limits that close a slow channel. Each limit is off until it is set.
///
/// A limit of zero turns it off. Other limits below one millisecond are raised to one millisecond.
/// When a limit is reached, the handler's [`error`](crate::Handler::error) is called once, then the
/// channel closes. Limits are never reached early. They are late by at most one tick of the loop's
/// wheel (100 ms by default) plus the loop's lag.
///
/// While the program does not read (auto-read is off), the peer cannot be late. All limits except
/// for the write limit restart when it reads again.
///
/// The loop reads unread bytes from the socket before it enforces a limit on input. So a loop that
/// was delayed does not close peers that have sent data in time.
///
/// To be notified of inactivity without closing the channel, see
/// [`IdleTimeouts`](crate::IdleTimeouts).
///
/// ```
/// use netwheel::channel::TimeLimits;
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
    /// Returns settings without limits.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the time after connecting by which the first byte must arrive. Otherwise the channel
    /// fails with [`Error::TimedOut`] and closes.
    ///
    /// Protects against peers that connect and send nothing. Has no effect after the first byte.
    pub fn first_byte(mut self, limit: Duration) -> Self {
        self.first_byte = at_least_a_millisecond(limit);
        self
    }

    /// Sets the time after connecting by which the handler must receive its first message.
    /// Otherwise the channel fails with [`Error::TimedOut`] and closes, regardless of the number of
    /// bytes received.
    ///
    /// Protects against peers that send a log-in or a request header slowly, byte by byte. Messages
    /// that a stage consumes do not count.
    pub fn first_message(mut self, limit: Duration) -> Self {
        self.first_message = at_least_a_millisecond(limit);
        self
    }

    /// Sets the time without received bytes after which the channel fails with [`Error::TimedOut`]
    /// and closes.
    pub fn read(mut self, limit: Duration) -> Self {
        self.read = at_least_a_millisecond(limit);
        self
    }

    /// Sets the time within which the kernel must accept all bytes of a write. Otherwise the
    /// channel fails with [`Error::TimedOut`] and closes without sending pending bytes.
    ///
    /// Every write has this limit, even if bytes move in the meantime. Writes that are made while
    /// an earlier write is pending share a limit. It counts from the last of these writes, and is
    /// enforced after the earlier write has been accepted.
    pub fn write(mut self, limit: Duration) -> Self {
        self.write = at_least_a_millisecond(limit);
        self
    }

    /// Sets the least progress of an incomplete message. Unless the message is completed or `bytes`
    /// bytes arrive in each period of `within`, the channel fails with [`PeerError::TooSlow`] and
    /// closes.
    ///
    /// Protects against peers that send one byte at a time to avoid idle timeouts. Does not affect
    /// a peer that has not started a message, or a codec that consumes each byte as it arrives.
    pub fn progress(mut self, bytes: usize, within: Duration) -> Self {
        self.progress = at_least_a_millisecond(within);
        self.progress_bytes = bytes;
        self
    }

    /// Sets a write limit if none is set.
    pub(crate) fn or_write(self, limit: Duration) -> Self {
        if self.write == 0 { self.write(limit) } else { self }
    }

    /// Returns whether all limits are off.
    pub fn is_off(&self) -> bool {
        *self == TimeLimits { progress_bytes: self.progress_bytes, ..TimeLimits::new() }
    }
}

fn at_least_a_millisecond(limit: Duration) -> u64 {
    if limit.is_zero() { 0 } else { nanos(limit.max(Duration::from_millis(1))) }
}

/// The limits of one channel and the progress that they measure.
#[derive(Debug)]
pub(crate) struct Limits {
    settings: TimeLimits,
    /// The start of the limit for the first byte; `None` after it has arrived. `first_message`
    /// likewise.
    first_byte: Option<u64>,
    first_message: Option<u64>,
    /// The start of the read limit if no byte has arrived since.
    since: u64,
    /// Bytes that the kernel has accepted.
    taken: u64,
    /// Bytes that were ever written, and the time of the last write.
    written: u64,
    written_at: u64,
    /// The write whose limit is running.
    waiting: Option<ProgressMark>,
    /// The incomplete message.
    begun: Option<Window>,
}

/// The kernel must accept all bytes before `end`. The limit counts from `since`.
#[derive(Debug)]
struct ProgressMark {
    end: u64,
    since: u64,
}

#[derive(Debug)]
struct Window {
    since: u64,
    /// Bytes of the message at the start of the period, and at present.
    bytes: usize,
    now: usize,
}

/// A limit that was reached, and the way in which the channel closes.
#[derive(Debug)]
pub(crate) struct Reached {
    pub(crate) error: Error,
    /// Whether to send pending bytes first.
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

    /// Changes the limits. A limit that was off counts from now. `kept` bytes do not make a message
    /// yet.
    pub(crate) fn set(&mut self, settings: TimeLimits, kept: usize, now: u64) {
        if self.settings.first_byte == 0 {
            restart(&mut self.first_byte, now);
        }
        if self.settings.first_message == 0 {
            restart(&mut self.first_message, now);
        }
        if self.settings.read == 0 {
            self.since = now;
        }
        if self.settings.write == 0 {
            self.pause_writing(now);
        }
        let measured = self.settings.progress > 0;
        self.settings = settings;
        if !measured {
            self.note_kept(kept, true, now);
        }
    }

    /// Records that a byte has arrived.
    pub(crate) fn note_byte(&mut self) {
        self.first_byte = None;
    }

    /// Records that the handler has received a message.
    pub(crate) fn note_message(&mut self) {
        self.first_message = None;
    }

    /// Records the number of pending bytes. Returns whether there is a new limit to watch.
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

    /// Records that the kernel has accepted `n` bytes and that `pending` bytes remain.
    pub(crate) fn note_taken(&mut self, n: usize, pending: usize) {
        self.taken += n as u64;
        if self.waiting.as_ref().is_some_and(|mark| mark.end <= self.taken) {
            // The next limit covers all writes made in the meantime, and starts at the last of
            // them.
            let next = ProgressMark { end: self.written, since: self.written_at };
            self.waiting = (pending > 0 && self.written > self.taken).then_some(next);
        }
    }

    /// Records that `n` pending bytes behind the first `keep` were dropped.
    pub(crate) fn note_dropped(&mut self, keep: usize, n: usize) {
        // These bytes were not counted if the write limit was still off.
        self.written = self.written.saturating_sub(n as u64);
        let kept = self.taken + keep as u64;
        if let Some(mark) = &mut self.waiting
            && mark.end > kept
        {
            mark.end = mark.end.saturating_sub(n as u64).max(kept);
        }
    }

    /// Records that a message has replaced another one of `old` bytes, so that `pending` bytes
    /// remain. The new message counts as written when the callback has returned.
    ///
    /// The place of the message is not considered: the write whose limit is running ends after the
    /// number of bytes that it had, or with the last pending byte.
    pub(crate) fn note_replaced(&mut self, old: usize, pending: usize) {
        let written = self.taken + pending as u64;
        self.written = self.written.saturating_sub(old as u64).min(written);
        if let Some(mark) = &mut self.waiting {
            mark.end = mark.end.min(written);
        }
    }

    /// Records that `kept` bytes remain after a read because they do not make a message yet.
    /// `moved`: earlier bytes were consumed. Returns whether there is a new limit to watch.
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
                // The first bytes of the message count as progress.
                self.begun = Some(Window { since: now, bytes: 0, now: kept });
                true
            }
        }
    }

    /// Restarts the limits on input, because the peer is not late while the program does not read.
    pub(crate) fn pause(&mut self, now: u64) {
        restart(&mut self.first_byte, now);
        restart(&mut self.first_message, now);
        self.since = now;
        if let Some(window) = &mut self.begun {
            (window.since, window.bytes) = (now, window.now);
        }
    }

    /// Restarts the limits of the `paused` directions.
    pub(in crate::channel) fn restart_paused(&mut self, paused: Paused, now: u64) {
        if paused.reading {
            self.pause(now);
        }
        if paused.writing {
            self.pause_writing(now);
        }
    }

    /// Restarts the write limit, because the peer is not late while the channel's own rate limit
    /// delays writes.
    fn pause_writing(&mut self, now: u64) {
        // The limit of the next writes starts with the last of them.
        self.written_at = now;
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

    /// Returns the time at which the next limit is reached if no bytes move.
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

    /// Returns a limit that is reached now, and turns it off.
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

/// Restarts a limit that is still running.
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
    fn the_limits_for_the_first_byte_and_message_end_when_it_arrives() {
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
    fn the_limits_for_the_first_byte_and_message_are_reached_once() {
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
    fn a_limit_set_later_counts_from_then_and_a_changed_limit_from_the_start() {
        let mut limits = Limits::new(TimeLimits::new(), 0);
        limits.set(first(2, 0), 0, 10 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(12 * SECOND));
        limits.set(first(3, 0), 0, 11 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(13 * SECOND));
        limits.set(first(0, 1), 0, 11 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(12 * SECOND));
    }

    #[test]
    fn limits_restart_while_the_program_does_not_read() {
        let mut limits = Limits::new(first(1, 2), 0);
        limits.pause(5 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(6 * SECOND));
        limits.note_byte();
        assert_eq!(limits.deadline(QUIET), Some(7 * SECOND));
        limits.pause(20 * SECOND);
        assert_eq!(limits.deadline(QUIET), Some(22 * SECOND));
    }

    #[test]
    fn bytes_written_before_the_limit_was_set_may_be_dropped() {
        let mut limits = Limits::new(TimeLimits::new().read(Duration::from_secs(1)), 0);
        limits.note_pending(10, 0);
        limits.note_dropped(0, 10);
        limits.set(TimeLimits::new().write(Duration::from_secs(2)), 0, SECOND);
        assert!(limits.note_pending(5, SECOND), "counted from here on");
        assert_eq!(limits.deadline(QUIET), Some(3 * SECOND));
    }

    #[test]
    fn bytes_dropped_behind_a_write_do_not_prolong_it() {
        let mut limits = Limits::new(TimeLimits::new().write(Duration::from_secs(5)), 0);
        limits.note_pending(10, 0);
        limits.note_pending(30, 4 * SECOND);
        // A filter has sealed the first write and ten bytes of the second one.
        limits.note_dropped(20, 10);
        limits.note_taken(10, 10);
        assert_eq!(limits.deadline(QUIET), Some(9 * SECOND), "that of the second write");
    }

    #[test]
    fn limits_for_the_first_byte_or_message_alone_are_not_off() {
        assert!(TimeLimits::new().is_off() && first(0, 0).is_off());
        assert!(!first(1, 0).is_off() && !first(0, 1).is_off());
        assert!(TimeLimits::new().progress(5, Duration::ZERO).is_off());
    }
}
