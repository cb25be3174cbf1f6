//! The services that a loop lends to one channel at a time: time, timers, spare buffers, counters,
//! the attention list.
//!
//! Owned by the loop (or by the embedded test loop), on whose thread they are used. They own
//! neither channels nor sockets.

#[cfg(all(test, not(netwheel_loom)))]
mod detached;
mod io_time;
mod logged_error;
mod wall_clock;

pub(crate) use io_time::IoTime;

use logged_error::LoggedError;
use wall_clock::WallClock;

use super::any_pipeline::AnyPipeline;
use crate::{
    admission::{Work, WorkLimits},
    channel::{
        Due, DueQueue, IdleTimeouts, TimerToken,
        budget::{OutboundBudget, OutboundLease},
        filter::{FilterBuffers, Lent},
        handle::MailSender,
        undecoded::SpareBox,
    },
    clock::TimeSource,
    error::{Error, Overloaded},
    executor::Executor,
    id::Key,
    log_throttle::{LogThrottle, LogTopic},
    metrics::Tally,
    sync::{Activity, Random},
    timer::{QueueKey, Wheel},
    worker_pool::WorkerPool,
};
use log::Level;
#[cfg(feature = "http")]
use std::num::NonZeroU32;
use std::{rc::Rc, sync::Arc, time::SystemTime};

/// The limit of spare outbound buffers kept for the next writers. A turn's broadcasts take this
/// number.
const MAX_SPARES: usize = 4096;

/// The limit of memory in spare buffers, in bytes.
const MAX_SPARE_MEMORY: usize = 16 * 1024 * 1024;

/// Public only in hidden signatures of the pipeline's links.
pub struct LoopServices {
    pub(crate) time: TimeSource,
    /// The time of the current phase. All callbacks of a phase see the same time.
    pub(crate) now: u64,
    /// Exact deadlines.
    pub(crate) queue: DueQueue,
    /// Coarse timeouts: one entry per channel with idle timeouts or limits, and one per timeout of
    /// a handler.
    pub(crate) wheel: Wheel<TimerToken>,
    /// Receives the mail from handles of this loop's channels.
    pub(crate) sender: Arc<dyn MailSender>,
    /// Records the loop's current activity.
    pub(crate) activity: Arc<Activity>,
    /// The random numbers of the loop. A loop of a group shares them with its handles.
    pub(crate) random: Arc<Random>,
    /// The rate limit of lines in the log.
    pub(crate) log: Arc<LogThrottle>,
    /// Threads for blocking work.
    pub(crate) workers: WorkerPool,
    /// Runs the futures of handlers.
    pub(crate) executor: Executor,
    /// The limits of deferrable work; `None` without overload control.
    pub(crate) limits: Option<Arc<WorkLimits>>,
    /// The last number that was assigned to a task of this loop's channels. Only tasks that wait
    /// for an answer, repeat or have a handle are numbered.
    pub(crate) numbered: u64,
    /// The number of the last request that an HTTP server of this loop has begun.
    #[cfg(feature = "http")]
    requests: u32,
    /// Channels to flush, read or close before the turn ends; each at most once.
    pub(crate) attention: Vec<Key>,
    /// The time of day, read at most once per second.
    wall_clock: WallClock,
    /// The budget of pending bytes of all channels.
    pub(crate) outbound: OutboundBudget,
    /// The time limit for the I/O of a turn.
    pub(crate) io_time: IoTime,
    /// Counters of this turn.
    pub(crate) tally: Tally,
    /// The pipeline that the current callback has requested. It takes over when that has returned.
    pub(super) replacement: Option<Box<AnyPipeline>>,
    /// The error that a stage has reported in the current callback. The handler is notified after
    /// it.
    pub(crate) failure: Option<Error>,
    /// The last error of a channel that was logged where it occurred. The default `error` of its
    /// handler does not log it again.
    logged: Option<LoggedError>,
    /// The number of replaced pipelines.
    pub(crate) replaced: u64,
    /// A spare box for bytes that a channel keeps.
    pub(crate) spare_box: SpareBox,
    /// Memory for the filters of channels.
    pub(crate) filter_buffers: FilterBuffers,
    /// The idle timeouts of the last channel. The next channel most likely has the same.
    idle_timeouts: Option<Rc<IdleTimeouts>>,
    #[expect(
        clippy::vec_box,
        reason = "a channel owns its buffer boxed, so that an idle one pays a pointer only"
    )]
    spares: Vec<Box<OutboundLease>>,
    spare_memory: usize,
    /// The spare buffer for the next call. One channel after the other takes and returns it, so it
    /// is not counted in `spare_memory`. Light ([`OutboundLease::is_light`]).
    next_lease: Option<Box<OutboundLease>>,
}

impl LoopServices {
    pub(crate) fn new(
        time: TimeSource,
        wheel: Wheel<TimerToken>,
        sender: Arc<dyn MailSender>,
        activity: Arc<Activity>,
        log: Arc<LogThrottle>,
        outbound: OutboundBudget,
        workers: WorkerPool,
    ) -> Self {
        let now = time.now();
        LoopServices {
            time,
            now,
            queue: DueQueue::new(),
            wheel,
            sender,
            activity,
            random: Arc::new(Random::of_system()),
            log,
            workers,
            executor: Executor::default(),
            limits: None,
            numbered: 0,
            #[cfg(feature = "http")]
            requests: 0,
            attention: Vec::new(),
            wall_clock: WallClock::default(),
            outbound,
            io_time: IoTime::unlimited(),
            tally: Tally::default(),
            replacement: None,
            failure: None,
            logged: None,
            replaced: 0,
            spare_box: SpareBox::default(),
            filter_buffers: FilterBuffers::default(),
            idle_timeouts: None,
            spares: Vec::new(),
            spare_memory: 0,
            next_lease: None,
        }
    }

    /// Returns the number of another request, which repeats after 2^32 - 1 requests.
    #[cfg(feature = "http")]
    pub(crate) fn next_request(&mut self) -> NonZeroU32 {
        self.requests = self.requests.checked_add(1).unwrap_or(1);
        NonZeroU32::new(self.requests).unwrap_or(NonZeroU32::MIN)
    }

    /// Admits or refuses deferrable work.
    #[inline]
    pub(crate) fn admit(&self, work: Work) -> Result<(), Overloaded> {
        self.limits.as_ref().map_or(Ok(()), |limits| limits.admit(work))
    }

    /// Returns the time of day, at most one second old.
    pub(crate) fn wall_time(&mut self) -> SystemTime {
        self.wall_clock.get(&self.time, self.now)
    }

    /// Lends the filters of a channel the buffers and services for a call.
    #[inline]
    pub(crate) fn lend_to_filters(&mut self) -> Lent<'_> {
        Lent { buffers: &mut self.filter_buffers, now: self.now }
    }

    /// Returns whether the next I/O has to wait for the next turn.
    #[inline]
    pub(crate) fn io_is_over(&mut self) -> bool {
        self.io_time.is_over(&self.time)
    }

    /// Returns the earliest deadline.
    pub(crate) fn next_deadline(&self) -> Option<u64> {
        match (self.queue.next_deadline(), self.wheel.next_expiry()) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    /// Returns whether a line about `topic` may be logged. If not, the line is counted.
    pub(crate) fn may_log(&self, topic: &'static str) -> bool {
        self.log.admit(LogTopic::of_program(topic), "netwheel", Level::Warn, self.now)
    }

    /// Removes a timer before it expires. The caller drops it.
    pub(crate) fn cancel_timer(&mut self, key: QueueKey) -> Option<Due> {
        let due = self.queue.cancel(key);
        self.tally.timers_cancelled += u64::from(due.is_some());
        due
    }

    /// Returns one shared copy for successive channels with equal timeouts. `None` if all timeouts
    /// are off.
    pub(crate) fn share_idle_timeouts(&mut self, timeouts: IdleTimeouts) -> Option<Rc<IdleTimeouts>> {
        if timeouts.is_off() {
            return None;
        }
        if self.idle_timeouts.as_deref() != Some(&timeouts) {
            self.idle_timeouts = Some(Rc::new(timeouts));
        }
        self.idle_timeouts.clone()
    }

    #[inline]
    pub(crate) fn lease_outbound(&mut self) -> Box<OutboundLease> {
        match self.next_lease.take() {
            Some(lease) => lease,
            None => self.another_lease(),
        }
    }

    #[inline(never)]
    fn another_lease(&mut self) -> Box<OutboundLease> {
        let Some(spare) = self.spares.pop() else { return Box::default() };
        self.spare_memory -= spare.memory();
        spare
    }

    #[inline(always)]
    pub(crate) fn return_outbound(&mut self, mut lease: Box<OutboundLease>) {
        if self.next_lease.is_none() && lease.is_light() {
            self.outbound.count(&mut lease);
            self.next_lease = Some(lease);
        } else {
            self.keep_spare(lease);
        }
    }

    #[inline(never)]
    fn keep_spare(&mut self, mut lease: Box<OutboundLease>) {
        if !lease.buffer.is_empty() {
            lease.buffer.clear();
        }
        lease.writes.reset();
        self.outbound.count(&mut lease);
        let memory = self.spare_memory + lease.memory();
        if self.spares.len() < MAX_SPARES && memory <= MAX_SPARE_MEMORY {
            self.spare_memory = memory;
            self.spares.push(lease);
        }
    }
}
