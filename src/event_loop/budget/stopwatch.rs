//! Measures the time that a loop spends in each phase, without additional clock readings.
//!
//! Each reading charges the time since the previous one to a phase. A turn that only moves bytes
//! has two readings: after the poll and before the next one. So I/O and flush are one span. In one
//! turn of [`SAMPLED`] the second reading is made between I/O and flush instead, and the flush is
//! charged together with the next poll. Comparing the cost per event of both kinds of turn tells
//! how much of the span is the flush. So the times of I/O and flush are estimates, but their sum is
//! exact.
//!
//! Invariant: the times of the phases add up to the lifetime of the loop. Runs on the loop's
//! thread. Reads no clock itself.

use crate::metrics::Metrics;

/// One turn in this many is read between I/O and flush instead of after both.
const SAMPLED: u64 = 64;

/// The number of events after which older ones count half.
const MEMORY: u64 = 1 << 14;

/// The activity of the loop between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Polling,
    Io,
    Tasks,
    Timers,
    Flushing,
    /// I/O and flush, with no reading between them.
    IoAndFlushing,
    /// Flush and poll, in a sampled turn.
    FlushingAndPolling,
}

pub(crate) struct Stopwatch {
    /// The previous reading.
    last: u64,
    /// The activity since then.
    span: Span,
    /// When the poll returned.
    turn_began: u64,
    /// Whether the turn is still running.
    in_turn: bool,
    turns: u64,
    /// The number of events in this turn.
    events: u64,
    /// The cost of events without the flush, and with it.
    without: Cost,
    with: Cost,
}

/// The total time of a number of events, in nanoseconds.
#[derive(Default)]
struct Cost {
    time: u64,
    events: u64,
}

impl Cost {
    fn add(&mut self, time: u64, events: u64) {
        self.time = self.time.saturating_add(time);
        self.events += events;
        if self.events > MEMORY {
            self.time /= 2;
            self.events /= 2;
        }
    }

    fn of(&self, events: u64) -> Option<u64> {
        let time = (u128::from(self.time) * u128::from(events)).checked_div(u128::from(self.events))?;
        u64::try_from(time).ok()
    }
}

impl Stopwatch {
    pub(crate) fn new(now: u64) -> Self {
        Stopwatch {
            last: now,
            span: Span::Polling,
            turn_began: now,
            in_turn: false,
            turns: 0,
            events: 0,
            without: Cost::default(),
            with: Cost::default(),
        }
    }

    /// Records a clock reading: the current span ends and `next` begins.
    #[inline(always)]
    pub(crate) fn lap(&mut self, now: u64, next: Span, metrics: &Metrics) {
        let took = now - self.last;
        match self.span {
            Span::Polling => metrics.time_polling.add(took),
            Span::Io => metrics.time_io.add(took),
            Span::Tasks => metrics.time_tasks.add(took),
            Span::Timers => metrics.time_timers.add(took),
            Span::Flushing => metrics.time_flushing.add(took),
            Span::IoAndFlushing => {
                self.with.add(took, self.events);
                let io = self.without.of(self.events).unwrap_or(took / 2).min(took);
                metrics.time_io.add(io);
                metrics.time_flushing.add(took - io);
            }
            Span::FlushingAndPolling => {
                let io = self.last - self.turn_began;
                self.without.add(io, self.events);
                let both = self.with.of(self.events).unwrap_or(io);
                let flushing = both.saturating_sub(io).min(took);
                metrics.time_flushing.add(flushing);
                metrics.time_polling.add(took - flushing);
            }
        }
        (self.last, self.span) = (now, next);
    }

    /// Replaces the current span, when it turns out to be another one.
    pub(crate) fn rename(&mut self, span: Span) {
        self.span = span;
    }

    /// Begins a turn, after the poll has returned and its reading was made.
    pub(crate) fn begin_turn(&mut self) {
        self.turns += 1;
        self.events = 0;
        self.turn_began = self.last;
        self.in_turn = true;
    }

    /// Records the number of sources that were handled.
    pub(crate) fn note_events(&mut self, events: u64) {
        if events > 0 {
            self.events = events;
            self.span = Span::IoAndFlushing;
        }
    }

    /// Returns the current span.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// Ends the turn as of the last reading. Returns its duration, or `None` if the turn has
    /// already ended.
    pub(crate) fn end_turn(&mut self) -> Option<u64> {
        std::mem::take(&mut self.in_turn).then(|| self.last - self.turn_began)
    }

    /// Returns whether this turn is read before its flush instead of after it.
    pub(crate) fn is_sampled(&self) -> bool {
        self.span == Span::IoAndFlushing && self.turns.is_multiple_of(SAMPLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    fn times(metrics: &Metrics) -> [u64; 5] {
        [
            &metrics.time_polling,
            &metrics.time_io,
            &metrics.time_tasks,
            &metrics.time_timers,
            &metrics.time_flushing,
        ]
        .map(|counter| counter.read())
    }

    #[test]
    fn every_nanosecond_is_charged_once() {
        let metrics = Metrics::default();
        let mut watch = Stopwatch::new(1000);
        let mut now = 1000;
        let spans = [Span::Io, Span::Tasks, Span::Timers, Span::Flushing, Span::Polling, Span::IoAndFlushing];
        for n in 0..100 {
            now += 7 * n + 1;
            watch.lap(now, spans[n as usize % spans.len()], &metrics);
        }
        assert_eq!(times(&metrics).iter().sum::<u64>(), now - 1000);
        assert!(times(&metrics).iter().all(|time| *time > 0));
    }

    #[test]
    fn samples_separate_flushing_from_io() {
        let metrics = Metrics::default();
        let mut watch = Stopwatch::new(0);
        let (now, mut readings) = (Cell::new(0), 0);
        let mut lap = |watch: &mut Stopwatch, by, next| {
            now.set(now.get() + by);
            readings += 1;
            watch.lap(now.get(), next, &metrics);
        };
        // Each turn sleeps for 100 units, and takes 30 units of I/O and 10 of flushing for each of
        // some events.
        let (turns, mut events) = (63_999, 0);
        for turn in 0..turns {
            let n = 1 + turn % 7;
            events += n;
            lap(&mut watch, 100, Span::Flushing);
            watch.begin_turn();
            watch.note_events(n);
            if watch.is_sampled() {
                watch.rename(Span::Io);
                lap(&mut watch, 30 * n, Span::FlushingAndPolling);
                assert_eq!(watch.end_turn(), Some(30 * n));
                now.set(now.get() + 10 * n);
                continue;
            }
            lap(&mut watch, 40 * n, Span::Polling);
            assert_eq!((watch.end_turn(), watch.end_turn()), (Some(40 * n), None));
        }
        assert_eq!(readings, turns * 2, "two readings per turn");
        let [polling, io, tasks, timers, flushing] = times(&metrics);
        assert_eq!(polling + io + tasks + timers + flushing, now.get(), "nothing is lost");
        let near = |a: u64, b: u64| a.abs_diff(b) < b / 50;
        assert!(near(polling, turns * 100) && near(io, events * 30) && near(flushing, events * 10));
    }
}
