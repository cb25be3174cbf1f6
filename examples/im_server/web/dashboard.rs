//! The data of the dashboard, sampled once a second while a page is open.
//!
//! Each viewer is a stream of server-sent events. A viewer that does not keep up misses events,
//! because each event has the whole state. One that does not read is disconnected after
//! `--write-timeout`. docs/im-dashboard.md describes the events.

use super::timer_lists::{Lists, TimerLists};
use crate::hub::{Hub, lock};
use netwheel::{
    Channel, ChannelGroup, EventLoop, EventLoopGroup, Result,
    durable::DurableMetrics,
    http::{Part, Response, ServerSentEvent},
    metrics::{Histogram, LoopMetrics},
};
use serde::Serialize;
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

/// Time between two events.
pub(crate) const PERIOD: Duration = Duration::from_secs(1);
/// Maximum number of viewers.
const MAX_VIEWERS: usize = 64;

pub(crate) struct Dashboard {
    hub: Arc<Hub>,
    loops: Vec<EventLoop>,
    viewers: ChannelGroup<Part<Response>>,
    last: Mutex<Sample>,
    lists: Lists,
}

/// The counters at the time of an event, from which the next one computes rates.
struct Sample {
    time: Instant,
    messages: u64,
    deliveries: u64,
    bytes_in: u64,
    bytes_out: u64,
    refused: u64,
    conflated: u64,
    loops: Vec<LoopMetrics>,
    /// `None` in tests.
    timers: Option<DurableMetrics>,
}

/// One event.
#[derive(Serialize)]
struct State {
    /// Milliseconds since 1970 (UTC).
    t: u64,
    /// Seconds since the previous event.
    period: f64,
    /// Clients of the chat.
    connections: usize,
    messages_per_second: f64,
    deliveries_per_second: f64,
    /// Time from a message to its last copy in a member's buffer, in microseconds, in this period.
    latency_us: Quantiles,
    /// Clients whose queued bytes are above their high water mark.
    slow_consumers: usize,
    /// Messages that newer ones have replaced before they were sent, because clients are slow.
    replaced_per_second: f64,
    /// Members of rooms that receive the number of messages instead of messages.
    passive_members: usize,
    bytes_in_per_second: f64,
    bytes_out_per_second: f64,
    /// Connections, handshakes and logins that overloaded loops have refused.
    refused_per_second: f64,
    /// Callbacks longer than the watchdog's limit, since the start of the server.
    stalls: u64,
    loops: Vec<LoopState>,
    durable: Option<TimersState>,
}

#[derive(Serialize)]
struct Quantiles {
    p50: u64,
    p99: u64,
    max: u64,
    samples: u64,
}

#[derive(Serialize)]
struct LoopState {
    connections: u64,
    /// The 99th percentile of the delay of timers in this period, in microseconds.
    lag_us: u64,
    /// The longest turn of this period, in microseconds.
    turn_us: u64,
    /// Timers that are waiting, on the heap and on the wheel.
    timers: u64,
    /// The share of the period in which the loop worked.
    busy: f64,
    /// Classes of work that the loop limits because it is overloaded: connections, handshakes,
    /// logins.
    overload_level: u64,
}

/// Reminders.
#[derive(Serialize)]
struct TimersState {
    /// The store has failed, so nothing fires any more.
    is_stopped: bool,
    /// Timers that wait for their time.
    pending: u64,
    dead: u64,
    fired_per_second: f64,
    retries_per_second: f64,
    /// Time from due to fired in this period, in microseconds.
    lateness_us: Quantiles,
    /// Average number of changes in a transaction of this period.
    batch: f64,
    /// Time that the transactions of this period took, in microseconds.
    commit_us: Quantiles,
    #[serde(flatten)]
    lists: TimerLists,
}

impl Dashboard {
    pub(crate) fn new(hub: Arc<Hub>, group: &EventLoopGroup) -> Self {
        let loops = group.event_loops().to_vec();
        let last = Mutex::new(Sample::take(&hub, &loops));
        let viewers =
            ChannelGroup::builder().bulk(true).build().expect("the other settings are the defaults");
        Dashboard { hub, loops, viewers, last, lists: Lists::default() }
    }

    /// Adds a viewer. Returns whether there was room.
    pub(crate) fn add(&self, viewer: Channel<Part<Response>>) -> bool {
        self.viewers.len() < MAX_VIEWERS && self.viewers.join(viewer)
    }

    /// Sends an event to the viewers that keep up.
    pub(crate) fn publish(&self) -> Result {
        let mut last = lock(&self.last);
        let next = Sample::take(&self.hub, &self.loops);
        let before = std::mem::replace(&mut *last, next);
        let latency = self.hub.latency.take(!self.viewers.is_empty());
        if self.viewers.is_empty() {
            return Ok(());
        }
        let lists = self.hub.later().map(|later| self.lists.take(later.timers())).unwrap_or_default();
        let state = State::between(&before, &last, &self.hub, latency, lists);
        drop(last);
        let json = serde_json::to_string(&state).map_err(netwheel::Error::other)?;
        // A viewer whose loop is overloaded misses this event, too.
        let event = ServerSentEvent::data(json).into_part()?;
        let _ = self.viewers.broadcast_where(|viewer| viewer.is_writable(), event);
        Ok(())
    }
}

impl Sample {
    fn take(hub: &Hub, loops: &[EventLoop]) -> Sample {
        let loops: Vec<LoopMetrics> = loops.iter().map(EventLoop::metrics).collect();
        Sample {
            time: hub.now(),
            messages: hub.counters.messages.load(Ordering::Relaxed),
            deliveries: hub.counters.deliveries.load(Ordering::Relaxed),
            bytes_in: loops.iter().map(|metrics| metrics.bytes_read).sum(),
            bytes_out: loops.iter().map(|metrics| metrics.bytes_written).sum(),
            refused: loops.iter().map(|of| of.shed_accepts + of.shed_handshakes + of.shed_logins).sum(),
            conflated: loops.iter().map(|metrics| metrics.messages_conflated).sum(),
            loops,
            timers: hub.later().map(|later| later.timers().metrics()),
        }
    }
}

impl State {
    fn between(
        before: &Sample,
        now: &Sample,
        hub: &Hub,
        mut latency: Vec<Duration>,
        lists: TimerLists,
    ) -> State {
        let seconds = now.time.duration_since(before.time).as_secs_f64().max(f64::EPSILON);
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        latency.sort_unstable();
        let loops = now.loops.iter().zip(&before.loops);
        State {
            t: hub.unix_ms(),
            period: seconds,
            connections: hub.counters.connections.load(Ordering::Relaxed),
            messages_per_second: rate(now.messages, before.messages),
            deliveries_per_second: rate(now.deliveries, before.deliveries),
            latency_us: Quantiles::of(&latency),
            slow_consumers: hub.counters.slow_consumers.load(Ordering::Relaxed),
            replaced_per_second: rate(now.conflated, before.conflated),
            passive_members: hub.rooms.passive_members(),
            bytes_in_per_second: rate(now.bytes_in, before.bytes_in),
            bytes_out_per_second: rate(now.bytes_out, before.bytes_out),
            refused_per_second: rate(now.refused, before.refused),
            stalls: hub.counters.stalls.load(Ordering::Relaxed),
            loops: loops.map(|(now, before)| LoopState::between(before, now, seconds)).collect(),
            durable: now.timers.as_ref().map(|timers| {
                let before = before.timers.as_ref().unwrap_or(timers);
                TimersState::between(before, timers, seconds, lists)
            }),
        }
    }
}

impl Quantiles {
    fn of(sorted: &[Duration]) -> Self {
        let at = |q: f64| {
            let last = sorted.len().saturating_sub(1);
            sorted.get((last as f64 * q).round() as usize).map_or(0, micros)
        };
        Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0), samples: sorted.len() as u64 }
    }

    fn of_histogram(histogram: &Histogram) -> Self {
        let at = |q| micros(&histogram.quantile(q));
        Quantiles { p50: at(0.5), p99: at(0.99), max: at(1.0), samples: histogram.count() }
    }
}

impl TimersState {
    fn between(before: &DurableMetrics, now: &DurableMetrics, seconds: f64, lists: TimerLists) -> Self {
        let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
        let commits = now.commits.saturating_sub(before.commits).max(1);
        TimersState {
            is_stopped: now.is_stopped,
            pending: now.pending,
            dead: now.dead,
            fired_per_second: rate(now.fired, before.fired),
            retries_per_second: rate(now.retried, before.retried),
            lateness_us: Quantiles::of_histogram(&now.lateness.since(&before.lateness)),
            batch: now.changes.saturating_sub(before.changes) as f64 / commits as f64,
            commit_us: Quantiles::of_histogram(&now.commit_time.since(&before.commit_time)),
            lists,
        }
    }
}

impl LoopState {
    fn between(before: &LoopMetrics, now: &LoopMetrics, seconds: f64) -> Self {
        // A sleep is added when it ends, so the time of the work is more exact.
        let work = |metrics: &LoopMetrics| {
            metrics.time_io + metrics.time_tasks + metrics.time_timers + metrics.time_flushing
        };
        let busy = work(now).saturating_sub(work(before)).as_secs_f64();
        let quantile = |now: &Histogram, before: &Histogram, q| micros(&now.since(before).quantile(q));
        LoopState {
            connections: now.channels,
            lag_us: quantile(&now.lag, &before.lag, 0.99),
            turn_us: quantile(&now.turn_time, &before.turn_time, 1.0),
            timers: now.timers_pending + now.wheel_pending,
            busy: (busy / seconds).clamp(0.0, 1.0),
            overload_level: now.overload_level,
        }
    }
}

fn micros(time: &Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
