//! The state that the handles of a loop share with its thread.
//!
//! Invariants: the life state only moves forward. Accepted mail ([`LoopShared::submit`]) is taken
//! out by the loop's thread in the order in which one thread submitted it. The waker is written at
//! most once per sleep. Any thread may call everything here.
//!
//! Modules: `life` (from the start of the thread to its end), `submission` (mail and wakeups).

mod life;
mod submission;

pub(crate) use life::LifeState;

use super::{load::Load, mail::LoopMail, poll::LoopWaker};
#[cfg(unix)]
use crate::sync::Permits;
use crate::{
    clock::TimeSource,
    log_throttle::LogThrottle,
    metrics::Metrics,
    sync::{Activity, Mailbox, Random, WakeUp},
};
use crossbeam_utils::CachePadded;
use life::LoopEnd;
use mio::Waker;
use std::sync::{
    Arc,
    atomic::{AtomicU8, AtomicUsize},
};

pub(crate) struct LoopShared {
    pub(crate) id: u32,
    pub(crate) name: String,
    pub(crate) time: TimeSource,
    pub(crate) random: Arc<Random>,
    /// On cache lines of its own: the loop writes it all the time, and what submitters look at lies beside.
    pub(crate) metrics: Arc<CachePadded<Metrics>>,
    pub(crate) load: Arc<Load>,
    pub(crate) wake_up: CachePadded<WakeUp>,
    pub(crate) activity: Arc<Activity>,
    pub(crate) mailbox: Mailbox<LoopMail>,
    /// The rate limit of lines in the log.
    pub(crate) log: Arc<LogThrottle>,
    pub(crate) max_scheduled_tasks: usize,
    /// Event sources that are registered, or on their way; none are allowed until their limit is set.
    #[cfg(unix)]
    pub(crate) event_sources: Arc<Permits>,
    /// Scheduled tasks that have not ended.
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
        waker: Arc<Waker>,
    ) -> Self {
        LoopShared {
            id,
            log: Arc::new(LogThrottle::new(&name)),
            name,
            time,
            random: Arc::new(Random::of_system()),
            metrics: Arc::default(),
            load: Arc::new(Load::new(max_connections)),
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
}
