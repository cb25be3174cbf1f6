//! A rate limit for log lines that a peer can cause.
//!
//! Invariants: at most [`LogTopic::burst`] lines of each topic are written per [`INTERVAL`].
//! Further lines are counted. The count is logged after the interval, by the loop, which wakes up
//! for it, or by the next line. If the loop ends earlier, it logs the count. So every suppressed
//! line is reported. Times are in nanoseconds. Thread-safe; the lock is released before a line is
//! written. A line below the log level is neither written nor counted.

use crate::{clock::process_time, machine::SystemMutex};
use log::Level;
use std::{
    sync::{
        OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// The interval of the rate limit, in nanoseconds.
const INTERVAL: u64 = 10 * 1_000_000_000;

/// Default number of lines per topic and interval.
const BURST: u32 = 10;

/// The maximum number of program-defined topics with a limit of their own. Further topics share one
/// limit.
const MAX_PROGRAM_TOPICS: usize = 64;

/// The due time while no lines are suppressed.
const NEVER: u64 = u64::MAX;

/// A kind of log line with its own rate limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogTopic {
    name: &'static str,
    burst: u32,
    of_program: bool,
}

impl LogTopic {
    const fn new(name: &'static str) -> Self {
        LogTopic { name, burst: BURST, of_program: false }
    }

    /// Creates a topic with one line per interval, for a cause that affects all connections alike.
    const fn once(name: &'static str) -> Self {
        LogTopic { name, burst: 1, of_program: false }
    }

    /// Creates a program-defined topic.
    pub(crate) const fn of_program(name: &'static str) -> Self {
        LogTopic { name, burst: BURST, of_program: true }
    }
}

/// Bytes that violate the protocol.
pub(crate) const PEER_ERRORS: LogTopic = LogTopic::new("errors of peers");
/// Broken connections.
pub(crate) const BROKEN: LogTopic = LogTopic::new("broken connections");
/// Other errors of channels, mostly returned by callbacks.
pub(crate) const CHANNEL_ERRORS: LogTopic = LogTopic::new("errors of channels");
/// Connections whose filters were not established.
pub(crate) const HANDSHAKES: LogTopic = LogTopic::new("failed handshakes");
/// Panics in callbacks, tasks and destructors.
pub(crate) const PANICS: LogTopic = LogTopic::new("panics");
/// Channels closed because a callback or codec repeats an error endlessly.
pub(crate) const STUCK: LogTopic = LogTopic::new("stuck channels");
/// Peers that read too slowly.
pub(crate) const SLOW_PEERS: LogTopic = LogTopic::new("slow peers");
/// Connections that ended with unsent bytes, or without lingering.
pub(crate) const UNSENT: LogTopic = LogTopic::new("channels closed with bytes unsent");
/// Messages and tasks for a pipeline that has been replaced.
pub(crate) const REPLACED: LogTopic = LogTopic::new("messages for replaced pipelines");
/// Broadcasts that failed to encode.
pub(crate) const BROADCASTS: LogTopic = LogTopic::new("broadcasts that could not be encoded");
/// Connections that were reset before they were accepted.
pub(crate) const ABORTED: LogTopic = LogTopic::new("connections reset before they were accepted");
/// Accepts that failed.
pub(crate) const ACCEPT_ERRORS: LogTopic = LogTopic::once("failed accepts");
/// Connections that a filter denies.
pub(crate) const DENIED: LogTopic = LogTopic::once("connections denied by a filter");
/// Connections beyond a limit.
pub(crate) const TURNED_AWAY: LogTopic = LogTopic::once("connections beyond a limit");
/// Connections that an overloaded loop refuses.
pub(crate) const OVERLOADED: LogTopic = LogTopic::once("connections refused by an overloaded loop");
/// Failures of the program's farewell or hook for a rejected connection.
pub(crate) const TURNING_AWAY: LogTopic = LogTopic::once("hooks for rejected connections");
/// Connections that could not become channels.
pub(crate) const NOT_OPENED: LogTopic = LogTopic::once("connections that could not be opened");
/// Tasks that returned an error.
pub(crate) const TASKS_FAILED: LogTopic = LogTopic::new("tasks that failed");
/// Connections to Redis that were lost or could not be established.
#[cfg(feature = "redis")]
pub(crate) const REDIS: LogTopic = LogTopic::new("connections to Redis");
/// Writes to the loop's waker that failed.
pub(crate) const WAKES_FAILED: LogTopic = LogTopic::once("failed wakes");

/// The shared topic of all program-defined topics beyond [`MAX_PROGRAM_TOPICS`].
const OTHERS: LogTopic = LogTopic::new("other topics");

/// The rate limit of one event loop.
pub(crate) struct LogThrottle {
    /// The loop's name.
    name: String,
    /// Without race points, because the runs of a simulation must not depend on the log level.
    topics: SystemMutex<Vec<TopicCount>>,
    /// The end of the first interval with suppressed lines, or [`NEVER`].
    due: AtomicU64,
    suppressed: AtomicU64,
}

/// The counts of one topic in the current interval.
struct TopicCount {
    topic: LogTopic,
    /// The target and level of the last suppressed line, which are also used for the report.
    target: &'static str,
    level: Level,
    began: u64,
    written: u32,
    suppressed: u64,
}

/// A line that reports suppressed lines.
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
            topics: SystemMutex::new(Vec::new()),
            due: AtomicU64::new(NEVER),
            suppressed: AtomicU64::new(0),
        }
    }

    /// Returns whether a line may be written at `now`, and counts it if not.
    #[cold]
    pub(crate) fn admit(&self, topic: LogTopic, target: &'static str, level: Level, now: u64) -> bool {
        self.report(now);
        let mut topics = self.topics.lock();
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

    fn count_of(topics: &mut Vec<TopicCount>, topic: LogTopic, now: u64) -> &mut TopicCount {
        let known = topics.iter().position(|count| count.topic == topic);
        let at = known.unwrap_or_else(|| {
            let full = || topics.iter().filter(|count| count.topic.of_program).count() >= MAX_PROGRAM_TOPICS;
            let topic = if topic.of_program && full() { OTHERS } else { topic };
            if let Some(at) = topics.iter().position(|count| count.topic == topic) {
                return at;
            }
            let (target, level) = (module_path!(), Level::Warn);
            topics.push(TopicCount { topic, target, level, began: now, written: 0, suppressed: 0 });
            topics.len() - 1
        });
        &mut topics[at]
    }

    /// Returns the time at which [`report`](LogThrottle::report) should be called next.
    #[inline]
    pub(crate) fn due(&self) -> Option<u64> {
        let due = self.due.load(Ordering::Relaxed);
        (due != NEVER).then_some(due)
    }

    /// Returns whether [`report`](LogThrottle::report) should be called.
    #[inline]
    pub(crate) fn is_due(&self, now: u64) -> bool {
        now >= self.due.load(Ordering::Relaxed)
    }

    /// Reports suppressed lines of the intervals that have ended by `now`.
    #[inline]
    pub(crate) fn report(&self, now: u64) {
        if now >= self.due.load(Ordering::Relaxed) {
            self.report_if(now, |count| now.saturating_sub(count.began) >= INTERVAL);
        }
    }

    /// Reports all suppressed lines. Called when the loop ends.
    pub(crate) fn finish(&self, now: u64) {
        self.report_if(now, |_| true);
    }

    #[cold]
    fn report_if(&self, now: u64, is_over: impl Fn(&TopicCount) -> bool) {
        let mut topics = self.topics.lock();
        let over = topics.iter_mut().filter(|count| is_over(count));
        let reports: Vec<_> = over.filter_map(|count| count.end(now)).collect();
        self.set_due(&topics);
        drop(topics);
        reports.iter().for_each(|report| report.write(&self.name));
    }

    fn set_due(&self, topics: &[TopicCount]) {
        let pending = topics.iter().filter(|count| count.suppressed > 0);
        let due = pending.map(|count| count.began.saturating_add(INTERVAL)).min();
        self.due.store(due.unwrap_or(NEVER), Ordering::Relaxed);
    }

    /// Returns the number of suppressed lines.
    pub(crate) fn suppressed(&self) -> u64 {
        self.suppressed.load(Ordering::Relaxed)
    }
}

impl TopicCount {
    /// Starts the next interval. Returns the report of the last one, if lines were suppressed.
    fn end(&mut self, now: u64) -> Option<Report> {
        let TopicCount { topic, target, level, began, suppressed, .. } = *self;
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

/// A rate limit and the time, for [`log_throttled`] in code without `LoopServices`.
pub(crate) struct LogAt<'a> {
    pub(crate) log: &'a LogThrottle,
    pub(crate) now: u64,
}

/// The rate limit for code outside event loops. Suppressed lines are reported with the next line,
/// or when any loop ends.
pub(crate) fn off_loop() -> LogAt<'static> {
    static OFF_LOOP: OnceLock<LogThrottle> = OnceLock::new();
    LogAt { log: OFF_LOOP.get_or_init(|| LogThrottle::new("netwheel")), now: process_time() }
}

/// Logs a line that a peer can cause, subject to the rate limit. The arguments are `LoopServices`
/// or a [`LogAt`], the topic, the level, and then those of `log::log!`.
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

    fn admit(throttle: &LogThrottle, topic: LogTopic, now: u64) -> bool {
        throttle.admit(topic, module_path!(), Level::Info, now)
    }

    #[test]
    fn the_first_lines_of_each_interval_are_written_and_the_others_counted() {
        let throttle = LogThrottle::new("loop");
        let written = (0..60_000).filter(|ms| admit(&throttle, PEER_ERRORS, ms * 1_000_000)).count();
        assert_eq!(written, 60);
        assert_eq!(throttle.suppressed(), 60_000 - 60);
        let written = (0..60_000).filter(|ms| admit(&throttle, DENIED, ms * 1_000_000)).count();
        assert_eq!(written, 6, "a topic may have a smaller burst");
    }

    #[test]
    fn topics_do_not_share_their_intervals() {
        let throttle = LogThrottle::new("loop");
        while admit(&throttle, PEER_ERRORS, 0) {}
        assert!(admit(&throttle, PANICS, 0));
        assert_eq!(throttle.suppressed(), 1);
    }

    #[test]
    fn a_report_is_due_after_the_interval_if_lines_were_suppressed() {
        let throttle = LogThrottle::new("loop");
        let admit = |now| (0..11).filter(|_| admit(&throttle, PEER_ERRORS, now)).count();
        assert_eq!((throttle.due(), admit(SECOND)), (None, 10));
        assert_eq!(throttle.due(), Some(11 * SECOND));
        throttle.report(11 * SECOND - 1);
        assert_eq!(throttle.due(), Some(11 * SECOND), "not early");
        throttle.report(11 * SECOND);
        assert_eq!(throttle.due(), None);
        assert_eq!(admit(12 * SECOND), 10, "the report has started the next interval");
        throttle.finish(12 * SECOND);
        assert_eq!((throttle.due(), throttle.suppressed()), (None, 2));
    }

    #[test]
    fn topics_are_bounded() {
        let throttle = LogThrottle::new("loop");
        let name = |n: usize| -> &'static str { Box::leak(n.to_string().into_boxed_str()) };
        for n in 0..1000 {
            admit(&throttle, LogTopic::of_program(name(n)), 0);
        }
        assert_eq!(throttle.topics.lock().len(), MAX_PROGRAM_TOPICS + 1);
        assert_eq!(throttle.suppressed(), 1000 - MAX_PROGRAM_TOPICS as u64 - u64::from(BURST));
    }

    #[test]
    fn a_due_time_beyond_the_end_of_time_is_never_reached() {
        let throttle = LogThrottle::new("loop");
        while admit(&throttle, PEER_ERRORS, u64::MAX) {}
        assert_eq!(throttle.due(), None, "that time is never reached");
        throttle.report(u64::MAX);
        throttle.finish(u64::MAX);
        assert_eq!(throttle.suppressed(), 1);
    }
}
