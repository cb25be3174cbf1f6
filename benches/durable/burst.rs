//! Many timers that are due in the same second, beside an echo and a task on the same loop.

use crate::{
    TOPIC,
    figures::{say, say_memory},
    lag::{Echoes, TaskLag},
    report::ms_at,
};
use hdrhistogram::Histogram;
use netwheel::{
    Error, EventLoopGroup, Result,
    diagnostics::Watchdog,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic},
};
use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
        mpsc::channel,
    },
    time::{Duration, SystemTime},
};

/// A turn that takes longer is a stall.
const STALL: Duration = Duration::from_millis(50);

/// The longest time until the next timer fires.
const PATIENCE: Duration = Duration::from_secs(60);

fn say_times(name: &str, times: &Histogram<u64>) {
    for (percentile, end) in [(50.0, "p50"), (99.0, "p99"), (100.0, "max")] {
        say(&format!("{name}_{end}_ms"), ms_at(times, percentile));
    }
}

pub(crate) fn play(path: &Path, count: usize) -> Result {
    let stalls = Arc::new(AtomicU64::new(0));
    let watchdog = Watchdog::new(STALL).on_stall({
        let stalls = stalls.clone();
        move |stall| {
            eprintln!("{stall}");
            stalls.fetch_add(1, Ordering::Relaxed);
        }
    });
    let group = EventLoopGroup::builder().threads(1).watchdog(watchdog).build()?;
    let (sender, fired) = channel();
    let handler = move |due: Due<String>| {
        let _ = sender.send((due.scheduled(), due.id(), SystemTime::now()));
        due.done();
    };
    let timers = DurableTimers::builder(SqliteStore::open(path)?)
        .topic(Topic::new(TOPIC, Late::RunOnce, Retry::never(), handler))
        .start(&group)?;
    let lag = TaskLag::watch(group.next())?;
    let echoes = Echoes::begin(&group)?;
    let receive = || fired.recv_timeout(PATIENCE).map_err(|_| Error::other("a timer did not fire"));
    let first = receive()?;
    // Until here, the loop was idle.
    say_times("idle_lag", &lag.end());
    say_times("idle_echo", &echoes.end()?);
    let lag = TaskLag::watch(group.next())?;
    let echoes = Echoes::begin(&group)?;
    let mut last = first;
    let mut disorder = 0;
    for _ in 1..count {
        let next = receive()?;
        disorder += u64::from((next.0, next.1) <= (last.0, last.1));
        if next.2 < next.0 {
            return Err(Error::other("a timer fired too early"));
        }
        last = next;
    }
    say_times("lag", &lag.end());
    say_times("echo", &echoes.end()?);
    timers.close().wait()?;
    let metrics = timers.metrics();
    say("disorder", disorder as f64);
    say("stalls", stalls.load(Ordering::Relaxed) as f64);
    say("took_ms", last.2.duration_since(first.0).unwrap_or_default().as_secs_f64() * 1000.0);
    say("ended", metrics.ended as f64);
    say("batch", metrics.changes as f64 / metrics.commits.max(1) as f64);
    say_memory();
    Ok(())
}
