//! A rate limit for the log: lines that a peer can cause, thousands a second.
//!
//! Always holds: of each topic at most [`Topic::burst`] lines are written in [`INTERVAL`]. The others are counted, and
//! the count is written once the interval is over: by the loop, which wakes for that, by the next line, or at the loop's
//! end. So no line is lost without a trace. Time is given in nanoseconds. Thread-safe; no lock is held while a line is
//! written. A line below the log's level is neither written nor counted.

use crate::clock::process_time;
use log::Level;
use std::{
    sync::{
        Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The time for which the lines of a topic are counted together.
const INTERVAL: u64 = 10 * 1_000_000_000;

/// Lines of a topic in one interval, unless it has fewer.
const BURST: u32 = 10;

/// Topics of the program that are told apart; all others share one count.
const MAX_PROGRAM_TOPICS: usize = 64;

/// Nothing is suppressed, so there is nothing to report.
const NEVER: u64 = u64::MAX;

/// A kind of line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Topic {
    name: &'static str,
    burst: u32,
}

impl Topic {
    const fn new(name: &'static str) -> Self {
        Topic { name, burst: BURST }
    }

    /// One line in each interval: of what all connections have in common.
    const fn once(name: &'static str) -> Self {
        Topic { name, burst: 1 }
    }

    /// A topic of the program's own.
    pub(crate) const fn of_program(name: &'static str) -> Self {
        Topic::new(name)
    }
}

/// What a peer sent wrong.
pub(crate) const PEER_ERRORS: Topic = Topic::new("errors of peers");
/// Broken connections.
pub(crate) const BROKEN: Topic = Topic::new("broken connections");
/// Errors that are neither a peer's nor its connection's.
pub(crate) const CHANNEL_ERRORS: Topic = Topic::new("errors of channels");
/// Panics in callbacks, tasks, and what is dropped.
pub(crate) const PANICS: Topic = Topic::new("panics");
/// Channels that are closed because something goes on and on.
pub(crate) const STUCK: Topic = Topic::new("channels that were stuck");
/// Peers that do not take what they are sent.
pub(crate) const SLOW_PEERS: Topic = Topic::new("slow peers");
/// Connections that ended before everything was sent, or without their wait for that.
pub(crate) const UNSENT: Topic = Topic::new("channels closed with bytes unsent");
/// Messages and tasks that came to a pipeline which was replaced.
pub(crate) const REPLACED: Topic = Topic::new("messages for replaced pipelines");
/// Messages that could not be encoded for the members of a group.
pub(crate) const BROADCASTS: Topic = Topic::new("broadcasts that could not be encoded");
/// Connections that were gone when they were accepted.
pub(crate) const ABORTED: Topic = Topic::new("connections gone before they were accepted");
/// Accepts that failed.
pub(crate) const ACCEPT_ERRORS: Topic = Topic::once("failed accepts");
/// Connections that a filter denies.
pub(crate) const DENIED: Topic = Topic::once("connections denied by a filter");
/// Connections beyond a limit.
pub(crate) const TURNED_AWAY: Topic = Topic::once("connections beyond a limit");
/// The program's farewell or hook for such a connection failed.
pub(crate) const TURNING_AWAY: Topic = Topic::once("hooks for connections that are not let in");
/// Connections that could not become channels.
pub(crate) const NOT_OPENED: Topic = Topic::once("connections that could not be opened");
/// Tasks that returned an error.
pub(crate) const TASKS_FAILED: Topic = Topic::new("tasks that failed");
/// Writes to the loop's waker that failed.
pub(crate) const WAKES_FAILED: Topic = Topic::once("failed wakes");

/// The rate limit of one event loop.
pub(crate) struct LogThrottle {
    /// The loop's name.
    name: String,
    topics: Mutex<Vec<Count>>,
    /// When the first interval ends in which something was suppressed, or [`NEVER`].
    due: AtomicU64,
    suppressed: AtomicU64,
}

/// One topic, and what has become of its lines in the running interval.
struct Count {
    topic: Topic,
    /// Target and level of the last suppressed line: the report goes where that would have gone.
    target: &'static str,
    level: Level,
    began: u64,
    written: u32,
    suppressed: u64,
}

/// A line about lines that were not written.
struct Report {
    topic: &'static str,
    target: &'static str,
    level: Level,
    suppressed: u64,
    after: u64,
}

impl LogThrottle {
    pub(crate) fn new(name: &str) -> Self {
        LogThrottle {
            name: name.to_owned(),
            topics: Mutex::new(Vec::new()),
            due: AtomicU64::new(NEVER),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Whether a line may be written at `now`; if not, it is counted.
    #[cold]
    pub(crate) fn admit(&self, topic: Topic, target: &'static str, level: Level, now: u64) -> bool {
        self.report(now);
        let mut topics = self.lock();
        let count = Self::count_of(&mut topics, topic, now);
        if now.saturating_sub(count.began) >= INTERVAL {
            (count.began, count.written) = (now, 0);
        }
        let admitted = count.written < count.topic.burst;
        if admitted {
            count.written += 1;
        } else {
            count.suppressed += 1;
            (count.target, count.level) = (target, level);
            self.suppressed.fetch_add(1, Ordering::Relaxed);
        }
        self.set_due(&topics);
        admitted
    }

    fn count_of(topics: &mut Vec<Count>, topic: Topic, now: u64) -> &mut Count {
        let known = topics.iter().position(|count| count.topic == topic);
        let at = known.unwrap_or_else(|| {
            let full = topics.len() >= MAX_PROGRAM_TOPICS;
            let topic = if full { Topic::new("other topics") } else { topic };
            if let Some(at) = topics.iter().position(|count| count.topic == topic) {
                return at;
            }
            let (target, level) = (module_path!(), Level::Warn);
            topics.push(Count { topic, target, level, began: now, written: 0, suppressed: 0 });
            topics.len() - 1
        });
        &mut topics[at]
    }

    /// When [`report`](LogThrottle::report) has something to write next.
    #[inline]
    pub(crate) fn due(&self) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        (due != NEVER).then_some(due)
    }

    /// Writes how many lines were suppressed in the intervals that are over at `now`.
    #[inline]
    pub(crate) fn report(&self, now: u64) {
        if now >= self.due.load(Ordering::Relaxed) {
            self.report_if(now, |count| now.saturating_sub(count.began) >= INTERVAL);
        }
    }

    /// Writes how many lines were suppressed since the last report, at the loop's end.
    pub(crate) fn finish(&self, now: u64) {
        self.report_if(now, |_| true);
    }

    #[cold]
    fn report_if(&self, now: u64, is_over: impl Fn(&Count) -> bool) {
        let mut topics = self.lock();
        let over = topics.iter_mut().filter(|count| is_over(count));
        let reports: Vec<_> = over.filter_map(|count| count.end(now)).collect();
        self.set_due(&topics);
        drop(topics);
        reports.iter().for_each(|report| report.write(&self.name));
    }

    fn set_due(&self, topics: &[Count]) {
        let pending = topics.iter().filter(|count| count.suppressed > 0);
        let due = pending.map(|count| count.began.saturating_add(INTERVAL)).min();
        self.due.store(due.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Lines suppressed so far.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Count>> {
        // Whole at every moment, so a panic elsewhere does not spoil it.
        self.topics.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Count {
    /// Begins another interval.
    fn end(&mut self, now: u64) -> Option<Report> {
        let Count { topic, target, level, began, suppressed, .. } = *self;
        (self.began, self.written, self.suppressed) = (now, 0, 0);
        let after = now.saturating_sub(began);
        (suppressed > 0).then_some(Report { topic: topic.name, target, level, suppressed, after })
    }
}

impl Report {
    fn write(&self, event_loop: &str) {
        let Report { topic, target, level, suppressed, .. } = self;
        let after = Duration::from_nanos(self.after);
        log::log!(
            target: target,
            *level,
            "{event_loop}: {topic}: {suppressed} more lines were suppressed in the last {after:.1?}"
        );
    }
}

/// A rate limit and the time: what [`log_throttled`] needs, where no `LoopServices` are at hand.
pub(crate) struct LogAt<'a> {
    pub(crate) log: &'a LogThrottle,
    pub(crate) now: u64,
}

/// The rate limit of what belongs to no loop. What it has suppressed is reported with its next line, or when a loop
/// ends.
pub(crate) fn off_loop() -> LogAt<'static> {
    static OFF_LOOP: OnceLock<LogThrottle> = OnceLock::new();
    LogAt { log: OFF_LOOP.get_or_init(|| LogThrottle::new("netwheel")), now: process_time() }
}

/// Writes a line to the log that a peer can cause, unless its topic has had its share: `LoopServices` or a [`LogAt`], the
/// topic, the level, and then what `log::log!` takes.
macro_rules! log_throttled {
    ($at:expr, $topic:expr, $level:expr, $($line:tt)+) => {{
        let level = $level;
        if log::log_enabled!(level) && $at.log.admit($topic, module_path!(), level, $at.now) {
            log::log!(level, $($line)+);
        }
    }};
}

pub(crate) use log_throttled;

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn admit(throttle: &LogThrottle, topic: Topic, now: u64) -> bool {
        throttle.admit(topic, module_path!(), Level::Info, now)
    }

    #[test]
    fn the_first_lines_of_each_interval_are_written_and_the_others_counted() {
        let throttle = LogThrottle::new("loop");
        let written = (0..60_000).filter(|ms| admit(&throttle, PEER_ERRORS, ms * 1_000_000)).count();
        assert_eq!(written, 60);
        assert_eq!(throttle.suppressed(), 60_000 - 60);
        let written = (0..60_000).filter(|ms| admit(&throttle, DENIED, ms * 1_000_000)).count();
        assert_eq!(written, 6, "a topic may have a smaller share");
    }

    #[test]
    fn topics_do_not_share_their_intervals() {
        let throttle = LogThrottle::new("loop");
        while admit(&throttle, PEER_ERRORS, 0) {}
        assert!(admit(&throttle, PANICS, 0));
        assert_eq!(throttle.suppressed(), 1);
    }

    #[test]
    fn a_report_is_due_when_the_interval_is_over_and_only_if_something_was_suppressed() {
        let throttle = LogThrottle::new("loop");
        let admit = |now| (0..11).filter(|_| admit(&throttle, PEER_ERRORS, now)).count();
        assert_eq!((throttle.due(), admit(SECOND)), (None, 10));
        assert_eq!(throttle.due(), Some(11 * SECOND));
        throttle.report(11 * SECOND - 1);
        assert_eq!(throttle.due(), Some(11 * SECOND), "not early");
        throttle.report(11 * SECOND);
        assert_eq!(throttle.due(), None);
        assert_eq!(admit(12 * SECOND), 10, "the next interval has begun with the report");
        throttle.finish(12 * SECOND);
        assert_eq!((throttle.due(), throttle.suppressed()), (None, 2));
    }

    #[test]
    fn topics_are_bounded() {
        let throttle = LogThrottle::new("loop");
        let name = |n: usize| -> &'static str { Box::leak(n.to_string().into_boxed_str()) };
        for n in 0..1000 {
            admit(&throttle, Topic::of_program(name(n)), 0);
        }
        assert_eq!(throttle.lock().len(), MAX_PROGRAM_TOPICS + 1);
        assert_eq!(throttle.suppressed(), 1000 - MAX_PROGRAM_TOPICS as u64 - u64::from(BURST));
    }

    #[test]
    fn the_end_of_time_is_not_passed() {
        let throttle = LogThrottle::new("loop");
        while admit(&throttle, PEER_ERRORS, u64::MAX) {}
        assert_eq!(throttle.due(), None, "nobody could wait for it");
        throttle.report(u64::MAX);
        throttle.finish(u64::MAX);
        assert_eq!(throttle.suppressed(), 1);
    }
}
