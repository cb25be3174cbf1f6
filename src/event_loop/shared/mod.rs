//! The state that the handles of a loop share with its thread.
//!
//! Invariants: the life state only moves forward. The loop's thread takes accepted mail
//! ([`LoopShared::submit`]) from the queue in the order in which one thread submitted it. The waker
//! is written at most once per sleep. Any thread may call everything here.
//!
//! Modules: `life` (from the start of the thread to its end), `submission` (mail and wakeups).

mod life;
mod submission;

pub(crate) use life::LifeState;

use super::{PollWaker, load::Load, mail::LoopMail, poll::LoopWaker};
#[cfg(unix)]
use crate::sync::Permits;
use crate::{
    admission::WorkLimits,
    clock::TimeSource,
    log_throttle::LogThrottle,
    metrics::Metrics,
    sync::{Activity, Mailbox, Random, WakeUp},
};
use crossbeam_utils::CachePadded;
use life::LoopEnd;
use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicUsize},
};

pub(crate) struct LoopShared {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) time: TimeSource,
    pub(crate) random: Arc<Random>,
    /// On separate cache lines: the loop writes the metrics constantly, and neighbouring fields are
    /// read by submitters.
    pub(crate) metrics: Arc<CachePadded<Metrics>>,
    pub(crate) load: Arc<Load>,
    /// The limits of deferrable work; `None` without overload control.
    pub(crate) limits: Option<Arc<WorkLimits>>,
    pub(crate) wake_up: CachePadded<WakeUp>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) mailbox: Mailbox<LoopMail>,
    /// The rate limit of log lines.
    pub(crate) log: Arc<LogThrottle>,
    pub(crate) max_scheduled_tasks: usize,
    /// Permits for event sources that are registered, or being registered. None are available until
    /// the limit is set.
    #[cfg(unix)]
    pub(crate) event_sources: Arc<Permits>,
    /// The number of scheduled tasks that have not ended.
    pub(crate) scheduled_tasks: AtomicUsize,
    state: AtomicU8,
    waker: LoopWaker,
    end: LoopEnd,
}

impl LoopShared {
    pub(crate) fn new(
        id: u32,
        name: String,
        time: TimeSource,
        mailbox: Mailbox<LoopMail>,
        max_scheduled_tasks: usize,
        max_connections: usize,
        waker: PollWaker,
    ) -> Self {
        LoopShared {
            id,
            log: Arc::new(LogThrottle::new(&name)),
            name,
            time,
            random: Arc::new(Random::of_system()),
            metrics: Arc::default(),
            load: Arc::new(Load::new(max_connections)),
            limits: None,
            wake_up: CachePadded::new(WakeUp::new()),
            activity: Arc::default(),
            mailbox,
            max_scheduled_tasks,
            #[cfg(unix)]
            event_sources: Arc::new(Permits::new(0)),
            scheduled_tasks: AtomicUsize::new(0),
            state: AtomicU8::new(LifeState::NotStarted as u8),
            waker: LoopWaker::new(waker),
            end: LoopEnd::default(),
        }
    }

    /// Sets the limit of event sources.
    #[cfg(unix)]
    pub(crate) fn with_max_event_sources(mut self, sources: usize) -> Self {
        self.event_sources = Arc::new(Permits::new(sources));
        self
    }

    /// Sets the seed of the loop's random numbers.
    pub(crate) fn with_seed(mut self, seed: u64) -> Self {
        self.random = Arc::new(Random::new(seed));
        self
    }

    /// Sets the limits of deferrable work.
    pub(crate) fn with_limits(mut self, limits: Option<Arc<WorkLimits>>) -> Self {
        self.limits = limits;
        self
    }
}
