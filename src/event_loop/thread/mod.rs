//! The life of a loop: its construction, the body of its thread, and its end.
//!
//! Invariants: a loop stays on the thread that runs its first turn. However it ends, the mail in
//! its queue is run or refused, its hooks run, and its termination completes.
//!
//! Modules: `driven` (loops that their owner runs, turn by turn), `loop_settings`, `affinity` (the
//! core of a thread), `simulated` (loops of simulations) and `invariants` (their checks).

mod affinity;
mod driven;
#[cfg(feature = "simulation")]
mod invariants;
mod loop_settings;
#[cfg(feature = "simulation")]
mod simulated;

pub(crate) use affinity::Core;
pub(crate) use driven::DrivenLoop;
pub(crate) use loop_settings::LoopSettings;
#[cfg(feature = "simulation")]
use simulated::SimulatedLoop;

use super::{
    EventLoop, Selector, WatchdogThread,
    broadcast::Broadcasts,
    budget::{Pace, Stopwatch},
    io::Io,
    mail::LoopMail,
    poll::{Sleep, SpinGuard},
    shared::{LifeState, LoopShared},
    sources::{Slot, Sources},
    tasks,
    turn::Turn,
    watchdog::WatchedLoop,
};
#[cfg(feature = "simulation")]
use crate::machine::simulated as simulated_machine;
use crate::{
    admission::OverloadController,
    channel::{
        CloseCause, Due, IoTime, LoopServices, MailSender, OutboundBudget, SharedBudget, TimerToken,
        driver::LoopIo,
    },
    clock::{TimeSource, nanos},
    error::{Error, Result, caught},
    log_throttle::{LogAt, off_loop},
    sync::{Inbox, LoopPhase, loop_id, mailbox},
    timer::Wheel,
    worker_pool::WorkerPool,
};
use std::{collections::VecDeque, sync::Arc};

/// The settings and resources of a loop. See
/// [`EventLoopGroupBuilder`](crate::group::EventLoopGroupBuilder).
#[derive(Debug, Clone)]
pub(crate) struct LoopConfig {
    pub(crate) name: String,
    /// Checked against their ranges.
    pub(crate) settings: LoopSettings,
    pub(crate) group_outbound: Arc<SharedBudget>,
    pub(crate) core: Option<Core>,
    /// The seed of the loop's random numbers.
    pub(crate) seed: u64,
    pub(crate) watchdog_thread: Option<Arc<WatchdogThread>>,
    pub(crate) workers: WorkerPool,
}

/// Makes the turn of a loop, on the thread that will run it.
type MakeTurn = Box<dyn FnOnce(Arc<LoopShared>) -> Turn + Send>;

impl EventLoop {
    /// Creates a loop whose thread starts with the first submission.
    pub(crate) fn new(config: LoopConfig) -> Result<Self> {
        #[cfg(feature = "simulation")]
        let machine = simulated_machine::current();
        let (core, watchdog_thread) = (config.core, config.watchdog_thread.clone());
        let (shared, make) = Self::prepare(config)?;
        // The closure is owned by `shared`. A strong reference would leak a loop that is never
        // started.
        let weak = Arc::downgrade(&shared);
        shared.start_by(Box::new(move || {
            let shared = weak.upgrade().expect("a loop is started through a handle to it");
            #[cfg(feature = "simulation")]
            if let Some(machine) = machine {
                return machine.start_loop(Box::new(move || Box::new(SimulatedLoop::new(make(shared)))));
            }
            let name = shared.name.clone();
            let body = move || {
                if let Some(core) = core {
                    // The program's logger may panic.
                    caught(|| core.pin(&shared.name));
                }
                let mut turn = None;
                let cause = caught(|| turn = Some(make(shared.clone())));
                match turn {
                    Some(turn) => live(turn, watchdog_thread),
                    None => end_unborn(&shared, cause),
                }
            };
            std::thread::Builder::new().name(name).spawn(body).map(drop)
        }));
        Ok(EventLoop { shared })
    }

    /// Creates the shared part of a loop, and a closure that creates its turn on the thread that
    /// will run it.
    fn prepare(config: LoopConfig) -> Result<(Arc<LoopShared>, MakeTurn)> {
        let settings = config.settings;
        let wheel =
            Wheel::<crate::id::Key>::builder().tick(settings.wheel_tick).slots(settings.wheel_slots).build();
        let wheel = wheel.map_err(as_setting_of_a_group)?;
        let (selector, waker) = Selector::new().map_err(|e| Error::io("opening a poll", e))?;
        let (mailbox, inbox) = mailbox(settings.max_pending_tasks);
        let time = TimeSource::new(settings.clock.clone());
        let (tasks, connections) = (settings.max_scheduled_tasks, settings.max_connections);
        let id = loop_id::next();
        let name = config.name;
        let shared = LoopShared::new(id, name, time.clone(), mailbox, tasks, connections, waker);
        let shared = shared.with_seed(config.seed);
        let overload = settings
            .overload_target
            .map(|target| Box::new(OverloadController::new(target, shared.random.clone(), time.now())));
        let shared = shared.with_limits(overload.as_ref().map(|overload| overload.limits().clone()));
        #[cfg(unix)]
        let shared = shared.with_max_event_sources(settings.max_event_sources);
        let shared = Arc::new(shared);
        if !settings.clock.is_real_time() {
            let weak = Arc::downgrade(&shared);
            settings.clock.on_advance(Box::new(move || {
                if let Some(shared) = weak.upgrade() {
                    shared.wake_if_asleep(0);
                }
            }));
        }
        let (group_outbound, workers) = (config.group_outbound, config.workers);
        let parts = TurnParts { settings, selector, inbox, time, wheel, overload, group_outbound, workers };
        Ok((shared, Box::new(move |shared| parts.assemble(shared))))
    }
}

/// The parts of a turn that are created before its thread starts.
struct TurnParts {
    settings: LoopSettings,
    selector: Selector,
    inbox: Inbox<LoopMail>,
    time: TimeSource,
    wheel: Wheel<TimerToken>,
    overload: Option<Box<OverloadController>>,
    group_outbound: Arc<SharedBudget>,
    workers: WorkerPool,
}

impl TurnParts {
    /// Creates the turn, on the thread that will run it.
    fn assemble(self, shared: Arc<LoopShared>) -> Turn {
        let TurnParts { settings, selector, inbox, time, wheel, overload, group_outbound, workers } = self;
        let real_time = settings.clock.is_real_time();
        let sleep = Sleep::new(settings.clock.longest_sleep(), settings.busy_poll);
        let sender: Arc<dyn MailSender> = shared.clone();
        let outbound = OutboundBudget::new(settings.max_outbound, group_outbound);
        let activity = shared.activity.clone();
        let log = shared.log.clone();
        let mut services = LoopServices::new(time, wheel, sender, activity, log, outbound, workers);
        services.io_time = IoTime::limited(nanos(settings.max_io_time), real_time);
        services.random = shared.random.clone();
        services.executor = settings.executor.clone();
        services.limits = shared.limits.clone();
        let mut drivers = LoopIo::new(services, shared.metrics.clone());
        drivers.handshakes_per_turn = settings.handshakes_per_turn;
        let io = Io { selector, drivers, inactive: Vec::new(), max_lingering: settings.max_lingering };
        let now = io.services.now;
        Turn {
            shared,
            inbox,
            sources: Sources::new(),
            accepted: None,
            io,
            budget: settings.budget(),
            overload,
            task_pace: Pace::new(real_time),
            timer_pace: Pace::new(real_time),
            deliver_pace: Pace::of_deliveries(real_time),
            spin: SpinGuard::new(settings.rebuild_threshold),
            stopwatch: Stopwatch::new(now),
            shutdown: None,
            ages: None,
            sleep,
            real_time,
            timers_left: false,
            broadcasts: Broadcasts::default(),
            at_end: VecDeque::new(),
            rest_until: None,
            poll_failures: 0,
            failure_logged: false,
        }
    }
}

/// Renames settings of the wheel to their names in the group builder.
fn as_setting_of_a_group(error: Error) -> Error {
    let Error::Setting(refused) = error else { return error };
    Error::Setting(match refused.setting() {
        "tick" => refused.renamed("wheel_tick"),
        "slots" => refused.renamed("wheel_slots"),
        _ => refused,
    })
}

/// Runs a loop on its thread, until it has shut down.
fn live(mut turn: Turn, watchdog_thread: Option<Arc<WatchdogThread>>) {
    let shared = turn.shared.clone();
    let _entered = loop_id::enter(shared.id);
    let _local = tasks::enter(shared.id, turn.io.services.queue.clone());
    let watch = watchdog_thread
        .map(|watchdog_thread| watchdog_thread.watch(&shared.name, shared.id, shared.activity.clone()));
    let cause = caught(|| turn.run());
    end(turn, cause, watch);
}

/// Ends a loop whose turn could not be made: the clock of the program has panicked.
fn end_unborn(shared: &LoopShared, cause: Option<String>) {
    if let Some(cause) = &cause {
        caught(|| log::error!("{}: the loop has panicked at its start: {cause}", shared.name));
    }
    shared.advance(LifeState::ShutDown);
    shared.run_hooks();
    shared.advance(LifeState::Terminated);
    shared.set_terminated(cause);
}

/// Drops the loop's values, and breaks the cycles among them: a task may own its handle, and a
/// callback of `closed` its channel. Such values are left only if the loop has ended without a
/// shutdown. Returns the message of a panic.
fn drop_turn(turn: Turn) -> Option<String> {
    let tasks = turn.io.services.queue.take_if(|due| matches!(due, Due::Task(_)));
    let channels: Vec<_> = turn.sources.slots().filter_map(Slot::shared_channel).collect();
    let message = caught(|| drop(turn));
    for task in tasks {
        if let Due::Task(task) = task {
            caught(|| task.abandon());
        }
    }
    for channel in channels {
        caught(|| channel.set_closed(CloseCause::ShutDown));
    }
    message
}

/// Ends a loop on its thread, after the last turn. `cause` is the message of the panic that ended
/// the loop, if any. The watchdog's `watch` is dropped when no more code can block.
fn end(turn: Turn, cause: Option<String>, watch: Option<WatchedLoop>) {
    let shared = turn.shared.clone();
    // The termination has to complete even if the log panics.
    if let Some(cause) = &cause {
        caught(|| log::error!("{}: the loop itself panicked and has ended: {cause}", shared.name));
    }
    shared.advance(LifeState::ShutDown);
    shared.activity.enter_phase(LoopPhase::Shutdown);
    // Drops channels, handlers and the remaining mail on their own thread.
    if let Some(message) = drop_turn(turn) {
        caught(|| log::error!("{}: a panic while the loop ended: {message}", shared.name));
    }
    shared.run_hooks();
    caught(|| {
        shared.log.finish(shared.time.now());
        let LogAt { log, now } = off_loop();
        log.finish(now);
    });
    drop(watch);
    shared.advance(LifeState::Terminated);
    shared.set_terminated(cause);
}
