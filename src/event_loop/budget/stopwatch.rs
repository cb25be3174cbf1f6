//! Measures where a loop's time goes, from the clock readings that a turn makes anyway.
//!
//! Each reading charges the time since the previous one to a phase. A turn that only moves bytes
//! has two readings: after the poll and before the next one. So I/O and flush are one span. In one
//! turn of [`SAMPLED`] the second reading is made between I/O and flush instead. The sleep then
//! ends later by the time of the flush. The cost of an event in turns of either kind tells how much
//! of the span is the flush. So the times of I/O and flush are estimates, but their sum is exact.
//!
//! Invariant: the times of the phases add up to the lifetime of the loop. Runs on the loop's
//! thread. Reads no clock itself.

use crate::metrics::Metrics;

/// One turn in so many is read between I/O and flush instead of after both.
const SAMPLED: u64 = 64;

/// Events after which older ones count half.
const MEMORY: u64 = 1 << 14;

/// What the loop does between two readings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Span {
    Polling,
    Io,
    Tasks,
    Timers,
    Flushing,
    /// Both, with no reading between them.
    IoAndFlushing,
    /// Both, in a sampled turn.
    FlushingAndPolling,
}

pub(crate) struct Stopwatch {
    /// The reading before.
    last: u64,
    /// What has gone on since.
    span: Span,
    /// When the poll returned.
    turn_began: u64,
    /// Whether the turn goes on.
    in_turn: bool,
    turns: u64,
    /// Events of this turn.
    events: u64,
    /// What events cost without the flush, and with it.
    without: Cost,
    with: Cost,
}

/// Nanoseconds that events took.
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

    /// The clock was read: what has gone on so far ends, `next` begins.
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

    /// What goes on turns out to be something else.
    pub(crate) fn rename(&mut self, span: Span) {
        self.span = span;
    }

    /// The poll has returned, and the reading for it was made.
    pub(crate) fn begin_turn(&mut self) {
        self.turns += 1;
        self.events = 0;
        self.turn_began = self.last;
        self.in_turn = true;
    }

    /// So many sources were handled.
    pub(crate) fn note_events(&mut self, events: u64) {
        if events > 0 {
            self.events = events;
            self.span = Span::IoAndFlushing;
        }
    }

    /// What the loop is doing.
    pub(crate) fn span(&self) -> Span {
        self.span
    }

    /// The turn is over, as of the last reading: how long it took, unless that was asked before.
    pub(crate) fn end_turn(&mut self) -> Option<u64> {
        std::mem::take(&mut self.in_turn).then(|| self.last - self.turn_began)
    }

    /// Whether this turn is to be read before it flushes and not afterwards.
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
    fn samples_tell_flushing_from_io() {
        let metrics = Metrics::default();
        let mut watch = Stopwatch::new(0);
        let (now, mut readings) = (Cell::new(0), 0);
        let mut lap = |watch: &mut Stopwatch, by, next| {
            now.set(now.get() + by);
            readings += 1;
            watch.lap(now.get(), next, &metrics);
        };
        // Turns of 30 units of I/O and 10 of flushing for each of some events, after 100 of sleep.
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
        assert_eq!(readings, turns * 2, "never a third");
        let [polling, io, tasks, timers, flushing] = times(&metrics);
        assert_eq!(polling + io + tasks + timers + flushing, now.get(), "nothing is lost");
        let near = |a: u64, b: u64| a.abs_diff(b) < b / 50;
        assert!(near(polling, turns * 100) && near(io, events * 30) && near(flushing, events * 10));
    }
}
