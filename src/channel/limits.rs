//! Time limits that close a channel: for reading, for writing, for a message that has begun.
//!
//! Always holds: a limit is never reached early, and each is reached once at most. Pure: `watch` keeps the entry on the
//! loop's wheel, the channel core tells the handler and closes. Runs on the channel's loop.

use super::idle::Traffic;
use crate::{Error, PeerError, clock::nanos};
use std::time::Duration;

/// What closes a channel that is too slow; each limit is off until it is set.
///
/// A time of zero turns a limit off; others below a millisecond become a millisecond. When one is reached the handler's
/// [`error`](crate::Handler::error) is told once, then the channel closes: never early, late by at most one tick of the
/// loop's wheel (100 ms unless set otherwise) plus the loop's lag. While the program itself does not read
/// (auto-read is off), the peer cannot be late: the limits for reading and for progress begin anew when it reads again.
///
/// To be told of quiet without an end to the channel, see [`IdleTimeouts`](crate::IdleTimeouts).
///
/// ```
/// use netwheel::TimeLimits;
/// use std::time::Duration;
///
/// let limits = TimeLimits::new()
///     .read(Duration::from_secs(90))
///     .write(Duration::from_secs(30))
///     .progress(1024, Duration::from_secs(10));
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TimeLimits {
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

    /// Whether there is no limit.
    pub fn is_off(&self) -> bool {
        self.read == 0 && self.write == 0 && self.progress == 0
    }
}

fn at_least_a_millisecond(limit: Duration) -> u64 {
    if limit.is_zero() { 0 } else { nanos(limit.max(Duration::from_millis(1))) }
}

/// The limits of one channel, and what they are measured by.
#[derive(Debug)]
pub(crate) struct Limits {
    settings: TimeLimits,
    /// Reading counts from here, if no byte came since.
    since: u64,
    /// Bytes that the kernel has taken.
    taken: u64,
    /// Bytes that were ever written, and when the last of them were.
    written: u64,
    written_at: u64,
    /// The write that is waited for.
    waiting: Option<Mark>,
    /// The message that has begun.
    begun: Option<Window>,
}

/// All bytes before this one are to be taken, and count from then.
#[derive(Debug)]
struct Mark {
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
        Limits { settings, since: now, taken: 0, written: 0, written_at: now, waiting: None, begun: None }
    }

    pub(crate) fn settings(&self) -> TimeLimits {
        self.settings
    }

    /// Changes the limits; one that was off counts from now.
    pub(crate) fn set(&mut self, settings: TimeLimits, now: u64) {
        if self.settings.read == 0 {
            self.since = now;
        }
        self.settings = settings;
    }

    /// So many bytes wait to be sent. True if there is a new limit to watch.
    pub(crate) fn note_pending(&mut self, pending: usize, now: u64) -> bool {
        let written = self.taken + pending as u64;
        if self.settings.write == 0 || written <= self.written {
            return false;
        }
        (self.written, self.written_at) = (written, now);
        let begins = self.waiting.is_none();
        self.waiting.get_or_insert(Mark { end: written, since: now });
        begins
    }

    /// The kernel took `n` bytes, and `pending` still wait.
    pub(crate) fn note_taken(&mut self, n: usize, pending: usize) {
        self.taken += n as u64;
        if self.waiting.as_ref().is_some_and(|mark| mark.end <= self.taken) {
            // The next ones: all that were written meanwhile, as of the last of them.
            let next = Mark { end: self.written, since: self.written_at };
            self.waiting = (pending > 0 && self.written > self.taken).then_some(next);
        }
    }

    /// Of what waits, `n` bytes behind the first `keep` were dropped.
    pub(crate) fn note_dropped(&mut self, keep: usize, n: usize) {
        self.written -= n as u64;
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
        self.since = now;
        if let Some(window) = &mut self.begun {
            (window.since, window.bytes) = (now, window.now);
        }
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
        [self.read_due(traffic), self.write_due(), self.progress_due()].into_iter().flatten().min()
    }

    /// The limit that is reached now, if one is; it is off from then on.
    pub(crate) fn take_reached(&mut self, traffic: Traffic, now: u64) -> Option<Reached> {
        let is_due = |due: Option<u64>| due.is_some_and(|due| due <= now);
        let timed_out = |what, after| Error::TimedOut { what, after: Duration::from_nanos(after) };
        if is_due(self.write_due()) {
            let after = std::mem::take(&mut self.settings.write);
            return Some(Reached { error: timed_out("writing", after), send: false });
        }
        if is_due(self.progress_due())
            && let Some(window) = &mut self.begun
        {
            let bytes = window.now.saturating_sub(window.bytes);
            if bytes < self.settings.progress_bytes {
                let within = Duration::from_nanos(std::mem::take(&mut self.settings.progress));
                let error = PeerError::TooSlow { bytes, least: self.settings.progress_bytes, within };
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
