//! The life of a loop, from the start of its thread to its termination.
//!
//! Invariants: the state only moves forward. Only the first shutdown request takes effect. The
//! termination completes once, however the loop ends.

use super::LoopShared;
use crate::{
    error::{Error, Result},
    event_loop::{
        AcceptedShare, ShutdownReport, ShutdownRequest,
        mail::LoopMail,
        shutdown::{RemindOfShutdown, ShutdownHooks},
        task::Task,
    },
    machine::Mutex,
    sync::{Completion, Locked, Waiters, completion},
};
use std::sync::{OnceLock, atomic::Ordering};

/// The state of a loop. It only moves forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum LifeState {
    NotStarted,
    Started,
    ShuttingDown,
    ShutDown,
    Terminated,
}

/// The beginning and the end of the thread.
#[derive(Default)]
pub(super) struct LoopEnd {
    /// Starts the loop, until it was started.
    unstarted: Mutex<Option<StartLoop>>,
    request: Mutex<Option<Requested>>,
    hooks: ShutdownHooks,
    /// The report of the shutdown, once the loop has ended.
    report: OnceLock<ShutdownReport>,
    terminated: Locked<Termination>,
}

/// A shutdown that was requested.
pub(crate) struct Requested {
    pub(crate) request: ShutdownRequest,
    /// The time of the request, on the loop's clock. All durations count from it.
    pub(crate) at: u64,
    /// `None` once the loop has taken it.
    pub(crate) share: Option<AcceptedShare>,
    /// Shares of later requests, for example of the group. Their other loops wait for the accepted
    /// channels of this one too.
    pub(crate) later: Vec<AcceptedShare>,
}

/// Starts the thread of a loop. The caller has a handle to the loop, so this need not keep the loop
/// alive.
pub(crate) type StartLoop = Box<dyn FnOnce() -> std::io::Result<()> + Send>;

enum Termination {
    Awaited(Waiters),
    Done(Option<String>),
}

impl Default for Termination {
    fn default() -> Self {
        Termination::Awaited(Waiters::default())
    }
}

impl LoopShared {
    /// Sets how the first submission starts the loop.
    pub(crate) fn start_by(&self, start: StartLoop) {
        *self.end.unstarted.lock() = Some(start);
    }

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

    /// Moves forward to `state`. Does nothing if the loop has reached it already.
    pub(crate) fn advance(&self, state: LifeState) {
        self.state.fetch_max(state as u8, Ordering::SeqCst);
    }

    pub(super) fn start(&self) -> Result {
        let swap = self.state.compare_exchange(
            LifeState::NotStarted as u8,
            LifeState::Started as u8,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if swap.is_ok()
            && let Some(start) = self.end.unstarted.lock().take()
            && let Err(e) = start()
        {
            let error = Error::io("starting the event loop's thread", e);
            self.advance(LifeState::Terminated);
            self.set_terminated(Some(error.to_string()));
            return Err(error);
        }
        Ok(())
    }

    /// Requests a graceful shutdown. Only the first request takes effect; a later one only awaits
    /// the loop's accepted channels.
    pub(crate) fn shut_down(&self, request: ShutdownRequest, share: AcceptedShare) {
        let at = self.time.now();
        {
            let mut asked = self.end.request.lock();
            if let Some(requested) = &mut *asked {
                requested.later.push(share);
                drop(asked);
                self.remind_of_shutdown();
                return;
            }
            *asked = Some(Requested { request, at, share: Some(share), later: Vec::new() });
        }
        let unstarted = self.state.compare_exchange(
            LifeState::NotStarted as u8,
            LifeState::Terminated as u8,
            Ordering::SeqCst,
            Ordering::SeqCst,
        );
        if unstarted.is_ok() {
            drop(self.end.unstarted.lock().take());
            self.set_terminated(None);
            return;
        }
        self.advance(LifeState::ShuttingDown);
        self.remind_of_shutdown();
    }

    /// Drops the loop's shares of the drain of accepted channels, except for one that the loop has
    /// taken.
    fn drop_shares(&self) {
        let share = self.end.request.lock().as_mut().and_then(|requested| requested.share.take());
        // This may wake the other loops.
        drop(share);
        self.drop_later_shares();
    }

    /// Drops the shares of later requests, because no accepted channel is left.
    pub(crate) fn drop_later_shares(&self) {
        let later = self.end.request.lock().as_mut().map(|requested| std::mem::take(&mut requested.later));
        drop(later);
    }

    pub(crate) fn is_shutdown_requested(&self) -> bool {
        self.end.request.lock().is_some()
    }

    /// Returns the requested shutdown, its time and the loop's share, once.
    pub(crate) fn take_shutdown_request(&self) -> Option<(ShutdownRequest, u64, AcceptedShare)> {
        let mut asked = self.end.request.lock();
        let Requested { request, at, share, .. } = asked.as_mut()?;
        Some((*request, *at, share.take()?))
    }

    pub(crate) fn set_report(&self, report: ShutdownReport) {
        // There is one shutdown, so this is the first report.
        let _ = self.end.report.set(report);
    }

    /// Returns the report of the shutdown. It is empty if the loop was never started.
    pub(crate) fn report(&self) -> ShutdownReport {
        self.end.report.get().cloned().unwrap_or_default()
    }

    /// Adds a hook that runs when the loop has ended. Starts the loop's thread if necessary,
    /// because the hook runs on it.
    ///
    /// # Errors
    /// [`Error::ShutDown`] if the loop has ended, [`Error::Full`] if it has too many hooks, or an
    /// error if it cannot be started.
    pub(crate) fn add_hook(&self, hook: Task) -> Result {
        if self.state() == LifeState::NotStarted {
            self.start()?;
        }
        // After the hooks have run, `hooks` refuses more. A thread that was never started has run
        // none.
        if self.state() == LifeState::Terminated {
            return Err(Error::ShutDown);
        }
        self.end.hooks.add(hook)
    }

    /// Runs the hooks, as the last code of the program on the loop's thread.
    pub(crate) fn run_hooks(&self) {
        self.end.hooks.run(&self.name, &self.activity);
    }

    /// Completes when the loop has ended.
    pub(crate) fn terminated(&self) -> Completion {
        let waiting = self.end.terminated.change(|termination| match termination {
            Termination::Done(None) => (Err(Ok(())), None),
            Termination::Done(Some(cause)) => (Err(Err(Error::panicked(cause.as_str()))), None),
            Termination::Awaited(waiting) => {
                let (completer, completion) = completion(Some(self.id));
                (Ok(completion), Some(waiting.push(completer)))
            }
        });
        waiting.unwrap_or_else(Completion::ready)
    }

    /// Completes the termination. `cause` is the message of the panic that ended the loop, if any.
    pub(crate) fn set_terminated(&self, cause: Option<String>) {
        // Submitters no longer wait for space in the queue, however the loop has ended.
        self.mailbox.close();
        self.drop_shares();
        let done = Termination::Done(cause.clone());
        let before = self.end.terminated.change(|now| (std::mem::replace(now, done), ()));
        if let Termination::Awaited(mut waiting) = before {
            for completer in waiting.take() {
                completer.complete(match &cause {
                    None => Ok(()),
                    Some(cause) => Err(Error::panicked(cause.as_str())),
                });
            }
        }
    }
}

impl RemindOfShutdown for LoopShared {
    fn remind_of_shutdown(&self) {
        if self.mailbox.put_always(LoopMail::Shutdown).is_ok() {
            self.wake_if_asleep(0);
        } else {
            // The loop has ended, and does not take its share.
            self.drop_shares();
        }
    }
}
