//! Effect of ioRatio and other limits on sockets and timers when a loop is overloaded.
//!
//! ```sh
//! cd benches
//! cargo bench --bench fairness                      # six minutes; into benches/target/fairness
//! cargo bench --bench fairness -- --out ../docs     # renews the pictures of docs/fairness.md
//! cargo bench --bench fairness -- --test            # seconds: checks that it works
//! ```
//!
//! Uses real sockets and real time. The loop's thread runs on the first core, the load on the last
//! one. Every setting is measured in several rounds, in turn with the other settings, and the least
//! disturbed round counts. Writes `fairness.csv` and a picture `fairness-*.svg` of each chart.

mod echo;
mod picture;
mod record;
mod rooms;
mod slow;
mod stage;
mod timers;

use clap::Parser;
use netwheel::Result;
use record::{Chart, Record};
use std::{fs, path::PathBuf, time::Duration};

const RATIOS: [u32; 4] = [20, 50, 80, 99];

/// Values of `max_io_time` in milliseconds.
const IO_TIMES: [u32; 3] = [10, 30, 100];

#[derive(Parser)]
#[command(about = "Measures how a loop shares its time")]
struct Options {
    /// Directory for the data and the pictures.
    #[arg(long, default_value = "target/fairness")]
    out: PathBuf,
    /// Checks only that it works: a few points, each for a short time.
    #[arg(long)]
    test: bool,
    /// Number of rounds in which every setting is measured.
    #[arg(long, default_value_t = 10)]
    rounds: u32,
    /// Milliseconds of each measurement.
    #[arg(long, default_value_t = 200)]
    millis: u64,
    /// Passed by cargo; ignored.
    #[arg(long, hide = true)]
    bench: bool,
}

fn main() -> Result {
    let options = Options::parse();
    let (rounds, millis) = if options.test { (1, 100) } else { (options.rounds, options.millis) };
    let time = Duration::from_millis(millis);
    let loads: &[u32] = if options.test { &[0, 50, 100] } else { &[0, 10, 25, 40, 50, 60, 75, 90, 100] };
    let floods: &[u32] = if options.test { &[0, 4, 16] } else { &[0, 1, 2, 4, 8, 16, 32] };
    // Duration of a task in microseconds; peers that send requests; thousands of deliveries per
    // second.
    let lengths: &[u32] =
        if options.test { &[20, 2000] } else { &[20, 200, 1000, 2000, 5000, 10_000, 20_000] };
    let peers: &[u32] = if options.test { &[10] } else { &[1, 10, 30, 60, 100] };
    let deliveries: &[u32] = if options.test { &[0, 5000] } else { &[0, 500, 1000, 2000, 5000, 10_000] };
    let (mut echoes, mut timers) = (Chart::default(), Chart::default());
    let (mut tasks, mut requests, mut rooms) = (Chart::default(), Chart::default(), Chart::default());
    for round in 1..=rounds {
        println!("round {round} of {rounds}");
        for &ratio in &RATIOS {
            for &load in loads {
                let record = echo::measure(ratio, load, time)?;
                report("echo", ratio, load, &record);
                echoes.add(ratio, load, record);
            }
            for &connections in floods {
                let record = timers::measure(ratio, connections, time)?;
                report("timers", ratio, connections, &record);
                timers.add(ratio, connections, record);
            }
        }
        for &length in lengths {
            let record = slow::measure_tasks(length, time)?;
            report("tasks", 50, length, &record);
            tasks.add(50, length, record);
        }
        for &peers in peers {
            for limit in IO_TIMES {
                let record = slow::measure_requests(limit, peers, time)?;
                report("requests", limit, peers, &record);
                requests.add(limit, peers, record);
            }
        }
        for &thousands in deliveries {
            let record = rooms::measure(thousands, time)?;
            report("rooms", 50, thousands, &record);
            rooms.add(50, thousands, record);
        }
    }
    let io = |e| netwheel::Error::other(format!("writing to {}: {e}", options.out.display()));
    fs::create_dir_all(&options.out).map_err(io)?;
    let rows = [
        echoes.rows("echo"),
        timers.rows("timers"),
        tasks.rows("tasks"),
        requests.rows("requests"),
        rooms.rows("rooms"),
    ];
    let rows = rows.concat();
    fs::write(options.out.join("fairness.csv"), format!("{}\n{}", Record::HEADER, rows)).map_err(io)?;
    picture::draw(
        &options.out.join("fairness-echo.svg"),
        &echoes,
        &picture::Words {
            title: "Echo round trip, p99, by task load",
            x: "tasks offered, percent of the loop's time",
            y: "milliseconds",
            line: |ratio| format!("ioRatio {ratio}"),
        },
    )?;
    picture::draw(
        &options.out.join("fairness-timers.svg"),
        &timers,
        &picture::Words {
            title: "Timer lateness, p99, by I/O load (and a flood of tasks)",
            x: "connections that send at full speed",
            y: "milliseconds",
            line: |ratio| format!("ioRatio {ratio}"),
        },
    )?;
    picture::draw(
        &options.out.join("fairness-tasks.svg"),
        &tasks,
        &picture::Words {
            title: "Timer lateness, p99, beside a task that resubmits itself",
            x: "duration of the task in microseconds",
            y: "milliseconds",
            line: |_| "default settings".to_owned(),
        },
    )?;
    picture::draw(
        &options.out.join("fairness-requests.svg"),
        &requests,
        &picture::Words {
            title: "Timer lateness, p99, beside a flood of requests of 200 µs",
            x: "peers that send requests",
            y: "milliseconds",
            line: |limit| format!("max_io_time {limit} ms"),
        },
    )?;
    picture::draw(
        &options.out.join("fairness-rooms.svg"),
        &rooms,
        &picture::Words {
            title: "A message to a small room, p99, while another room is flooded",
            x: "thousands of deliveries per second offered to the other room",
            y: "milliseconds",
            line: |_| "default settings".to_owned(),
        },
    )?;
    println!("written to {}", options.out.display());
    Ok(())
}

fn report(what: &str, ratio: u32, load: u32, record: &Record) {
    let (p50, p99) = (record.quantile(0.5), record.quantile(0.99));
    println!("{what:8} {ratio:3} load {load:5}: p50 {p50:7} us, p99 {p99:7} us of {}", record.count());
}
