//! The lateness of a topic beside another one whose handler is slow and whose timers pile up.

use crate::{
    Place, Settings, TEXT,
    bare::now_millis,
    report::{Report, cells, histogram},
};
use hdrhistogram::Histogram;
use netwheel::{
    Completion, Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, TimerId, Topic},
};
use std::{
    path::Path,
    sync::mpsc::{Sender, channel},
    thread,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

/// The limit of the slow topic.
const CONCURRENCY: usize = 16;

/// The time from a run of the slow topic to its answer.
const ANSWER: Duration = Duration::from_millis(100);

/// The number of starts without an answer while the timers are prepared.
const BATCH: usize = 1000;

pub(crate) fn measure(settings: &Settings, place: &Place, report: &mut Report) -> Result {
    let count = settings.rate / 10 * settings.seconds;
    let backlog = usize::try_from(settings.burst).map_err(Error::other)?;
    println!();
    println!("| {} fires per second, ms | p50 | p99 | longest |", settings.rate / 10);
    println!("|---|---:|---:|---:|");
    for (name, slow) in [("alone", 0), ("beside", backlog)] {
        eprintln!("beside: {count} timers, and {slow} of a slow topic");
        let path = place.file(&format!("{name}.db"));
        let first = prepare(settings, &path, count, slow)?;
        let (times, answered) = run(&path, count, first)?;
        println!("| {slow} due timers of the slow topic | {} |", cells(&times));
        report.add_times("beside", name, &times);
        report.add("beside", name, 0, "slow_answers", answered as f64);
    }
    Ok(())
}

/// Stores timers of both topics. Returns when the first of the fast ones is due.
fn prepare(settings: &Settings, path: &Path, count: usize, slow: usize) -> Result<i64> {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let unused = |name: &str| Topic::new(name, Late::RunOnce, Retry::never(), |due: Due<String>| due.done());
    let timers = DurableTimers::builder(SqliteStore::open(path)?)
        .topic(unused("slow"))
        .topic(unused("fast"))
        .paused()
        .start(&group)?;
    let wait =
        |starts: &mut Vec<Completion<TimerId>>| starts.drain(..).try_for_each(|start| start.wait().map(drop));
    let mut starts = Vec::new();
    for _ in 0..slow {
        starts.push(timers.at("slow", UNIX_EPOCH, TEXT).start());
        if starts.len() == BATCH {
            wait(&mut starts)?;
        }
    }
    // Time to store the rest, to close the store, and to open it again.
    let first = now_millis() + 8000 + i64::try_from(count / 10).unwrap_or(i64::MAX);
    for n in 0..count {
        let after = n as u64 * 10_000 / settings.rate as u64;
        let due = UNIX_EPOCH + Duration::from_millis(first.unsigned_abs() + after);
        starts.push(timers.at("fast", due, TEXT).start());
        if starts.len() == BATCH {
            wait(&mut starts)?;
        }
    }
    wait(&mut starts)?;
    timers.close().wait()?;
    Ok(first)
}

/// Returns the lateness of the fast topic, and the number of answers of the slow one.
fn run(path: &Path, count: usize, first: i64) -> Result<(Histogram<u64>, u64)> {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let (answers, open) = channel::<(Instant, Due<String>)>();
    let answering = thread::spawn(move || {
        let mut answered = 0;
        for (begun, due) in open {
            thread::sleep((begun + ANSWER).saturating_duration_since(Instant::now()));
            due.done();
            answered += 1;
        }
        answered
    });
    let (sender, fired) = channel();
    let timers = DurableTimers::builder(SqliteStore::open(path)?)
        .topic(slow(answers).max_running(CONCURRENCY))
        .topic(Topic::new("fast", Late::RunOnce, Retry::never(), move |due: Due<String>| {
            let late = SystemTime::now().duration_since(due.scheduled()).unwrap_or_default();
            let _ = sender.send(u64::try_from(late.as_micros()).unwrap_or(u64::MAX));
            due.done();
        }))
        .start(&group)?;
    if now_millis() >= first {
        return Err(Error::other("the first timers were due before all of them were stored"));
    }
    let mut times = histogram();
    for _ in 0..count {
        let late = fired.recv_timeout(Duration::from_secs(60));
        times.saturating_record(late.map_err(|_| Error::other("a timer did not fire"))?);
    }
    // Runs of the slow topic end while the timers are closed.
    timers.close().wait()?;
    drop(timers);
    drop(group);
    let answered = answering.join().map_err(|_| Error::other("the answering thread panicked"))?;
    Ok((times, answered))
}

/// A topic whose handler passes each run to another thread, which answers it after a delay.
fn slow(answers: Sender<(Instant, Due<String>)>) -> Topic {
    Topic::new("slow", Late::RunOnce, Retry::never(), move |due| {
        let _ = answers.send((Instant::now(), due));
    })
}
