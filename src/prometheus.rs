//! What loops count, in the text format of Prometheus (OpenMetrics 1.0).
//!
//! Feature `prometheus`. [`encode`] makes the whole text of one group, to be served under `/metrics` with the content
//! type `application/openmetrics-text; version=1.0.0; charset=utf-8`. A program that has metrics of its own registers a
//! [`Collector`] with its [`Registry`] instead.
//!
//! Always holds: every field of [`LoopMetrics`] is exported, under names that begin with `netwheel_`, with the loop's
//! name as the label `event_loop`; times are in seconds. Runs on whatever thread scrapes, which never holds up a loop.
//! It owns no metric: the loops do.
//!
//! | name | labels besides `event_loop` |
//! |---|---|
//! | `netwheel_wakes_total` | `cause`: `io`, `waker`, `deadline`, `interrupted`, `premature` |
//! | `netwheel_time_seconds_total` | `phase`: `polling`, `io`, `tasks`, `timers`, `flushing` |
//! | `netwheel_read_bytes_total`, `netwheel_written_bytes_total` | |
//! | `netwheel_lag_seconds`, `netwheel_turn_time_seconds` (histograms) | `le`: 1.024 µs times powers of two |
//! | `netwheel_channels`, `netwheel_tasks_pending`, `netwheel_timers_pending`, `netwheel_wheel_pending` (gauges) | |
//! | `netwheel_` + the name of the field + `_total` for all others | |

use crate::{Error, EventLoop, EventLoopGroup, Histogram, LoopMetrics, Result};
use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text},
    metrics::MetricType,
    registry::{Registry, Unit},
};
use std::{fmt, time::Duration};

/// Reads the metrics of the loops of one or several groups when a [`Registry`] is encoded.
///
/// Register one collector for all groups of a program: the format wants each metric declared once.
///
/// ```
/// use netwheel::{EventLoopGroup, prometheus::Collector};
/// use prometheus_client::registry::Registry;
///
/// let acceptors = EventLoopGroup::builder().threads(1).name("acceptor").build()?;
/// let workers = EventLoopGroup::builder().threads(2).name("worker").build()?;
/// let mut registry = Registry::default();
/// registry.register_collector(Box::new(Collector::new(&acceptors).and(&workers)?));
///
/// let mut text = String::new();
/// prometheus_client::encoding::text::encode(&mut text, &registry).expect("a string takes all");
/// assert!(text.contains(r#"netwheel_turns_total{event_loop="worker-1"} 0"#));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Collector {
    loops: Vec<EventLoop>,
}

impl Collector {
    /// For the loops of this group.
    pub fn new(group: &EventLoopGroup) -> Self {
        Collector { loops: group.event_loops().to_vec() }
    }

    /// For the loops of this group too.
    ///
    /// # Errors
    /// If one of its loops is called like one that is there: they could not be told apart. Give the groups names.
    pub fn and(mut self, group: &EventLoopGroup) -> Result<Self> {
        for event_loop in group.event_loops() {
            let name = event_loop.name();
            if self.loops.iter().any(|other| other.name() == name) {
                return Err(Error::setting("name", name, "a name that no other collected loop has"));
            }
            self.loops.push(event_loop.clone());
        }
        Ok(self)
    }
}

impl prometheus_client::collector::Collector for Collector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let metrics: Vec<_> = self.loops.iter().map(EventLoop::metrics).collect();
        // The same families in the same order for each loop; the format wants all loops of a family together.
        let mut families: Vec<_> = metrics.iter().map(|metrics| families(metrics).into_iter()).collect();
        loop {
            let of_each_loop: Vec<_> = families.iter_mut().filter_map(Iterator::next).collect();
            let Some(Family { name, help, unit, kind, .. }) = of_each_loop.first() else { return Ok(()) };
            let name = format!("netwheel_{name}");
            let mut encoder = encoder.encode_descriptor(&name, help, unit.as_ref(), *kind)?;
            for (event_loop, family) in self.loops.iter().zip(&of_each_loop) {
                for (label, value) in &family.samples {
                    let labels = [("event_loop", event_loop.name())].into_iter().chain(*label);
                    value.encode(encoder.encode_family(&labels.collect::<Vec<_>>())?)?;
                }
            }
        }
    }
}

/// The metrics of a group's loops, as a whole text that ends with `# EOF`.
///
/// ```
/// let group = netwheel::EventLoopGroup::builder().threads(1).build()?;
/// let text = netwheel::prometheus::encode(&group)?;
/// assert!(text.contains("# UNIT netwheel_lag_seconds seconds"));
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// # Errors
/// None is known: writing to a string does not fail.
pub fn encode(group: &EventLoopGroup) -> Result<String> {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Collector::new(group)));
    let mut text = String::new();
    text::encode(&mut text, &registry).map_err(|_| Error::other("the metrics could not be encoded"))?;
    Ok(text)
}

/// One metric of one loop.
struct Family<'a> {
    name: &'static str,
    help: &'static str,
    unit: Option<Unit>,
    kind: MetricType,
    /// With at most one label besides the loop's name.
    samples: Vec<(Option<(&'static str, &'static str)>, Value<'a>)>,
}

enum Value<'a> {
    Counter(u64),
    Seconds(Duration),
    Gauge(u64),
    Histogram(&'a Histogram),
}

impl Value<'_> {
    fn encode(&self, mut encoder: MetricEncoder<'_>) -> fmt::Result {
        match self {
            Value::Counter(n) => encoder.encode_counter::<NoLabelSet, _, f64>(n, None),
            Value::Seconds(time) => encoder.encode_counter::<NoLabelSet, _, f64>(&time.as_secs_f64(), None),
            Value::Gauge(n) => encoder.encode_gauge(n),
            Value::Histogram(histogram) => {
                let (sum, count) = (histogram.sum().as_secs_f64(), histogram.count());
                encoder.encode_histogram::<NoLabelSet>(sum, count, &octaves(histogram), None)
            }
        }
    }
}

/// One bucket for each power of two, in seconds: a quarter as many series, and still enough for a graph.
fn octaves(histogram: &Histogram) -> Vec<(f64, u64)> {
    let mut octaves = Vec::new();
    let mut count = 0;
    for (bound, n) in histogram.buckets() {
        count += n;
        let last = bound == Duration::MAX;
        if last || bound.as_nanos().is_power_of_two() {
            octaves.push((if last { f64::INFINITY } else { bound.as_secs_f64() }, count));
            count = 0;
        }
    }
    octaves
}

fn family<'a>(name: &'static str, help: &'static str, kind: MetricType, value: Value<'a>) -> Family<'a> {
    Family { name, help, unit: None, kind, samples: vec![(None, value)] }
}

fn counter(name: &'static str, help: &'static str, n: u64) -> Family<'static> {
    family(name, help, MetricType::Counter, Value::Counter(n))
}

fn gauge(name: &'static str, help: &'static str, n: u64) -> Family<'static> {
    family(name, help, MetricType::Gauge, Value::Gauge(n))
}

impl Family<'_> {
    fn unit(mut self, unit: Unit) -> Self {
        self.unit = Some(unit);
        self
    }
}

fn histogram<'a>(name: &'static str, help: &'static str, histogram: &'a Histogram) -> Family<'a> {
    family(name, help, MetricType::Histogram, Value::Histogram(histogram)).unit(Unit::Seconds)
}

fn seconds(name: &'static str, help: &'static str, time: Duration) -> Family<'static> {
    family(name, help, MetricType::Counter, Value::Seconds(time)).unit(Unit::Seconds)
}

/// All metrics of one loop. There is no `..` in the pattern, so that none is forgotten.
fn families(metrics: &LoopMetrics) -> Vec<Family<'_>> {
    let LoopMetrics {
        turns,
        polls,
        wakes_io,
        wakes_waker,
        wakes_deadline,
        wakes_interrupted,
        wakes_premature,
        polls_without_sleep,
        ready,
        wakes_written,
        wakes_failed,
        wakes_in_vain,
        rebuilds,
        sources_moved,
        sources_lost,
        rests,
        io_panics,
        poll_errors,
        clock_reads,
        tasks_run,
        tasks_panicked,
        tasks_failed,
        tasks_deferred,
        timers_fired,
        timers_cancelled,
        wheel_fired,
        wheel_cancelled,
        timers_pending,
        wheel_pending,
        channels,
        accepted,
        rejected_filter,
        rejected_limit,
        accept_errors,
        connected,
        connect_errors,
        channels_closed,
        channel_errors,
        reads,
        reads_blocked,
        bytes_read,
        messages_read,
        writes,
        writes_blocked,
        bytes_written,
        lingering,
        lingering_cut,
        closes_unsent,
        bytes_unsent,
        messages_written,
        messages_dropped,
        messages_refused,
        closes_overflowed,
        reads_paused,
        writes_paused,
        broadcasts,
        deliveries,
        broadcast_encodings,
        broadcasts_deferred,
        outbound_bytes,
        reads_held,
        datagram_channels,
        datagrams_received,
        datagrams_sent,
        datagrams_refused,
        event_sources,
        event_source_errors,
        tasks_pending,
        tasks_refused,
        log_lines_suppressed,
        time_polling,
        time_io,
        time_tasks,
        time_timers,
        time_flushing,
        time_rebuilding,
        lag,
        turn_time,
    } = metrics;
    let split = |label, samples: &[(&'static str, u64)]| {
        samples.iter().map(|(value, n)| (Some((label, *value)), Value::Counter(*n))).collect()
    };
    let wakes = [
        ("io", *wakes_io),
        ("waker", *wakes_waker),
        ("deadline", *wakes_deadline),
        ("interrupted", *wakes_interrupted),
        ("premature", *wakes_premature),
    ];
    let phases = [
        ("polling", *time_polling),
        ("io", *time_io),
        ("tasks", *time_tasks),
        ("timers", *time_timers),
        ("flushing", *time_flushing),
    ];
    vec![
        counter("turns", "Passes of the loop.", *turns),
        counter("polls", "Polls that may sleep.", *polls),
        Family {
            name: "wakes",
            help: "Polls that returned, by what woke the loop.",
            unit: None,
            kind: MetricType::Counter,
            samples: split("cause", &wakes),
        },
        counter(
            "polls_without_sleep",
            "Polls that were not to sleep, since work was waiting.",
            *polls_without_sleep,
        ),
        counter("ready", "Sources that were handled since they were ready.", *ready),
        counter("wakes_written", "Writes to the waker.", *wakes_written),
        counter("wakes_failed", "Wakes for which the writes to the waker failed.", *wakes_failed),
        counter(
            "wakes_in_vain",
            "Polls that the waker ended although there was nothing to do.",
            *wakes_in_vain,
        ),
        counter("rebuilds", "Times that the poll was rebuilt.", *rebuilds),
        counter("sources_moved", "Sockets that a rebuild moved to the new poll.", *sources_moved),
        counter("sources_lost", "Sockets that a rebuild could not move, and closed.", *sources_lost),
        counter("rests", "Short sleeps of a loop that would have turned in vain.", *rests),
        counter("io_panics", "Panics while a socket was handled that no channel caught.", *io_panics),
        counter("poll_errors", "Polls that failed.", *poll_errors),
        counter("clock_reads", "Readings of the clock.", *clock_reads),
        counter("tasks_run", "Tasks and channel mail that were run.", *tasks_run),
        counter("tasks_panicked", "Tasks that panicked.", *tasks_panicked),
        counter("tasks_failed", "Tasks that returned an error.", *tasks_failed),
        counter("log_lines_suppressed", "Lines of the log that were suppressed.", *log_lines_suppressed),
        counter(
            "tasks_deferred",
            "Task phases that ended with tasks left for the next turn.",
            *tasks_deferred,
        ),
        counter("tasks_refused", "Tasks that were refused because the queue was full.", *tasks_refused),
        gauge("tasks_pending", "Tasks that wait in the queue.", *tasks_pending),
        counter("timers_fired", "Scheduled tasks that came due.", *timers_fired),
        counter("timers_cancelled", "Scheduled tasks that ended before they came due.", *timers_cancelled),
        gauge("timers_pending", "Scheduled tasks that wait.", *timers_pending),
        counter("wheel_fired", "Idle entries that came due.", *wheel_fired),
        counter("wheel_cancelled", "Idle entries that ended before they came due.", *wheel_cancelled),
        gauge("wheel_pending", "Idle entries that wait.", *wheel_pending),
        gauge("channels", "Connections that are open.", *channels),
        counter("accepted", "Connections accepted and let in.", *accepted),
        counter("rejected_filter", "Connections denied by the filter of their server.", *rejected_filter),
        counter("rejected_limit", "Connections beyond a limit of their server.", *rejected_limit),
        counter("accept_errors", "Accepts that failed.", *accept_errors),
        counter("connected", "Connections made.", *connected),
        counter("connect_errors", "Connections that could not be made.", *connect_errors),
        counter("channels_closed", "Connections closed, by either end.", *channels_closed),
        counter("channel_errors", "Errors and panics of channels.", *channel_errors),
        counter("reads", "Reads from sockets.", *reads),
        counter("reads_blocked", "Reads from sockets that found nothing.", *reads_blocked),
        counter("read", "Bytes read from sockets.", *bytes_read).unit(Unit::Bytes),
        counter("messages_read", "Messages that handlers were given.", *messages_read),
        counter("writes", "Writes to sockets.", *writes),
        counter("writes_blocked", "Writes to sockets that the kernel took nothing of.", *writes_blocked),
        counter("written", "Bytes written to sockets.", *bytes_written).unit(Unit::Bytes),
        gauge("lingering", "Sockets of closed channels that wait for their peers.", *lingering),
        counter(
            "lingering_cut",
            "Lingering sockets that were closed since there were too many.",
            *lingering_cut,
        ),
        counter("closes_unsent", "Channels that closed with bytes unsent.", *closes_unsent),
        counter("unsent", "Bytes that were not sent when their channel closed.", *bytes_unsent)
            .unit(Unit::Bytes),
        counter("messages_written", "Messages that were written.", *messages_written),
        counter(
            "messages_dropped",
            "Messages that were dropped because their channel had too much to send.",
            *messages_dropped,
        ),
        counter(
            "messages_refused",
            "Messages that were refused because too much waited to be sent.",
            *messages_refused,
        ),
        counter(
            "closes_overflowed",
            "Channels that were closed because they had too much to send.",
            *closes_overflowed,
        ),
        counter("reads_paused", "Times that a limit of traffic held up reading.", *reads_paused),
        counter("writes_paused", "Times that a limit of traffic held up writing.", *writes_paused),
        counter("broadcasts", "Broadcasts to channels of the loop.", *broadcasts),
        counter("deliveries", "Channels that broadcasts have come to.", *deliveries),
        counter("broadcast_encodings", "Encodings of messages for broadcasts.", *broadcast_encodings),
        counter(
            "broadcasts_deferred",
            "Turns that ended in the middle of a broadcast.",
            *broadcasts_deferred,
        ),
        gauge("outbound", "Bytes that wait to be sent.", *outbound_bytes).unit(Unit::Bytes),
        counter("reads_held", "Pauses of reading since the program held too much.", *reads_held),
        gauge("datagram_channels", "Datagram channels that are open.", *datagram_channels),
        counter("datagrams_received", "Datagrams that handlers were given.", *datagrams_received),
        counter("datagrams_sent", "Datagrams that the kernel took.", *datagrams_sent),
        counter("datagrams_refused", "Datagrams that were refused or dropped.", *datagrams_refused),
        gauge("event_sources", "Event sources that are registered.", *event_sources),
        counter("event_source_errors", "Event sources that ended because of an error.", *event_source_errors),
        Family {
            name: "time",
            help: "Time of the loop, by what it was spent on.",
            unit: Some(Unit::Seconds),
            kind: MetricType::Counter,
            samples: phases.map(|(phase, time)| (Some(("phase", phase)), Value::Seconds(time))).into(),
        },
        seconds("rebuilding", "Time that rebuilding the poll took.", *time_rebuilding),
        histogram("lag", "How late scheduled tasks and idle entries ran.", lag),
        histogram("turn_time", "How long turns took, without their sleep.", turn_time),
    ]
}
