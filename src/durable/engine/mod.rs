//! `Engine`: decides which timers fire, without I/O.
//!
//! It receives events ([`EngineMessage`]), is polled with the two clocks, and returns actions
//! ([`EngineStep`]). The driver runs it on one event loop.
//!
//! # Invariants
//!
//! - A timer is in one place: in the store only, in the [`Window`], in `runs`, or in `changing`.
//!   A row that arrives while its timer is in `changing` is dropped, because the outcome has a
//!   newer one. A row that arrives during a run is kept with the run if it is another one. If it is
//!   the same one, the run takes its payload, unless the handler was called or the store has
//!   confirmed the end of the run.
//! - A timer fires only if its due time has passed by the wall clock of that very call, if the
//!   lease is valid, and if its topic is not paused. The exceptions are at-most-once runs, which
//!   the store has ended before.
//! - A command on a timer that runs, or is being changed, waits until that has ended. So a command
//!   that was completed with `true` is never followed by a run that it should have prevented.
//! - At most `max_running` runs have not ended, and they take at most `max_running_bytes`, or there
//!   is one only. An at-most-once run exceeds that if its timer gets a longer payload just before
//!   the store ends the run. Of a topic with a concurrency limit, at most that many have no answer:
//!   each run has a permit of its topic until it is answered. Each poll begins at most
//!   `fires_per_turn` runs, and fires at most that many. `ready` has the runs that wait for their
//!   turn, in their order.

mod closing;
mod commands;
mod inbox;
mod lane;
mod lease_watch;
mod leases;
mod message;
mod open_runs;
mod permit;
mod ready;
mod run;
mod runs;
mod schedule_cache;
mod start_watch;
mod survey;
mod suspects;
#[cfg(test)]
mod tests;
mod window;

pub(super) use inbox::EngineInbox;
pub(super) use message::{Asked, EngineMessage, EngineStep, Purpose, RunAnswer, TimerCommand};
pub(super) use permit::Permit;
pub(super) use run::Firing;

use super::{
    backoff::Backoff,
    id::TimerId,
    metrics::Metrics,
    policy::{Delivery, Late, Retry},
    store::TimerRow,
};
use crate::{
    clock::{ClockWatch, nanos},
    error::Error,
    sync::{Completer, Permits},
};
use lease_watch::LeaseWatch;
use open_runs::OpenRuns;
use run::RunPhase;
use schedule_cache::ScheduleCache;
use start_watch::StartWatch;
use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};
use survey::Survey;
use suspects::Suspects;
use window::Window;

/// The longest time between two polls: jumps of the wall clock are noticed within it.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The pause between two searches for dead letters to remove.
const PRUNE_AGAIN: Duration = Duration::from_secs(10);

/// What the engine has to know about a topic.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rules {
    pub(super) late: Late,
    pub(super) retry: Retry,
    pub(super) delivery: Delivery,
    /// The largest number of runs without an answer.
    pub(super) concurrency: Option<usize>,
    /// How long a handler may take to answer.
    pub(super) run_timeout: Option<Duration>,
}

impl Rules {
    pub(super) const fn new(late: Late, retry: Retry, delivery: Delivery) -> Self {
        Rules { late, retry, delivery, concurrency: None, run_timeout: None }
    }
}

/// The limits of an engine. Times in milliseconds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    pub(super) near: i64,
    pub(super) late_after: i64,
    pub(super) max_loaded: usize,
    pub(super) max_loaded_bytes: usize,
    pub(super) max_running: usize,
    pub(super) max_running_bytes: usize,
    pub(super) fires_per_turn: usize,
    /// Other writers may store timers without a notification.
    pub(super) has_other_writers: bool,
    /// Nothing fires, and the store is not asked for timers or leases.
    pub(super) is_paused: bool,
    /// Whether dead letters of a topic are removed when they are too old or too many.
    pub(super) prunes: bool,
}

impl Limits {
    /// Returns the part of `max_loaded_bytes` that the inbox may take with new timers.
    pub(super) fn inbox_bytes(&self) -> usize {
        self.max_loaded_bytes / 4
    }

    /// Returns the part for the window. An eighth is left for a load on its way.
    fn window_bytes(&self) -> usize {
        self.max_loaded_bytes / 8 * 5
    }
}

/// The two clocks at one instant.
#[derive(Debug, Clone, Copy)]
pub(super) struct Now {
    /// Milliseconds since 1970 (UTC), rounded down.
    pub(super) wall: i64,
    /// Nanoseconds of the loop.
    pub(super) monotonic: u64,
}

#[derive(Debug)]
enum State {
    Active,
    Closing(Vec<Completer<()>>),
    /// The store was asked to close, or has failed.
    Stopped(Option<Error>),
}

pub(super) struct Engine {
    rules: Vec<Rules>,
    limits: Limits,
    window: Window,
    runs: OpenRuns,
    /// How many runs were handed to their handlers.
    fired: u64,
    /// The runs in [`RunPhase::Ready`].
    ready: VecDeque<TimerId>,
    /// Timers of commands that the store has not answered.
    changing: BTreeMap<TimerId, (Completer<bool>, Permit)>,
    /// Commands that wait for the end of a run or of another command.
    waiting: BTreeMap<TimerId, VecDeque<Asked>>,
    /// Timers whose oldest missed runs were skipped, so that the next one runs.
    caught_up: BTreeSet<TimerId>,
    suspects: Suspects,
    /// The suspect that begins at the moment. No other one begins before its handler was called.
    alone: Option<TimerId>,
    schedules: ScheduleCache,
    is_loading: bool,
    /// When the next load may begin, in nanoseconds of the loop.
    load_at: u64,
    load_backoff: Backoff,
    is_pruning: bool,
    /// When dead letters are removed next.
    prune_at: u64,
    survey: Survey,
    clock: ClockWatch,
    lease: Option<LeaseWatch>,
    starts: StartWatch,
    state: State,
    metrics: Arc<Metrics>,
}

impl Engine {
    pub(super) fn new(rules: Vec<Rules>, limits: Limits, needs_claims: bool, metrics: Arc<Metrics>) -> Self {
        let window = Window::new(&rules, limits.max_loaded, limits.window_bytes());
        let mut engine = Engine {
            rules,
            limits,
            window,
            runs: OpenRuns::default(),
            fired: 0,
            ready: VecDeque::new(),
            changing: BTreeMap::new(),
            waiting: BTreeMap::new(),
            caught_up: BTreeSet::new(),
            suspects: Suspects::default(),
            alone: None,
            schedules: ScheduleCache::default(),
            is_loading: false,
            load_at: 0,
            load_backoff: Backoff::default(),
            is_pruning: false,
            prune_at: 0,
            survey: Survey::default(),
            clock: ClockWatch::default(),
            lease: (needs_claims && !limits.is_paused).then(LeaseWatch::new),
            starts: StartWatch::new(limits.has_other_writers),
            state: State::Active,
            metrics,
        };
        engine.start_survey();
        engine
    }

    /// Returns the permits of each topic's runs: as many are taken as runs have no answer.
    pub(super) fn permits(&self) -> &[Arc<Permits>] {
        self.window.permits()
    }

    /// Notes the attempts of timers that are due now, because the last program has not closed the
    /// store.
    pub(super) fn suspect_store(&mut self) {
        self.suspects.suspect_store();
    }

    /// Takes a message. What follows from it is appended to `steps`.
    pub(super) fn handle(&mut self, message: EngineMessage, now: Now, steps: &mut Vec<EngineStep>) {
        let now = self.look(now);
        match message {
            EngineMessage::Stored(row) => self.insert(row),
            EngineMessage::StartsDropped => self.window.clear(),
            EngineMessage::Changed { id, outcome } => self.changed(id, outcome, now, steps),
            EngineMessage::CommandFailed { id, error } => self.command_failed(id, error, now, steps),
            EngineMessage::Loaded { range, loaded } => {
                self.is_loading = false;
                self.load_backoff.succeeded();
                if self.window.extend(range, &loaded) {
                    loaded.rows.into_iter().for_each(|row| self.insert(row));
                }
            }
            EngineMessage::LoadFailed => {
                self.is_loading = false;
                self.load_at = now.monotonic.saturating_add(nanos(self.load_backoff.failed()));
            }
            EngineMessage::StartHinted => self.starts.hint(now.monotonic),
            EngineMessage::Looked => self.starts.looked(now.monotonic),
            EngineMessage::Surveyed { rows } => self.surveyed(rows, now, steps),
            EngineMessage::Renewed { asked, lease, changed } => self.renewed(asked, lease, changed, now),
            EngineMessage::Paused { topics, pausing } => {
                self.window.set_paused(&topics);
                if let Some((completer, _permit)) = pausing {
                    steps.push(EngineStep::Complete(completer, Ok(true)));
                }
            }
            EngineMessage::Pruned { is_complete } => {
                self.is_pruning = false;
                let pause = if is_complete { nanos(PRUNE_AGAIN) } else { 0 };
                self.prune_at = now.monotonic.saturating_add(pause);
            }
            EngineMessage::Stopped(error) => self.stop(Some(error), now, steps),
            EngineMessage::Answered { id, run, answer } => self.answered(id, run, answer, now, steps),
            EngineMessage::Asked(asked) => self.asked(asked, now, steps),
            EngineMessage::Close(completer) => match &mut self.state {
                State::Active => {
                    self.state = State::Closing(vec![completer]);
                    self.drain(now, steps);
                }
                State::Closing(completers) => completers.push(completer),
                // The store may still be closing.
                State::Stopped(None) => steps.push(EngineStep::Close(vec![completer])),
                State::Stopped(Some(error)) => {
                    steps.push(EngineStep::FailClose(vec![completer], error.clone()));
                }
            },
            EngineMessage::CloseNow => self.close(now, steps),
        }
    }

    /// Fires due timers, and requests due timers that are not loaded yet.
    pub(super) fn poll(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        let now = self.look(now);
        self.suspects.polled(now.wall);
        self.expire(now, steps);
        match self.state {
            State::Active => {}
            State::Closing(_) => {
                self.fire_ready(now, steps);
                if self.runs.is_empty() && self.changing.is_empty() {
                    self.close(now, steps);
                } else {
                    // The runs end under the epochs of their claims.
                    self.renew(now, steps);
                }
                return self.publish();
            }
            State::Stopped(_) => return self.publish(),
        }
        let until = now.wall.saturating_add(self.limits.near);
        self.renew(now, steps);
        self.look_for_starts(now, steps);
        self.begin_due(now, steps);
        self.fire_ready(now, steps);
        if !self.is_loading
            && self.load_at <= now.monotonic
            && self.may_fire(now)
            && let Some(range) = self.window.missing(until, self.enough(now), now.wall)
        {
            self.is_loading = true;
            steps.push(EngineStep::Load(range));
        }
        if self.limits.prunes && !self.is_pruning && self.prune_at <= now.monotonic {
            self.is_pruning = true;
            steps.push(EngineStep::Prune);
        }
        self.continue_survey(now, steps);
        self.publish();
    }

    /// Looks at the clocks. Returns the time that counts, which is not later than the wall clock.
    ///
    /// The window is ordered by wall time, so it stays correct when that is set: only its distance
    /// changes.
    fn look(&mut self, now: Now) -> Now {
        let seen = self.clock.observe(now.wall, now.monotonic);
        if let Some(jump) = seen.jump {
            self.metrics.clock_jumps.add(1);
            let how = if seen.is_doubtful { "if it stays so for a minute" } else { "at once" };
            log::warn!("the wall clock jumped by {jump} ms; durable timers follow it {how}");
        }
        if seen.is_back {
            self.start_survey();
        }
        Now { wall: seen.wall, ..now }
    }

    /// Returns how long to wait before the next poll. Zero if there is more to do, `None` if there
    /// will be nothing to do any more.
    pub(super) fn sleep(&self, now: Now) -> Option<Duration> {
        if matches!(self.state, State::Stopped(_)) {
            return None;
        }
        if !self.ready.is_empty() {
            return Some(Duration::ZERO);
        }
        let mut sleep = LOOK_AGAIN;
        if let Some(at) = self.lease.as_ref().and_then(LeaseWatch::renew_at) {
            sleep = sleep.min(Duration::from_nanos(at.saturating_sub(now.monotonic)));
        }
        if let Some(at) = self.runs.first_deadline() {
            sleep = sleep.min(Duration::from_nanos(at.saturating_sub(now.monotonic)));
        }
        if matches!(self.state, State::Closing(_)) {
            return Some(sleep);
        }
        if let Some(at) = self.starts.look_at().filter(|_| !self.limits.is_paused) {
            sleep = sleep.min(Duration::from_nanos(at.saturating_sub(now.monotonic)));
        }
        if let Some(at) = self.survey.next_at().filter(|_| self.may_fire(now)) {
            sleep = sleep.min(Duration::from_nanos(at.saturating_sub(now.monotonic)));
        }
        if self.load_at > now.monotonic {
            sleep = sleep.min(Duration::from_nanos(self.load_at - now.monotonic));
        }
        if self.has_room()
            && self.may_fire(now)
            && !self.waits_for_alone()
            && let Some(first) = self.window.first()
        {
            let wall = self.clock.believed(now.wall, now.monotonic);
            let left = u64::try_from(first.due.saturating_sub(wall)).unwrap_or(0);
            sleep = sleep.min(Duration::from_millis(left));
        }
        Some(sleep)
    }

    /// Looks for timers that other connections have stored, in the whole loaded range.
    fn look_for_starts(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        if !self.limits.is_paused && self.starts.start_look(now.monotonic) {
            steps.push(EngineStep::Look { until: self.loaded_range_end(now) });
        }
    }

    /// Returns the due time up to which a timer that is stored or moved may have to be in the
    /// window. It is later than `near` after the clock was set back.
    fn loaded_range_end(&self, now: Now) -> i64 {
        now.wall.saturating_add(self.limits.near).max(self.window.loaded_to())
    }

    /// Returns the due time up to which loaded timers are enough for now: a timer is in memory
    /// before it is due, but not every poll loads.
    fn enough(&self, now: Now) -> i64 {
        now.wall.saturating_add(self.limits.near / 2)
    }

    fn insert(&mut self, row: TimerRow) {
        let id = row.key.id;
        if let Some(run) = self.runs.get(id) {
            // The engine knows all rows from before the run, so another due time is a newer one.
            if run.row.key != row.key {
                self.runs.replace(row);
                return;
            }
            let takes_payload = match run.phase {
                // Rows and outcomes arrive in order, so the payload is older than the outcome.
                RunPhase::Permission => true,
                RunPhase::Ready => !self.has_ended(run),
                RunPhase::TopicHandler | RunPhase::End => false,
            };
            if takes_payload {
                self.runs.set_payload(id, row.payload);
            }
            return;
        }
        if self.is_own(&row) && !self.changing.contains_key(&id) {
            self.window.insert(row);
        }
    }

    fn publish(&self) {
        self.metrics.loaded.set(self.window.len() as u64);
        self.metrics.loaded_bytes.set(self.window.bytes() as u64);
        self.metrics.running.set(self.runs.len() as u64);
        self.metrics.running_bytes.set(self.runs.bytes() as u64);
    }

    /// Returns whether the first timer of the window may begin a run. One run has room in any case.
    fn has_room(&self) -> bool {
        self.has_room_for(self.window.first_row().map_or(0, TimerRow::weight))
    }

    /// Returns whether another run of this weight may be open.
    fn has_room_for(&self, weight: usize) -> bool {
        let bytes = self.runs.bytes().saturating_add(weight);
        self.runs.is_empty()
            || (self.runs.len() < self.limits.max_running && bytes <= self.limits.max_running_bytes)
    }

    /// Converts a duration for the stores' due times.
    fn due_after(now: Now, pause: Duration) -> i64 {
        let millis = nanos(pause).div_ceil(1_000_000);
        now.wall.saturating_add(i64::try_from(millis).unwrap_or(i64::MAX))
    }
}
