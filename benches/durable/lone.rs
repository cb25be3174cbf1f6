//! How long a start takes when nothing else happens.

use crate::{
    Place, Settings, TEXT, TOPIC,
    bare::{Bare, far, now_millis},
    report::{Panel, Report, cells, histogram, line, micros, ms_at},
    starts::start,
};
use netwheel::{
    EventLoopGroup, Result,
    durable::{DurableTimers, SqliteStore},
};
use std::{
    thread,
    time::{Duration, Instant},
};

/// The pause between two measurements, in which every thread goes to sleep.
const PAUSE: Duration = Duration::from_millis(5);

/// The default of `max_commit_delay`.
const WITHIN: Duration = Duration::from_millis(2);

pub(crate) fn measure(settings: &Settings, place: &Place, report: &mut Report) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let timers = [
        start(
            DurableTimers::builder(SqliteStore::open(place.file("lone-0.db"))?)
                .max_commit_delay(Duration::ZERO),
            &group,
        )?,
        start(
            DurableTimers::builder(SqliteStore::open(place.file("lone-2.db"))?).max_commit_delay(WITHIN),
            &group,
        )?,
    ];
    let mut store = Bare::open(&place.file("lone-bare.db"))?;
    let mut commits = histogram();
    let mut starts = [histogram(), histogram()];
    eprintln!("lone: {} starts", settings.lone);
    for _ in 0..settings.lone {
        thread::sleep(PAUSE);
        let due = now_millis().saturating_add(i64::try_from(far().as_millis()).unwrap_or(i64::MAX));
        let begun = Instant::now();
        store.commit(std::iter::once(due))?;
        commits.saturating_record(micros(begun.elapsed()));
        for (timers, times) in timers.iter().zip(&mut starts) {
            thread::sleep(PAUSE);
            let begun = Instant::now();
            timers.at(TOPIC, far(), TEXT).start().wait()?;
            times.saturating_record(micros(begun.elapsed()));
        }
    }
    println!();
    println!("| one row on an idle store, ms | p50 | p99 | longest | p50 and p99 in commits |");
    println!("|---|---:|---:|---:|---:|");
    println!("| commit of the bare store | {} | |", cells(&commits));
    report.add_times("lone", "commit", &commits);
    let mut lines = vec![("commit of the bare store".to_owned(), line(&commits))];
    for (within, times) in [Duration::ZERO, WITHIN].into_iter().zip(&starts) {
        let name = format!("start, max_commit_delay {} ms", within.as_millis());
        let in_commits = |percentile| ms_at(times, percentile) / ms_at(&commits, percentile);
        println!("| {name} | {} | {:.2}, {:.2} |", cells(times), in_commits(50.0), in_commits(99.0));
        report.add_times("lone", &name.replace(',', ""), times);
        lines.push((name, line(times)));
    }
    report.panels.push(Panel {
        title: "A lone start".to_owned(),
        x: "percentile",
        y: "milliseconds",
        is_logarithmic: false,
        lines,
    });
    timers.iter().try_for_each(|timers| timers.close().wait())
}
