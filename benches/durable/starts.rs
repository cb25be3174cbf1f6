//! Starts per second, by the number of concurrent starters.

use crate::{
    Place, Settings, TEXT, TOPIC,
    bare::{Bare, far},
    report::{Line, Panel, Report, spread},
};
use netwheel::{
    EventLoopGroup, Result,
    durable::{Due, DurableTimers, DurableTimersBuilder, Late, Retry, SqliteStore, Topic},
};
use std::{
    sync::mpsc::{Sender, channel},
    time::{Duration, Instant},
};

/// Starts timers, none of which fires soon.
pub(crate) fn start(builder: DurableTimersBuilder, group: &EventLoopGroup) -> Result<DurableTimers> {
    let topic = Topic::new(TOPIC, Late::RunOnce, Retry::never(), |due: Due<String>| due.done());
    builder.topic(topic).start(group)
}

/// The number of parts of a measurement.
const SLICES: u32 = 5;

struct Sample {
    bare: f64,
    durable: f64,
    /// The mean number of rows in a transaction.
    batch: f64,
}

/// What was done in several slices.
#[derive(Default)]
struct Work {
    timers: f64,
    commits: f64,
    seconds: f64,
}

impl Work {
    fn add(&mut self, timers: f64, commits: f64, seconds: f64) {
        self.timers += timers;
        self.commits += commits;
        self.seconds += seconds;
    }

    fn rate(&self) -> f64 {
        self.timers / self.seconds
    }
}

/// Lets each starter start its next timer as soon as its last one is stored, all of them on the
/// calling thread.
fn run(timers: &DurableTimers, starters: usize, time: Duration, work: &mut Work) -> Result {
    let (sender, stored) = channel();
    let next = |sender: &Sender<Result>| {
        let sender = sender.clone();
        let completion = timers.at(TOPIC, far(), TEXT).start();
        completion.on_complete(move |result| drop(sender.send(result.map(drop))));
    };
    let before = timers.metrics().commits;
    let begun = Instant::now();
    (0..starters).for_each(|_| next(&sender));
    let (mut running, mut done) = (starters, 0);
    while running > 0 {
        stored.recv().expect("this thread has a sender")?;
        done += 1;
        if begun.elapsed() < time {
            next(&sender);
        } else {
            running -= 1;
        }
    }
    let commits = timers.metrics().commits - before;
    work.add(f64::from(done), commits as f64, begun.elapsed().as_secs_f64());
    Ok(())
}

pub(crate) fn measure(settings: &Settings, place: &Place, report: &mut Report) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let timers = start(DurableTimers::builder(SqliteStore::open(place.file("starts.db"))?), &group)?;
    let mut store = Bare::open(&place.file("starts-bare.db"))?;
    let lines = compare("starts", settings, &timers, &mut store, report)?;
    report.panels.push(Panel {
        title: "Starts per second".to_owned(),
        x: "concurrent starters, rows per commit",
        y: "per second",
        is_logarithmic: true,
        lines,
    });
    timers.close().wait()
}

/// Compares the starts per second of timers with the rows per second of a store. Returns the lines
/// of a picture.
pub(crate) fn compare(
    part: &str,
    settings: &Settings,
    timers: &DurableTimers,
    store: &mut Bare,
    report: &mut Report,
) -> Result<Vec<Line>> {
    let time = Duration::from_millis(settings.millis) / SLICES;
    let mut samples: Vec<Vec<Sample>> = settings.starters.iter().map(|_| Vec::new()).collect();
    for round in 1..=settings.rounds {
        for (&starters, samples) in settings.starters.iter().zip(&mut samples) {
            // Short slices in turn: the speed of a disk changes within a second.
            let (mut bare, mut durable) = (Work::default(), Work::default());
            for _ in 0..SLICES {
                let (rows, seconds) = store.run(starters, time)?;
                bare.add(rows, rows / starters as f64, seconds);
                run(timers, starters, time, &mut durable)?;
            }
            let batch = durable.timers / durable.commits.max(1.0);
            let (bare, durable) = (bare.rate(), durable.rate());
            eprintln!(
                "{part}, round {round} of {}: {starters} starters: {durable:.0}/s, bare {bare:.0}/s, ratio {:.2}",
                settings.rounds,
                durable / bare
            );
            for (figure, value) in [("bare_per_s", bare), ("durable_per_s", durable), ("batch", batch)] {
                report.add(part, starters, round, figure, value);
            }
            samples.push(Sample { bare, durable, batch });
        }
    }
    println!();
    println!("| starters | bare store, rows/s | starts/s | ratio (lowest..highest) | rows per commit |");
    println!("|---:|---:|---:|---:|---:|");
    let mut lines = [("bare store", Vec::new()), ("durable timers", Vec::new())];
    for (starters, samples) in settings.starters.iter().zip(&samples) {
        let [_, bare, _] = spread(samples.iter().map(|sample| sample.bare));
        let [_, durable, _] = spread(samples.iter().map(|sample| sample.durable));
        let [_, batch, _] = spread(samples.iter().map(|sample| sample.batch));
        let [low, ratio, high] = spread(samples.iter().map(|sample| sample.durable / sample.bare));
        println!("| {starters} | {bare:.0} | {durable:.0} | {ratio:.2} ({low:.2}..{high:.2}) | {batch:.1} |");
        lines[0].1.push((*starters as f64, bare));
        lines[1].1.push((*starters as f64, durable));
    }
    Ok(lines.into_iter().map(|(name, line)| (name.to_owned(), line)).collect())
}
