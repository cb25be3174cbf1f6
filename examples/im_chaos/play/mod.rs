//! One fault with its cluster and its bots, from the first connection to the verdict.

pub(crate) mod fault;
mod outage;
mod resumes;

use crate::{
    bots::{Crowd, Manners, Status},
    checker::{self, Verdict},
    cluster::{Cluster, proxy::Link, socketio},
    journal::{Event, Journal},
    options::Options,
    report::progress::Progress,
};
use fault::Fault;
use netwheel::prelude::*;
use std::{
    fs,
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

/// Time between two looks at the bots.
const STEP: Duration = Duration::from_millis(10);
/// Time without a delivery after which nothing is delivered twice any more.
const QUIET: Duration = Duration::from_millis(1500);
/// Time without a delivery after which missing messages are lost. It is longer than a node needs to
/// connect to Redis again, and to compare a partition without events with the store (10 s).
const LATE: Duration = Duration::from_secs(15);
/// The node that faults hit.
const VICTIM: usize = 0;

/// What came of a fault.
pub(crate) struct Outcome {
    pub(crate) fault: Fault,
    pub(crate) verdict: Verdict,
    /// When things happened, since the start.
    pub(crate) marks: Vec<(Duration, &'static str)>,
    /// Deliveries in each second.
    pub(crate) timeline: Vec<u32>,
    /// Bots that were not back, or whose last message was not accepted, at the end.
    pub(crate) unsettled: u32,
    /// Time from the end of the fault until all bots were back and all messages accepted.
    pub(crate) settled_after: Duration,
}

/// A run with one fault.
struct Play<'a> {
    options: &'a Options,
    fault: Fault,
    cluster: Cluster,
    crowd: Crowd,
    progress: &'a mut Progress,
    stop: &'a AtomicBool,
    marks: Vec<(Duration, &'static str)>,
}

/// Plays a fault.
///
/// # Errors
/// If a program cannot be started, the bots do not get in, or the user has pressed Ctrl-C.
pub(crate) fn play(
    options: &Options,
    fault: Fault,
    progress: &mut Progress,
    stop: &AtomicBool,
) -> Result<Outcome> {
    // One loop is not enough for the bots and the proxies of a large run.
    let group = EventLoopGroup::builder().threads(2).name("chaos").build()?;
    let cluster =
        Cluster::start(&group, options.program(fault), options.broker, fault.persistence(), options.nodes)?;
    let publishers = if fault.has_publishers() { options.rooms } else { 0 };
    let speakers = if publishers > 0 { publishers } else { options.bots };
    let manners = Manners {
        publishers,
        bots: options.bots,
        rooms: options.rooms,
        interval: Duration::from_secs_f64(f64::from(speakers) / options.rate),
        patience: options.patience,
        asks_for_members: !options.without_presence,
    };
    let crowd = Crowd::start(&group, manners, cluster.addresses());
    let mut play = Play { options, fault, cluster, crowd, progress, stop, marks: Vec::new() };
    let result = play.run();
    let Play { crowd, cluster, marks, .. } = play;
    let mut journal = crowd.finish();
    if result.is_ok() {
        journal.stored = cluster.stored()?;
    }
    // The nodes are killed, and Redis after them.
    drop(cluster);
    group.shutdown(netwheel::shutdown::ShutdownOptions::new().timeout(Duration::from_secs(1))).wait()?;
    let (unsettled, settled_after) = result?;
    let verdict = checker::check(&journal, options.bots, options.rooms);
    let timeline = timeline(&journal);
    if options.journal {
        let path = options.out.join(format!("journal-{}.csv", fault.name()));
        let written = fs::create_dir_all(&options.out).and_then(|()| fs::write(&path, journal.csv()));
        written.map_err(|e| Error::other(format!("writing {}: {e}", path.display())))?;
    }
    Ok(Outcome { fault, verdict, marks, timeline, unsettled, settled_after })
}

impl Play<'_> {
    fn run(&mut self) -> Result<(u32, Duration)> {
        self.wait_until("opening", self.options.settle, |status, bots| status.inside == bots)?
            .ok_or("the bots do not get in")?;
        self.crowd.talk(true);
        self.go_on("talking", self.options.duration)?;
        self.inject()?;
        self.mark("over");
        self.crowd.call_back();
        let all_back = |status: Status, bots| status.inside == bots;
        let settled = self.wait_until("settling", self.options.settle, all_back)?;
        self.go_on("talking", self.options.duration)?;
        self.crowd.talk(false);
        let accepted = |status: Status, bots| status.inside == bots && status.waiting == 0;
        self.wait_until("draining", self.options.settle, accepted)?;
        self.drain()?;
        let status = self.crowd.status();
        let unsettled = (self.options.bots - status.inside).max(status.waiting);
        Ok((unsettled, settled.unwrap_or(self.options.settle)))
    }

    fn inject(&mut self) -> Result {
        let Options { pause, hold, away, .. } = *self.options;
        let back = self.cluster.nodes[VICTIM].back.clone();
        match self.fault {
            Fault::None => {}
            Fault::KillNode => {
                self.crowd.plan_to_stay_away(VICTIM, 4);
                self.mark("kill");
                self.cluster.kill_node(VICTIM);
                // For longer than its lease lives, so that only the lease ends its entries.
                self.go_on("the node is dead", away)?;
                self.cluster.start_node(VICTIM)?;
            }
            Fault::PauseNode => {
                self.crowd.plan_to_stay_away(VICTIM, 4);
                self.mark("stop");
                self.cluster.signal_node(VICTIM, "STOP")?;
                self.go_on("the node is stopped", pause)?;
                self.cluster.signal_node(VICTIM, "CONT")?;
            }
            Fault::RollingRestart => {
                for node in 0..self.cluster.nodes.len() {
                    self.mark("restart");
                    self.cluster.stop_node(node)?;
                    self.cluster.start_node(node)?;
                    self.go_on("restarting one node after the other", Duration::from_secs(3))?;
                }
            }
            Fault::KillRedisAlways
            | Fault::KillRedisEverysec
            | Fault::KillRedisNone
            | Fault::PublishersAlways
            | Fault::PublishersEverysec
            | Fault::PublishersNone => self.kill_redis()?,
            Fault::OneWayCut => {
                self.mark("cut");
                back.set(Link::Hold { to_server: false, to_client: true });
                self.go_on("answers of Redis do not arrive", hold)?;
                back.set(Link::Pass);
            }
            Fault::Hold => {
                self.mark("hold");
                back.set(Link::Hold { to_server: true, to_client: true });
                self.go_on("nothing arrives", hold)?;
                back.set(Link::Pass);
            }
            Fault::TwoCuts => {
                self.mark("cut");
                back.set(Link::Cut);
                self.go_on("cut from Redis", Duration::from_millis(500))?;
                let before = back.accepted();
                back.set(Link::Pass);
                self.until("waiting for the node", Duration::from_secs(10), |_| back.accepted() > before)?;
                self.mark("cut");
                back.reset_all();
                self.go_on("resubscribing", Duration::from_secs(2))?;
            }
            Fault::DeletedKeys => {
                self.mark("delete");
                let is_socketio = self.options.socketio.is_some();
                self.cluster.delete_keys(|key| {
                    if is_socketio {
                        return key == socketio::STREAM;
                    }
                    // All of each third room, the messages of the next, and the metadata of the
                    // next.
                    let Some((kind, room)) = key.rsplit_once("room-") else { return false };
                    let kind = kind.rsplit(['}', ':']).nth(1).unwrap_or_default();
                    match room.parse::<u32>().map(|room| room % 3) {
                        Ok(0) => true,
                        Ok(1) => kind == "stream",
                        Ok(2) => kind == "topic",
                        _ => false,
                    }
                })?;
                self.go_on("talking", Duration::from_secs(12))?;
            }
            Fault::EvictedKeys => {
                self.mark("evict");
                let evicted = self.cluster.evict_keys()?;
                self.progress.end(&format!("{evicted} keys were evicted"));
                self.go_on("talking", Duration::from_secs(12))?;
            }
            Fault::ResumeTwice => self.resume_twice()?,
            Fault::ResumeAtOnce => self.resume_at_once()?,
            Fault::ResumeTrimmed => self.resume_after_trimming()?,
            Fault::ResumeAhead | Fault::ResumeForeign => self.resume_oddly()?,
            Fault::ReconnectAll => {
                self.crowd.return_at_once(VICTIM, true);
                self.mark("reset");
                self.cluster.nodes[VICTIM].front.reset_all();
                self.go_on("reconnecting", Duration::from_secs(2))?;
                self.crowd.return_at_once(VICTIM, false);
            }
        }
        Ok(())
    }

    fn mark(&mut self, what: &'static str) {
        self.marks.push((self.crowd.elapsed(), what));
    }

    /// Waits while the bots go on.
    fn go_on(&mut self, what: &str, time: Duration) -> Result {
        self.until(what, time, |_| false).map(drop)
    }

    /// Waits until nothing is delivered any more: for longer if deliveries are missing.
    fn drain(&mut self) -> Result {
        let (mut last, mut since) = (0, Instant::now());
        let is_quiet = move |status: Status| {
            if status.deliveries != last {
                (last, since) = (status.deliveries, Instant::now());
            }
            since.elapsed() > if status.deliveries < status.expected { LATE } else { QUIET }
        };
        self.until("draining", self.options.settle, is_quiet).map(drop)
    }

    fn wait_until(
        &mut self,
        what: &str,
        limit: Duration,
        is_done: impl Fn(Status, u32) -> bool,
    ) -> Result<Option<Duration>> {
        let bots = self.options.bots;
        self.until(what, limit, move |status| is_done(status, bots))
    }

    /// Waits until `is_done`, for a time at most. Returns the time that it took, or `None`
    /// if the time was over before.
    fn until(
        &mut self,
        what: &str,
        limit: Duration,
        mut is_done: impl FnMut(Status) -> bool,
    ) -> Result<Option<Duration>> {
        let began = Instant::now();
        loop {
            if self.stop.load(Ordering::Acquire) {
                return Err("stopped by the user".into());
            }
            let status = self.crowd.status();
            if is_done(status) {
                return Ok(Some(began.elapsed()));
            }
            if began.elapsed() >= limit {
                return Ok(None);
            }
            let (fault, bots) = (self.fault, self.options.bots);
            self.progress.show(|| {
                let Status { inside, deliveries, waiting, .. } = status;
                let name = fault.name();
                format!("{name}: {what}; {inside} of {bots} inside, {waiting} wait, {deliveries} deliveries")
            });
            thread::sleep(STEP);
        }
    }
}

/// Returns the deliveries in each second.
fn timeline(journal: &Journal) -> Vec<u32> {
    let mut seconds = Vec::new();
    for entry in &journal.entries {
        if let Event::Received { .. } = entry.event {
            let second = usize::try_from(entry.at.as_secs()).unwrap_or(usize::MAX).min(24 * 3600);
            if seconds.len() <= second {
                seconds.resize(second + 1, 0);
            }
            seconds[second] += 1;
        }
    }
    seconds
}
