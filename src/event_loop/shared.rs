//! What the handles of a loop share with its thread.
//!
//! Always holds: the state only moves forward; what was accepted by [`LoopShared::submit`] is taken out by the
//! loop's thread in the submitter's order; the waker is written at most once per sleep. Any thread may call
//! everything here.

#[cfg(unix)]
use super::foreign::SourceMail;
use super::{
    load::Load,
    loop_waker::LoopWaker,
    pace::Site,
    shutdown::{ShutdownHooks, ShutdownReport, ShutdownRequest},
    sources::{Accepted, Attempt, Connecting, ListenerShared, Listening},
    task::Task,
};
#[cfg(unix)]
use crate::sync::Permits;
use crate::{
    Error, Result,
    channel::{AnyDelivery, Delivery, Mail, MailSender, Scheduled},
    clock::TimeSource,
    datagram::{DatagramMail, DatagramShared, Opening},
    error::{Refused, caught},
    event_loop::RebuildReport,
    id::Key,
    log_throttle::{LogAt, LogThrottle, WAKES_FAILED, log_throttled},
    metrics::Metrics,
    sync::{Activity, Asleep, Completer, Completion, Mailbox, Random, WakeUp, completion, loop_id},
};
use crossbeam_utils::CachePadded;
use log::Level;
use mio::Waker;
use std::{
    panic::Location,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU8, AtomicUsize, Ordering},
    },
    time::Duration,
};

/// What comes through a loop's queue.
///
/// The tag takes a whole word because it would anyway: so mail is copied word by word, and not a byte and then, all
/// unaligned, the rest, which costs a small task's time with every copy.
#[repr(usize)]
pub(crate) enum LoopMail {
    /// Something to run.
    Task(Task),
    /// Something to run that is handed back if it is refused.
    BoxedTask(Box<dyn FnOnce() + Send>, &'static Location<'static>),
    /// Something for a channel.
    Channel(Key, Mail),
    /// A broadcast to channels.
    Broadcast(Box<Delivery>),
    /// A task for the heap.
    Schedule(u64, Arc<dyn Scheduled>),
    /// A task for the end of this turn.
    AtTurnEnd(Arc<dyn Scheduled>),
    /// A cancelled task, to be taken out of the heap.
    Unschedule(Arc<dyn Scheduled>),
    /// A listener to watch.
    Listen(Box<Listening>),
    /// A connection that another loop accepted.
    Adopt(Box<Accepted>),
    /// A connection that is being made.
    Connect(Box<Connecting>),
    /// A connection that is being made, and is not wanted any more.
    CancelConnect(Attempt),
    /// A listener to close.
    CloseListener(Arc<ListenerShared>),
    /// Whether a listener is to accept connections.
    Accepting(Arc<ListenerShared>, bool),
    /// A datagram channel to open.
    OpenDatagram(Box<Opening>),
    /// Something for a datagram channel.
    Datagram(Arc<DatagramShared>, Box<DatagramMail>),
    /// An event source of the program's own to register, or a change to one.
    #[cfg(unix)]
    EventSource(Box<SourceMail>),
    /// Build the poll anew.
    Rebuild(Completer<RebuildReport>),
    /// Look at the state: shutdown was asked for.
    Shutdown,
}

impl LoopMail {
    /// The channel that it is for, if it is for one.
    pub(crate) fn channel(&self) -> Option<Key> {
        match self {
            LoopMail::Channel(key, _) => Some(*key),
            LoopMail::Datagram(shared, _) => shared.key.get().copied(),
            _ => None,
        }
    }

    /// What tells how long handling it will take.
    pub(super) fn site(&self) -> Site {
        match self {
            LoopMail::Task(task) => Site::of(task.origin()),
            LoopMail::BoxedTask(_, origin) => Site::of(origin),
            LoopMail::Channel(_, Mail::Run(_) | Mail::Answer(_)) => Site::ANY,
            LoopMail::Channel(..)
            | LoopMail::Schedule(..)
            | LoopMail::Unschedule(_)
            | LoopMail::AtTurnEnd(_) => Site::COMMAND,
            _ => Site::ANY,
        }
    }
}

/// How far a loop's life has come; it never goes back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LifeState {
    NotStarted,
    Started,
    ShuttingDown,
    ShutDown,
    Terminated,
}

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
    /// What the thread is made of, until it is started.
    seed: Mutex<Option<Seed>>,
    shutdown: Mutex<Option<ShutdownRequest>>,
    hooks: ShutdownHooks,
    /// What came of the shutdown, once the loop has ended.
    report: OnceLock<ShutdownReport>,
    terminated: Mutex<Termination>,
}

/// Makes the body of the thread; called while the loop's handle is at hand, so it need not keep the loop alive.
pub(crate) type Seed = Box<dyn FnOnce() -> Box<dyn FnOnce() + Send> + Send>;

enum Termination {
    Awaited(Vec<Completer>),
    Done(Option<String>),
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
            seed: Mutex::new(None),
            shutdown: Mutex::new(None),
            hooks: ShutdownHooks::default(),
            report: OnceLock::new(),
            terminated: Mutex::new(Termination::Awaited(Vec::new())),
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

    /// Sets what the first submission starts.
    pub(crate) fn set_seed(&self, seed: Seed) {
        *lock(&self.seed) = Some(seed);
    }

    // ---- life ----------------------------------------------------------------------------------------

    #[inline]
    pub(crate) fn state(&self) -> LifeState {
        match self.state.load(Ordering::SeqCst) {
            0 => LifeState::NotStarted,
            1 => LifeState::Started,
            2 => LifeState::ShuttingDown,
            3 => LifeState::ShutDown,
            _ => LifeState::Terminated,
        }
    }

    /// Moves forward to `state`; does nothing if it is there or further.
    pub(crate) fn advance(&self, state: LifeState) {
        self.state.fetch_max(state as u8, Ordering::SeqCst);
    }

    fn start(&self) -> Result {
        let swap = self.state.compare_exchange(
            LifeState::NotStarted as u8,
            LifeState::Started as u8,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if swap.is_ok()
            && let Some(seed) = lock(&self.seed).take()
        {
            let thread = std::thread::Builder::new().name(self.name.clone()).spawn(seed());
            if let Err(e) = thread {
                let error = Error::io("starting the event loop's thread", e);
                self.advance(LifeState::Terminated);
                self.set_terminated(Some(error.to_string()));
                return Err(error);
            }
        }
        Ok(())
    }

    /// Asks for a graceful shutdown; the first request counts.
    pub(crate) fn shut_down(&self, request: ShutdownRequest) {
        {
            let mut asked = lock(&self.shutdown);
            if asked.is_some() {
                return;
            }
            *asked = Some(request);
        }
        let unstarted = self.state.compare_exchange(
            LifeState::NotStarted as u8,
            LifeState::Terminated as u8,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if unstarted.is_ok() {
            drop(lock(&self.seed).take());
            self.set_terminated(None);
            return;
        }
        self.advance(LifeState::ShuttingDown);
        if self.mailbox.put_always(LoopMail::Shutdown).is_ok() {
            self.wake_if_asleep(0);
        }
    }

    pub(crate) fn shutdown_request(&self) -> Option<ShutdownRequest> {
        *lock(&self.shutdown)
    }

    pub(crate) fn set_report(&self, report: ShutdownReport) {
        // There is one shutdown, so it is the first.
        let _ = self.report.set(report);
    }

    /// What came of the shutdown; nothing, if the loop never started.
    pub(crate) fn report(&self) -> ShutdownReport {
        self.report.get().cloned().unwrap_or_default()
    }

    /// Keeps a hook for when the loop has ended, and starts its thread if need be: that is where the hook runs.
    ///
    /// # Errors
    /// If the loop has ended or cannot be started, or has too many hooks.
    pub(crate) fn add_hook(&self, hook: Task) -> Result {
        if self.state() == LifeState::NotStarted {
            self.start()?;
        }
        // A thread that has run the hooks takes no more of them; one that never was cannot say so.
        if self.state() == LifeState::Terminated {
            return Err(Error::ShutDown);
        }
        self.hooks.add(hook)
    }

    /// Runs the hooks; the last thing that the loop's thread does for its program.
    pub(crate) fn run_hooks(&self) {
        self.hooks.run(&self.name, &self.activity);
    }

    /// Completes when the loop has ended.
    pub(crate) fn terminated(&self) -> Completion {
        match &mut *lock(&self.terminated) {
            Termination::Done(None) => Completion::ready(Ok(())),
            Termination::Done(Some(cause)) => Completion::ready(Err(Error::Panicked(cause.clone()))),
            Termination::Awaited(waiting) => {
                let (completer, completion) = completion(Some(self.id));
                waiting.push(completer);
                completion
            }
        }
    }

    /// The loop has ended, well or with the text of what it failed with.
    pub(crate) fn set_terminated(&self, cause: Option<String>) {
        // However it ended: nobody waits for room in it any longer.
        self.mailbox.close();
        let before = std::mem::replace(&mut *lock(&self.terminated), Termination::Done(cause.clone()));
        if let Termination::Awaited(waiting) = before {
            for completer in waiting {
                completer.complete(match &cause {
                    None => Ok(()),
                    Some(cause) => Err(Error::Panicked(cause.clone())),
                });
            }
        }
    }

    // ---- submission ----------------------------------------------------------------------------------

    /// Puts mail into the queue, starts the loop's thread if this is the first, and wakes it if it sleeps beyond
    /// `when` (0: now).
    ///
    /// # Errors
    /// The mail comes back if the queue is full or the loop takes no more.
    pub(crate) fn submit(&self, mail: LoopMail, when: u64) -> Result<(), Refused<LoopMail>> {
        self.enter_queue(mail, when, Mailbox::put)
    }

    /// As [`LoopShared::submit`], of what is wanted now.
    pub(crate) fn submit_now(&self, mail: LoopMail) -> Result<(), Refused<LoopMail>> {
        self.submit(mail, 0)
    }

    /// As [`LoopShared::submit`], whatever the length of the queue: for what gives something back.
    pub(crate) fn submit_always(&self, mail: LoopMail) -> Result<(), Refused<LoopMail>> {
        self.enter_queue(mail, 0, Mailbox::put_always)
    }

    /// As [`LoopShared::submit`] for what is wanted now, but waits up to `timeout` for room. Not for the loop's own
    /// thread.
    ///
    /// # Errors
    /// The mail comes back if there was no room all the time, or the loop takes no more.
    pub(crate) fn submit_timeout(&self, mail: LoopMail, timeout: Duration) -> Result<(), Refused<LoopMail>> {
        self.enter_queue(mail, 0, |mailbox, mail| {
            mailbox.put_timeout(mail, timeout, || self.wake_if_asleep(0))
        })
    }

    /// As [`LoopShared::submit`], of mail that nobody wants back: it is made when it is clear that it is accepted.
    ///
    /// # Errors
    /// If the queue is full or the loop takes no more.
    #[inline]
    pub(crate) fn submit_with(&self, when: u64, make: impl FnOnce() -> LoopMail) -> Result {
        self.must_live()?;
        let put = self.mailbox.put_with(make);
        self.wake_for_mail(when);
        put.map_err(|why| self.mailbox.reason(why))
    }

    fn enter_queue(
        &self,
        mail: LoopMail,
        when: u64,
        put: impl FnOnce(&Mailbox<LoopMail>, LoopMail) -> Result<(), Refused<LoopMail>>,
    ) -> Result<(), Refused<LoopMail>> {
        if let Err(reason) = self.must_live() {
            return Err(Refused { value: mail, reason });
        }
        let put = put(&self.mailbox, mail);
        self.wake_for_mail(when);
        put
    }

    /// Starts the loop's thread if this is the first mail; refuses it if the loop takes no more.
    #[inline]
    fn must_live(&self) -> Result {
        match self.state() {
            LifeState::Started | LifeState::ShuttingDown => Ok(()),
            LifeState::NotStarted => self.start_for_mail(),
            LifeState::ShutDown | LifeState::Terminated => Err(Error::ShutDown),
        }
    }

    #[cold]
    fn start_for_mail(&self) -> Result {
        self.start()?;
        // It may have been shut down instead, before it ever started.
        if self.state() >= LifeState::ShutDown { Err(Error::ShutDown) } else { Ok(()) }
    }

    /// Sees to it that mail wanted at `when`, which was put in or refused, finds the loop awake.
    #[inline]
    fn wake_for_mail(&self, when: u64) {
        let now = when > 0 && self.mailbox.is_crowded();
        self.wake_if_asleep(if now { 0 } else { when });
    }

    /// Puts mail into the queue whatever its length, and wakes nobody unless the queue gets crowded.
    pub(crate) fn submit_quietly(&self, mail: LoopMail) {
        // A loop that has ended has nothing left to tidy up.
        let _ = self.mailbox.put_always(mail);
        if self.mailbox.is_crowded() {
            self.wake_if_asleep(0);
        }
    }

    #[inline]
    pub(crate) fn wake_if_asleep(&self, when: u64) {
        if !self.in_event_loop()
            && let Some(asleep) = self.wake_up.must_wake(when)
        {
            self.wake(asleep);
        }
    }

    #[cold]
    fn wake(&self, asleep: Asleep) {
        self.metrics.wakes_written.add_shared(1);
        let Err(e) = self.waker.wake() else { return };
        // The next submitter tries again. Until then the queue waits for the loop's deadline.
        self.wake_up.restore(asleep);
        self.metrics.wakes_failed.add_shared(1);
        let (at, name) = (LogAt { log: &self.log, now: self.time.now() }, &self.name);
        caught(|| log_throttled!(at, WAKES_FAILED, Level::Error, "{name}: cannot wake the loop: {e}"));
    }

    /// Makes later wakes go to another poll.
    pub(crate) fn swap_waker(&self, waker: Arc<Waker>) {
        self.waker.swap(waker);
    }

    /// Parks the loop's thread until the sleep that it has published is ended, for at most `limit`.
    #[cold]
    pub(super) fn park(&self, limit: Option<Duration>) {
        self.waker.park(limit, || self.wake_up.is_asleep());
        self.wake_up.awake();
    }

    #[inline]
    pub(crate) fn is_in_event_loop(&self) -> bool {
        loop_id::current() == Some(self.id)
    }
}

impl MailSender for LoopShared {
    fn deliver(&self, to: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        let always = mail.is_always_taken();
        let mail = LoopMail::Channel(to, mail);
        let sent = if always { self.submit_always(mail) } else { self.submit(mail, 0) };
        sent.map_err(|refused| match refused.value {
            LoopMail::Channel(_, mail) => (mail, refused.reason),
            _ => unreachable!("the same mail comes back"),
        })
    }

    fn broadcast(&self, delivery: Box<AnyDelivery>) -> Result<(), (Box<AnyDelivery>, Error)> {
        self.submit(LoopMail::Broadcast(Delivery::from_any(delivery)), 0).map_err(|refused| {
            match refused.value {
                LoopMail::Broadcast(delivery) => (delivery as Box<AnyDelivery>, refused.reason),
                _ => unreachable!("the same mail comes back"),
            }
        })
    }

    fn now(&self) -> u64 {
        self.time.now()
    }

    fn in_event_loop(&self) -> bool {
        self.is_in_event_loop()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mail_takes_six_words() {
        // A closure with up to three words of captures, where it came from, and which kind of mail it is.
        assert_eq!(size_of::<LoopMail>(), 6 * size_of::<usize>());
    }
}
