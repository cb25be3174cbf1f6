//! The time from due to the handler, at a steady rate.

use crate::{
    Place, Settings, TOPIC,
    bare::{Bare, now_millis},
    lag::TaskLag,
    report::{Panel, Report, cells, histogram, line, ms_at},
};
use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic},
};
use std::{
    sync::mpsc::channel,
    time::{Duration, SystemTime},
};

/// The number of timers in a transaction while they are prepared.
const BATCH: usize = 1000;

/// Time for the timers to be opened, in milliseconds.
const LEAD: i64 = 2000;

pub(crate) fn measure(settings: &Settings, place: &Place, report: &mut Report) -> Result {
    let path = place.file("lateness.db");
    let count = settings.rate * settings.seconds;
    eprintln!("lateness: {} timers per second for {} s", settings.rate, settings.seconds);
    let mut store = Bare::open(&path)?;
    // A short time for each batch, so that the first timer is not due before the last one is
    // stored.
    let lead = LEAD + i64::try_from(count / BATCH * 50).unwrap_or(i64::MAX);
    let first = now_millis() + lead;
    let due = |n: usize| first + i64::try_from(n * 1000 / settings.rate).unwrap_or(i64::MAX);
    for begin in (0..count).step_by(BATCH) {
        store.commit((begin..(begin + BATCH).min(count)).map(due))?;
    }
    drop(store);
    if now_millis() >= first {
        return Err(Error::other(
            "the disk is too slow for this many timers: they were due while they were stored",
        ));
    }
    let group = EventLoopGroup::builder().threads(1).build()?;
    let lag = TaskLag::watch(group.next())?;
    let (sender, fired) = channel();
    let handler = move |due: Due<String>| {
        // Signed: a negative value means too early.
        let late = match SystemTime::now().duration_since(due.scheduled()) {
            Ok(late) => i64::try_from(late.as_micros()).unwrap_or(i64::MAX),
            Err(early) => -1 - i64::try_from(early.duration().as_micros()).unwrap_or(i64::MAX - 1),
        };
        let _ = sender.send(late);
        due.done();
    };
    let timers = DurableTimers::builder(SqliteStore::open(&path)?)
        .topic(Topic::new(TOPIC, Late::RunOnce, Retry::never(), handler))
        .start(&group)?;
    let mut times = histogram();
    let mut early = 0;
    for _ in 0..count {
        let patience = Duration::from_secs(60) + Duration::from_millis(lead.unsigned_abs());
        let late = fired.recv_timeout(patience).map_err(|_| Error::other("a timer did not fire"))?;
        match u64::try_from(late) {
            Ok(late) => times.saturating_record(late),
            Err(_) => early += 1,
        }
    }
    let lags = lag.end();
    timers.close().wait()?;
    let metrics = timers.metrics();
    let batch = metrics.changes as f64 / metrics.commits.max(1) as f64;
    println!();
    println!("| {} fires per second for {} s, ms | p50 | p99 | longest |", settings.rate, settings.seconds);
    println!("|---|---:|---:|---:|");
    println!("| from due to the handler | {} |", cells(&times));
    println!("| lateness of a task on the same loop | {} |", cells(&lags));
    println!();
    println!("Early: {early}. Ends per commit: {batch:.1}.");
    report.add_times("lateness", "timers", &times);
    report.add_times("lateness", "tasks", &lags);
    report.add("lateness", "timers", 0, "early", f64::from(early));
    report.panels.push(Panel {
        title: format!("Lateness at {} fires per second", settings.rate),
        x: "percentile",
        y: "milliseconds",
        is_logarithmic: false,
        lines: vec![
            ("from due to the handler".to_owned(), line(&times)),
            ("a task on the same loop".to_owned(), line(&lags)),
        ],
    });
    if early > 0 {
        return Err(Error::other(format!("{early} timers fired too early; p50 {} ms", ms_at(&times, 50.0))));
    }
    Ok(())
}
