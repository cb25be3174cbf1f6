//! Many pending timers: memory, file, reopening after `kill -9`, and many that are due at once.

use crate::{
    Place, Settings,
    bare::{Bare, now_millis},
    child::{kill_after, run, spawn},
    fill::fill,
    report::{Report, spread},
};
use netwheel::{Error, Result};
use std::{
    collections::BTreeMap,
    fs,
    path::Path,
    time::{Duration, Instant},
};

/// How long a process that is killed stores timers.
const TRAFFIC: Duration = Duration::from_millis(1000);

/// The time between the last of the burst's timers being stored and the first one being due, in
/// milliseconds.
const LEAD: i64 = 2000;

const MIB: f64 = 1024.0 * 1024.0;

fn bytes(path: &Path) -> Result<f64> {
    let data = fs::metadata(path).map_err(|e| Error::other(format!("reading {}: {e}", path.display())))?;
    Ok(data.len() as f64)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().ok_or_else(|| Error::other("the path of a store is not Unicode"))
}

fn figure(figures: &BTreeMap<String, f64>, name: &str) -> Result<f64> {
    figures.get(name).copied().ok_or_else(|| Error::other(format!("a child process did not report {name}")))
}

pub(crate) fn measure(settings: &Settings, place: &Place, report: &mut Report) -> Result {
    let (full, empty) = (place.file("size.db"), place.file("size-empty.db"));
    let settle = if settings.test { "1000" } else { "3000" };
    let begun = Instant::now();
    fill(&full, settings.pending)?;
    let file = bytes(&full)?;
    eprintln!("size: {} timers in {:.1} s", settings.pending, begun.elapsed().as_secs_f64());
    fill(&empty, 0)?;
    let rss = |path: &Path| -> Result<f64> {
        let figures = run(&["reopen", text(path)?, settle])?;
        Ok(figure(&figures, "rss_kib")? / 1024.0)
    };
    let (mut beyond, mut opens, mut fires, mut logs) = (Vec::new(), Vec::new(), Vec::new(), 0.0f64);
    for round in 1..=settings.restarts {
        let nothing = rss(&empty)?;
        let idle = rss(&full)?;
        kill_after(spawn(&["traffic", text(&full)?])?, TRAFFIC)?;
        let log = bytes(&place.file("size.db-wal"))?;
        let figures = run(&["reopen", text(&full)?, settle, "--is-due"])?;
        let (open, first) = (figure(&figures, "open_ms")?, figure(&figures, "first_fire_ms")?);
        let after = figure(&figures, "rss_kib")? / 1024.0;
        eprintln!(
            "size, round {round} of {}: empty {nothing:.1} MiB, idle {idle:.1} MiB; after a kill: {:.1} MiB of log, \
             opened in {open:.1} ms, first fire after {first:.1} ms, {} fires, {after:.1} MiB",
            settings.restarts,
            log / MIB,
            figure(&figures, "fires")?,
        );
        for (name, value) in [
            ("empty_mib", nothing),
            ("idle_mib", idle),
            ("after_kill_mib", after),
            ("log_mib", log / MIB),
            ("open_ms", open),
            ("first_fire_ms", first),
        ] {
            report.add("size", settings.pending, round, name, value);
        }
        beyond.push(idle - nothing);
        opens.push(open);
        fires.push(first);
        logs = logs.max(log / MIB);
    }
    report.add("size", settings.pending, 0, "file_mib", file / MIB);
    let row = |name: &str, values: Vec<f64>| {
        let [low, median, high] = spread(values.into_iter());
        println!("| {name} | {median:.1} ({low:.1}..{high:.1}) |");
    };
    println!();
    println!("| {} pending timers | |", settings.pending);
    println!("|---|---:|");
    println!("| file, MiB | {:.0} |", file / MIB);
    println!("| file, bytes for each timer | {:.0} |", file / settings.pending.max(1) as f64);
    row("resident memory beyond an empty store, MiB", beyond);
    row("`open` after `kill -9`, ms", opens);
    row("from `open` to the first fire after `kill -9`, ms", fires);
    println!("| largest log after `kill -9`, MiB | {logs:.1} |");
    burst(settings, &full, report)
}

fn burst(settings: &Settings, path: &Path, report: &mut Report) -> Result {
    const BATCH: u64 = 1000;
    let mut store = Bare::open(path)?;
    // Time for the batches to be stored; a thousand rows in a large store may take 100 ms.
    let lead = LEAD + i64::try_from(settings.burst / BATCH * 100).unwrap_or(i64::MAX);
    let first = now_millis() + if settings.test { LEAD } else { lead };
    // In another order than that of the ids.
    let due = |n: u64| first + i64::try_from(n * 7919 % 1000).unwrap_or_default();
    for begin in (0..settings.burst).step_by(BATCH as usize) {
        store.commit((begin..(begin + BATCH).min(settings.burst)).map(due))?;
    }
    drop(store);
    if now_millis() >= first {
        return Err(Error::other(
            "the disk is too slow for the burst: its timers were due while they were stored",
        ));
    }
    eprintln!("size: {} timers in one second", settings.burst);
    let figures = run(&["burst", text(path)?, &settings.burst.to_string()])?;
    for (name, value) in &figures {
        report.add("burst", settings.burst, 0, name, *value);
    }
    let of = |name: &str| figure(&figures, name);
    let times = |name: &str| -> Result<String> {
        let at = |end: &str| of(&format!("{name}_{end}_ms"));
        Ok(format!("{:.2} | {:.2} | {:.2}", at("p50")?, at("p99")?, at("max")?))
    };
    println!();
    println!("| {} timers due in one second, ms | p50 | p99 | longest |", settings.burst);
    println!("|---|---:|---:|---:|");
    println!("| lateness of a task on the loop before | {} |", times("idle_lag")?);
    println!("| lateness of a task on the loop meanwhile | {} |", times("lag")?);
    println!("| echo over TCP on the loop before | {} |", times("idle_echo")?);
    println!("| echo over TCP on the loop meanwhile | {} |", times("echo")?);
    println!();
    println!(
        "All fired {:.0} ms after the first was due; out of order: {}; stalls of 50 ms or more: {}; \
         changes per commit: {:.0}; most resident memory: {:.1} MiB.",
        of("took_ms")?,
        of("disorder")?,
        of("stalls")?,
        of("batch")?,
        of("most_kib")? / 1024.0
    );
    if of("disorder")? > 0.0 {
        return Err(Error::other("timers fired out of order"));
    }
    Ok(())
}
