//! `--storm`: all clients lose their connection and connect again at the same moment, while
//! established clients talk.
//!
//! Phases: the established clients enter; some clients of the storm enter, few at a time, which
//! measures the capacity of the server; they are cut; the established clients talk alone; all
//! clients of the storm connect at once; the established clients talk alone again.
//!
//! Reading order: `options.rs`, `manners.rs` (when a client tries again), `client.rs` (one
//! connection), `dialer.rs` (opens it), `clients.rs` (a crowd and its attempts), `timeline.rs` and
//! `outcome.rs` (records and result), this file (the phases).

mod client;
mod clients;
mod dialer;
mod manners;
mod options;
mod outcome;
mod timeline;

pub(crate) use options::StormOptions;

use crate::{Options, descriptors, output::complain, report::Progress};
use client::Crowd;
use clients::{Clients, Policy};
use dialer::Dialer;
use netwheel::{prelude::*, shutdown::ShutdownOptions};
use outcome::Records;
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};
use timeline::Timeline;

/// Time between two looks at all clients.
const STEP: Duration = Duration::from_millis(5);
/// Attempts in flight while established clients enter, and while the capacity is measured.
const IN_FLIGHT: usize = 16;
/// Time for a client to enter before the storm.
const PATIENCE: Duration = Duration::from_secs(120);
/// Duration of a storm if the capacity is tiny.
const MAX_LIMIT: Duration = Duration::from_secs(1800);

struct Storm<'a> {
    options: &'a StormOptions,
    start: Instant,
    established: Clients,
    clients: Clients,
    progress: Progress,
    interrupted: Arc<AtomicBool>,
}

/// Runs the storm. Returns the faults of the server.
///
/// # Errors
/// If the clients cannot connect before the storm, or a file cannot be written.
pub(crate) fn run(options: &Options) -> Result<Vec<String>> {
    let storm = &options.storm;
    let established = storm.established as usize;
    let mut count = options.clients as usize;
    let limit = descriptors::raise_limit();
    if let Some(allowed) = limit.connections().and_then(|allowed| usize::try_from(allowed).ok()) {
        let room = allowed.saturating_sub(established);
        if room < count {
            complain!("{count} clients are too many, {room} take part: {limit}");
            count = room;
        }
    }
    if count < 2 * IN_FLIGHT {
        return Err(format!("too few clients: {count}").into());
    }
    let interrupted = Arc::new(AtomicBool::new(false));
    let interrupt = interrupted.clone();
    ctrlc::set_handler(move || interrupt.store(true, Ordering::Release)).map_err(Error::other)?;

    // The established clients have loops of their own, so that the attempts do not delay them.
    let group = |name| EventLoopGroup::builder().threads(options.threads).name(name).build();
    let groups = [group("talk")?, group("storm")?];
    let (start, timeline) = (Instant::now(), Arc::new(Timeline::default()));
    let crowd = |group: &EventLoopGroup, count: usize, is_established| -> Result<(Arc<Crowd>, Clients)> {
        let (reports, received) = mpsc::channel();
        let kind = if is_established { "talk" } else { "storm" };
        let crowd = Arc::new(Crowd {
            name: format!("{kind}-{}", std::process::id()),
            start,
            timeline: timeline.clone(),
            established: is_established,
            interval: Duration::from_secs_f64((count as f64 / options.rate.max(0.001)).clamp(0.001, 1e6)),
            dead_after: storm.dead_after,
            over: AtomicBool::new(false),
            reports,
        });
        let dialer = Dialer::new(group, options, crowd.clone())?;
        let policy = Policy { manners: storm.manners, retry_delay: storm.retry_delay, give_up: PATIENCE };
        Ok((crowd.clone(), Clients::new(count, crowd, dialer, received, policy)))
    };
    let (established_crowd, established) = crowd(&groups[0], established, true)?;
    let (storm_crowd, clients) = crowd(&groups[1], count, false)?;
    let progress = Progress::new();
    let mut run = Storm { options: storm, start, established, clients, progress, interrupted };
    let records = run.play();
    for crowd in [established_crowd, storm_crowd] {
        crowd.over.store(true, Ordering::Release);
    }
    let complete = usize::try_from(start.elapsed().as_secs()).unwrap_or(usize::MAX);
    let records = records.map(|records| {
        let mut seconds = timeline.seconds();
        // The last messages had no time to be answered.
        seconds.truncate(complete.saturating_sub(1));
        Records { seconds, ..records }
    });
    drop(run);
    for group in groups {
        let shutdown = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5));
        group.shutdown(shutdown).wait()?;
    }
    let records = records?;
    let (figures, faults) = (records.figures(), records.faults());
    outcome::print(&figures, &faults);
    if let Some(folder) = &storm.out {
        outcome::write(folder, &records, &figures)?;
    }
    Ok(faults)
}

impl Storm<'_> {
    /// Plays all phases. Returns the records without the seconds.
    fn play(&mut self) -> Result<Records> {
        let count = self.established.len();
        self.established.open(count, IN_FLIGHT);
        self.until("established", PATIENCE, |run| run.established.waiting() == 0)?;

        let probes = (self.options.probes as usize).min(self.clients.len());
        self.clients.open(probes, IN_FLIGHT);
        let began = self.start.elapsed();
        self.until("capacity", PATIENCE, |run| run.clients.waiting() == 0)?;
        let capacity = probes as f64 / (self.start.elapsed() - began).as_secs_f64().max(0.001);
        self.clients.open(0, 0);
        self.clients.cut();
        self.progress.end_phase(&format!("capacity: {capacity:.0} logins per second"));

        self.wait("calm", self.options.calm);
        self.clients.forget_entries();
        let count = self.clients.len();
        let offered = count as f64 / (capacity * self.options.offered);
        let give_up = self.options.give_up.unwrap_or_else(|| Duration::from_secs_f64(offered));
        self.clients.set_give_up(give_up);
        let drain = Duration::from_secs_f64((count as f64 / capacity).min(1e6));
        let limit = self.options.limit.unwrap_or(3 * drain).min(MAX_LIMIT);
        let began = self.begin_second();
        self.clients.open(count, usize::MAX);
        let over = |run: &Storm<'_>| run.clients.waiting() == 0;
        let all_in = self.until("storm", limit, over).is_ok();
        let lasted = self.start.elapsed() - began;
        let inside = self.clients.inside();
        let line = if all_in { "all clients are in" } else { "the storm has not ended" };
        self.progress.end_phase(&format!("{line} after {:.1} s", lasted.as_secs_f64()));
        if !all_in {
            self.clients.pause();
        }
        self.wait("calm", self.options.calm + Duration::from_secs(1));
        Ok(Records {
            clients: count,
            established: self.established.len(),
            capacity,
            give_up,
            began: usize::try_from(began.as_secs()).unwrap_or(usize::MAX),
            lasted,
            entered: self.clients.entered().iter().map(|at| at.saturating_sub(began)).collect(),
            entry_times: self.clients.entry_times(),
            inside: inside.min(self.clients.inside()),
            normal: self.options.normal,
            seconds: Vec::new(),
        })
    }

    /// Waits until a second begins, and returns its time: the storm begins with a second.
    fn begin_second(&mut self) -> Duration {
        let second = self.start.elapsed().as_secs() + 1;
        while self.start.elapsed().as_secs() < second {
            self.step();
        }
        Duration::from_secs(second)
    }

    /// Goes on until `done`.
    ///
    /// # Errors
    /// If the user has interrupted the run, or the time is over.
    fn until(&mut self, phase: &str, limit: Duration, done: impl Fn(&Self) -> bool) -> Result {
        let until = self.start.elapsed() + limit;
        while !done(self) {
            self.step();
            if self.interrupted.load(Ordering::Acquire) {
                return Err("interrupted".into());
            }
            if self.start.elapsed() > until {
                let failure = [&self.established, &self.clients].into_iter().find_map(Clients::first_failure);
                let why = failure.map_or(String::new(), |why| format!("; the first failure: {why}"));
                return Err(format!("{phase}: not complete after {:.1} s{why}", limit.as_secs_f64()).into());
            }
            let (established, inside) = (self.established.inside(), self.clients.inside());
            let (waiting, lost) = (self.clients.waiting(), self.established.lost());
            self.progress.show(|| {
                format!("{phase}: {inside} in, {waiting} waiting; {established} established, {lost} lost")
            });
        }
        Ok(())
    }

    fn wait(&mut self, phase: &str, time: Duration) {
        // The end of the time is not a failure here.
        let _ = self.until(phase, time, |_| false);
    }

    fn step(&mut self) {
        thread::sleep(STEP);
        self.established.step();
        self.clients.step();
    }
}
