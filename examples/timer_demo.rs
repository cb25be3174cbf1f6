//! A timing wheel drawn on the terminal. Thousands of timeouts are added, cancelled and run, and
//! their lateness is measured.
//!
//! ```text
//! cargo run --release --example timer_demo
//! cargo run --release --example timer_demo -- --timeouts 1000000 --tick 1ms --slots 4096 --max-delay 30s
//! ```
//!
//! On a terminal the picture is redrawn twenty times per second; elsewhere a line is printed every
//! second. `--timeouts` timeouts are kept pending: each one that has run or was cancelled is
//! replaced. After `--run` or on Ctrl-C the timer is stopped and a summary of all timeouts is
//! printed. The exit status is 0 if every timeout is accounted for and none ran early.

#[path = "support/output.rs"]
mod output;

use clap::Parser;
use hdrhistogram::Histogram;
use netwheel::{
    Error, Result,
    timer::{HashedWheelTimer, Timeout},
};
use output::{Output, complain, say};
use std::{
    fmt,
    io::{self, IsTerminal, Write},
    process::ExitCode,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    time::{Duration, Instant},
};

/// Time between two pictures.
const FRAME: Duration = Duration::from_millis(50);
/// Time between two lines when standard output is not a terminal.
const LINE: Duration = Duration::from_secs(1);
/// Highest lateness that the histogram records: one hour, in microseconds.
const LATEST: u64 = 3_600_000_000;
/// Width of the picture in columns.
const WIDTH: usize = 64;
/// Characters for the fill level of a column, from empty to full.
const LEVELS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Draws a timing wheel while it runs thousands of timeouts.
#[derive(Parser)]
struct Options {
    /// Number of timeouts to keep pending.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..))]
    timeouts: u32,
    /// Length of a tick; at least 1ms.
    #[arg(long, default_value = "20ms", value_parser = humantime::parse_duration)]
    tick: Duration,
    /// Number of slots, up to 65536; rounded up to a power of two.
    #[arg(long, default_value_t = 64)]
    slots: usize,
    /// Maximum delay; each timeout has a random delay up to this.
    #[arg(long, default_value = "2s", value_parser = humantime::parse_duration)]
    max_delay: Duration,
    /// Percentage of timeouts that are cancelled before their deadline.
    #[arg(long, default_value = "30%", value_parser = share)]
    cancel: f64,
    /// Run time; 0s runs until Ctrl-C.
    #[arg(long, default_value = "10s", value_parser = humantime::parse_duration)]
    run: Duration,
}

/// Parses a percentage such as "30%".
fn share(text: &str) -> Result<f64, String> {
    let percent = text.strip_suffix('%').unwrap_or(text).parse::<f64>().map_err(|e| e.to_string())?;
    if (0.0..=100.0).contains(&percent) {
        Ok(percent / 100.0)
    } else {
        Err("expected a percentage from 0% to 100%".into())
    }
}

/// Counters that the tasks update on the timer's thread.
struct Tally {
    fired: AtomicU64,
    early: AtomicU64,
    /// Lateness in microseconds.
    lateness: Mutex<Histogram<u64>>,
    /// Number of pending timeouts in each slot, for all revolutions.
    slots: Vec<AtomicU64>,
}

/// A timeout that will be cancelled at `at`.
struct Doomed {
    at: Instant,
    slot: usize,
    timeout: Timeout,
}

struct Demo {
    options: Options,
    timer: HashedWheelTimer,
    tally: Arc<Tally>,
    doomed: Vec<Doomed>,
    added: u64,
    cancelled: u64,
    started: Instant,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let output = Output::start();
    let result = run(options);
    if let Err(error) = &result {
        complain!("timer_demo: {error:#}");
    }
    output.finish();
    if matches!(result, Ok(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn run(options: Options) -> Result<bool> {
    let (interrupt, interrupted) = mpsc::channel();
    ctrlc::set_handler(move || _ = interrupt.send(())).map_err(Error::other)?;
    let mut demo = Demo::new(options)?;
    let mut out = output::stdout();
    let mut picture = io::stdout().is_terminal().then(Picture::default);
    let mut next_line = LINE;
    loop {
        demo.cancel_some();
        demo.fill_up()?;
        let elapsed = demo.started.elapsed();
        if let Some(picture) = &mut picture {
            picture.draw(&mut out, &demo)?;
        } else if elapsed >= next_line {
            say!("{:4.0}s  {}", elapsed.as_secs_f64(), demo.line());
            next_line += LINE;
        }
        let over = !demo.options.run.is_zero() && elapsed >= demo.options.run;
        if over || interrupted.recv_timeout(FRAME) != Err(RecvTimeoutError::Timeout) {
            break;
        }
    }
    drop(picture);
    demo.finish()
}

impl Demo {
    fn new(options: Options) -> Result<Self> {
        let timer = HashedWheelTimer::builder().tick(options.tick).slots(options.slots).build()?;
        let tally = Tally {
            fired: AtomicU64::new(0),
            early: AtomicU64::new(0),
            lateness: Mutex::new(Histogram::new_with_max(LATEST, 3).map_err(Error::other)?),
            slots: (0..timer.slots()).map(|_| AtomicU64::new(0)).collect(),
        };
        let (tally, started) = (Arc::new(tally), Instant::now());
        Ok(Demo { options, timer, tally, doomed: Vec::new(), added: 0, cancelled: 0, started })
    }

    /// Returns the slot that the wheel reaches `since_start` after it was started.
    fn slot(&self, since_start: Duration) -> usize {
        let tick = since_start.as_nanos().div_ceil(self.timer.tick().as_nanos());
        (tick % self.timer.slots() as u128) as usize
    }

    fn fill_up(&mut self) -> Result {
        for _ in self.timer.pending_timeouts()..self.options.timeouts as usize {
            let delay = self.options.max_delay.mul_f64(fastrand::f64());
            let slot = self.slot(self.started.elapsed() + delay);
            self.tally.slots[slot].fetch_add(1, Ordering::Relaxed);
            let tally = self.tally.clone();
            let timeout = self.timer.new_timeout(delay, move |timeout| {
                tally.note(timeout.deadline(), slot);
                Ok(())
            })?;
            self.added += 1;
            if fastrand::f64() < self.options.cancel {
                let at = Instant::now() + delay.mul_f64(fastrand::f64());
                self.doomed.push(Doomed { at, slot, timeout });
            }
        }
        Ok(())
    }

    fn cancel_some(&mut self) {
        let now = Instant::now();
        let due = self.doomed.extract_if(.., |doomed| doomed.at <= now);
        for Doomed { slot, timeout, .. } in due {
            // A timeout that expired since the last picture may already have run.
            if timeout.cancel() {
                self.cancelled += 1;
                self.tally.slots[slot].fetch_sub(1, Ordering::Relaxed);
            }
        }
    }

    fn line(&self) -> String {
        let fired = self.tally.fired.load(Ordering::Relaxed);
        let (pending, cancelled) = (self.timer.pending_timeouts(), self.cancelled);
        format!("pending {pending}  fired {fired}  cancelled {cancelled}  lateness {}", self.tally.lateness())
    }

    /// Stops the timer and prints the summary. Returns whether every timeout is accounted for and
    /// none ran early.
    fn finish(self) -> Result<bool> {
        let returned = self.timer.stop()?.len() as u64;
        let [fired, early] = [&self.tally.fired, &self.tally.early].map(|n| n.load(Ordering::Relaxed));
        say!("added             {}", self.added);
        say!("fired             {fired}");
        say!("cancelled         {}", self.cancelled);
        say!("returned by stop  {returned}");
        say!("early             {early}");
        say!("lateness          {}", self.tally.lateness());
        let accounted = fired + self.cancelled + returned == self.added;
        if !accounted {
            say!("SOME TIMEOUTS ARE NOT ACCOUNTED FOR");
        }
        Ok(accounted && early == 0)
    }
}

impl Tally {
    fn note(&self, deadline: Instant, slot: usize) {
        let now = Instant::now();
        self.early.fetch_add(u64::from(now < deadline), Ordering::Relaxed);
        let late = now.saturating_duration_since(deadline).as_micros();
        if let Ok(mut lateness) = self.lateness.lock() {
            lateness.saturating_record(u64::try_from(late).unwrap_or(u64::MAX));
        }
        self.slots[slot].fetch_sub(1, Ordering::Relaxed);
        self.fired.fetch_add(1, Ordering::Relaxed);
    }

    fn lateness(&self) -> String {
        let Ok(lateness) = self.lateness.lock() else { return String::new() };
        let millis = |micros: u64| Millis(micros as f64 / 1000.0);
        let [p50, p99] = [50.0, 99.0].map(|percent| millis(lateness.value_at_percentile(percent)));
        format!("p50 {p50}  p99 {p99}  max {}", millis(lateness.max()))
    }
}

struct Millis(f64);

impl fmt::Display for Millis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2}ms", self.0)
    }
}

/// The picture on the terminal. Dropping it shows the cursor again.
#[derive(Default)]
struct Picture {
    /// Number of lines to overwrite.
    lines: usize,
}

impl Picture {
    fn draw(&mut self, out: &mut impl Write, demo: &Demo) -> io::Result<()> {
        let (timer, elapsed) = (&demo.timer, demo.started.elapsed());
        let slots = timer.slots();
        let width = slots.min(WIDTH);
        let column = |column: usize| -> u64 {
            let span = column * slots / width..(column + 1) * slots / width;
            demo.tally.slots[span].iter().map(|slot| slot.load(Ordering::Relaxed)).sum()
        };
        let counts: Vec<u64> = (0..width).map(column).collect();
        let fullest = counts.iter().copied().max().unwrap_or(0).max(1);
        // Round up, so that a slot that is not empty is visible.
        let bar = |count: &u64| LEVELS[(count * (LEVELS.len() as u64 - 1)).div_ceil(fullest) as usize];
        let bars: String = counts.iter().map(bar).collect();
        let hand = demo.slot(elapsed);
        let revolution = timer.tick().saturating_mul(slots as u32);
        let lines = [
            format!("{slots} slots of {:?}, a revolution in {revolution:?}", timer.tick()),
            format!("┌{}┐", "─".repeat(width)),
            format!("│{bars}│ {fullest} at most"),
            format!("└{}┘", "─".repeat(width)),
            format!("{:1$}▲ slot {hand}", "", 1 + hand * width / slots),
            format!("{:.1}s   pending   {}", elapsed.as_secs_f64(), timer.pending_timeouts()),
            format!("        fired     {}", demo.tally.fired.load(Ordering::Relaxed)),
            format!("        cancelled {}", demo.cancelled),
            format!("        lateness  {}", demo.tally.lateness()),
        ];
        // Hide the cursor, move up to the first line of the last picture, and clear it.
        let mut text = String::from("\x1b[?25l\r");
        if self.lines > 0 {
            text += &format!("\x1b[{}A\x1b[J", self.lines);
        }
        text += &lines.join("\n");
        text.push('\n');
        self.lines = lines.len();
        out.write_all(text.as_bytes())?;
        out.flush()
    }
}

impl Drop for Picture {
    /// Shows the cursor again; the last picture stays.
    fn drop(&mut self) {
        let _ = output::stdout().write_all(b"\x1b[?25h");
    }
}
