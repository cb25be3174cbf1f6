//! `DurableTimers`: the handle of a program.

use super::when::When;
use crate::durable::{
    TimerId,
    driver::{Driver, Request},
    engine::{Asked, Command, Message, Permit},
    metrics::{DurableMetrics, Metrics},
    store::{NewTimer, StoreTransaction, TimerFilter, TimerInfo, TimerStore, TopicCounts},
};
use crate::{
    Completion, Error, Result,
    sync::{Completer, Permits, completion, completion_of_all},
};
use serde::Serialize;
use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

/// Timers that survive the program.
///
/// A timer is stored before its start completes, fires on an event loop with a precision of
/// milliseconds, and is removed when its handler has answered. After a crash, all timers that were
/// not removed are still there. The [`Late`](crate::durable::Late) policy of their topic applies to
/// those whose time has passed. The [module](crate::durable) describes the guarantees.
///
/// A handle, which can be cloned, sent and shared. When the last one is dropped, the timers are
/// [closed](DurableTimers::close).
///
/// ```
/// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic}};
/// use std::time::Duration;
///
/// # let (sent, received) = std::sync::mpsc::channel();
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let remind = move |due: Due<String>| {
///     println!("Time for {}!", due.payload());
/// #   sent.send(due.payload().clone()).unwrap();
///     due.done();
/// };
/// // A server uses `DurableTimers::open("/var/lib/program/timers.db")`.
/// let timers = DurableTimers::on(SqliteStore::in_memory()?)
///     .topic(Topic::new("remind", Late::RunOnce, Retry::backoff(5), remind))
///     .start(&group)?;
/// let id = timers.at("remind", Duration::from_millis(20), &"tea").key("order-17").start().wait()?;
/// # assert_eq!(received.recv().unwrap(), "tea");
/// timers.close().wait()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct DurableTimers {
    owner: Arc<Owner>,
}

struct Owner(Parts);

/// The parts of a handle.
pub(super) struct Parts {
    pub(super) driver: Arc<Driver>,
    /// The number of the store's thread.
    pub(super) store_thread: u32,
    pub(super) metrics: Arc<Metrics>,
    pub(super) topics: Vec<String>,
    pub(super) unknown: Vec<String>,
    pub(super) permits: Arc<Permits>,
    pub(super) max_payload: usize,
}

impl DurableTimers {
    pub(super) fn new(parts: Parts) -> Self {
        DurableTimers { owner: Arc::new(Owner(parts)) }
    }

    /// Removes a timer. The completion has `true` if it was removed: then it does not fire again.
    /// `false` if there is no such timer, because it has ended or was never stored.
    ///
    /// If the timer's handler runs at the moment, the completion waits for its answer. A periodic
    /// timer, and one that will be retried, is then removed. Dead letters are removed, too.
    ///
    /// # Errors
    ///
    /// The completion fails, and the timer is unchanged: with [`Error::Full`] if too many
    /// operations wait, [`Error::ShutDown`] after [`close`](DurableTimers::close), or
    /// [`Error::Other`] with a [`StoreError`](crate::durable::StoreError). After
    /// [`StoreError::Busy`](crate::durable::StoreError::Busy) from a store on another machine, the
    /// timer may have been changed; the command can be repeated.
    pub fn cancel(&self, id: TimerId) -> Completion<bool> {
        self.ask(id, Command::Cancel)
    }

    /// Moves a timer or a dead letter to another time, as if it had been started for that time.
    /// `false` if there is no such timer. A periodic timer goes on from the new time.
    ///
    /// # Errors
    ///
    /// The completion fails like that of [`cancel`](DurableTimers::cancel).
    pub fn move_to(&self, id: TimerId, when: impl Into<When>) -> Completion<bool> {
        let due = when.into().due(self.wall_time());
        self.ask(id, Command::MoveTo(due))
    }

    /// Runs a timer or a dead letter at once. `false` if there is no such timer. The runs of
    /// [`every`](DurableTimers::every) then follow from now, and those of a cron expression as
    /// before.
    ///
    /// # Errors
    ///
    /// The completion fails like that of [`cancel`](DurableTimers::cancel).
    pub fn run_now(&self, id: TimerId) -> Completion<bool> {
        self.ask(id, Command::RunNow)
    }

    /// Returns timers of the store.
    ///
    /// The thread of the store reads them, which delays its other work. A filter that few timers
    /// match may read all of them.
    ///
    /// # Errors
    ///
    /// The completion fails like that of [`cancel`](DurableTimers::cancel).
    pub fn list(&self, filter: TimerFilter) -> Completion<Vec<TimerInfo>> {
        self.query(move |store| store.list(&filter).map_err(Error::from))
    }

    /// Returns the numbers of timers of each topic of the store. Does not read the timers. Fails if
    /// the store has stopped, so it can serve as a health check.
    ///
    /// # Errors
    ///
    /// The completion fails like that of [`cancel`](DurableTimers::cancel).
    pub fn counts(&self) -> Completion<Vec<TopicCounts>> {
        self.query(|store| store.counts().map_err(Error::from))
    }

    /// Runs work of the program on the store's connection, in a transaction of its own, and commits
    /// it if the work succeeds. For tables of the program beside the timers: those that
    /// [`Due::done_with`](crate::durable::Due::done_with) writes.
    ///
    /// The work runs on the thread of the store, and delays its other work. To wait for these
    /// timers there fails with [`Error::WouldDeadlock`].
    ///
    /// # Errors
    ///
    /// The completion fails with the error of the work, or like that of
    /// [`counts`](DurableTimers::counts).
    pub fn transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut StoreTransaction<'_>) -> Result<T> + Send + 'static,
    ) -> Completion<T> {
        let (completer, done) = self.stored();
        let permit = match self.permit() {
            Ok(permit) => permit,
            Err(error) => {
                completer.complete(Err(error));
                return done;
            }
        };
        let value = Arc::new(Mutex::new(None));
        let (result, mut work) = (value.clone(), Some(work));
        let work = move |transaction: &mut StoreTransaction<'_>| {
            let work = work.take().ok_or("the transaction is not repeated")?;
            let value = work(transaction)?;
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
            Ok(())
        };
        let reply = move |committed: Result| {
            let value = value.lock().unwrap_or_else(PoisonError::into_inner).take();
            completer.complete(committed.and_then(|()| value.ok_or(Error::ShutDown)));
            drop(permit);
        };
        let request = Request::Transaction { work: Box::new(work), reply: Box::new(reply) };
        if let Err(Request::Transaction { reply, .. }) = self.request(request) {
            reply(Err(Error::ShutDown));
        }
        done
    }

    /// Returns the topics of the store that the program does not have. Their timers do not fire.
    pub fn unknown_topics(&self) -> &[String] {
        &self.owner.0.unknown
    }

    /// Returns the current metrics. Callable from any thread, without a lock.
    pub fn metrics(&self) -> DurableMetrics {
        self.owner.0.metrics.snapshot()
    }

    #[cfg(feature = "prometheus")]
    pub(super) fn metrics_source(&self) -> Arc<Metrics> {
        self.owner.0.metrics.clone()
    }

    /// Stops firing, waits until the runs have ended, and closes the store. Timers that are in the
    /// store fire after the next start.
    ///
    /// Use [`wait_timeout`](Completion::wait_timeout) to limit the wait for handlers.
    ///
    /// # Errors
    ///
    /// The completion fails with the error of a store that has stopped.
    pub fn close(&self) -> Completion {
        let (completer, done) = self.run_and_stored();
        self.owner.0.driver.tell(Message::Close(completer));
        done
    }

    /// Checks a timer that is to be stored.
    pub(super) fn timer<T: Serialize + ?Sized>(
        &self,
        topic: &str,
        due: i64,
        payload: &T,
    ) -> Result<NewTimer> {
        let known = self.owner.0.topics.iter().position(|name| name == topic);
        let unknown = || Error::setting("topic", topic, "one of the topics that were added before the start");
        let topic = known.ok_or_else(unknown)?;
        let payload = serde_json::to_vec(payload).map_err(Error::other)?;
        if payload.len() > self.owner.0.max_payload {
            let length = format!("a payload of {} bytes", payload.len());
            return Err(Error::setting("payload", length, "at most `max_payload` bytes of JSON"));
        }
        Ok(NewTimer { topic, due, idempotency_key: None, schedule: None, payload })
    }

    /// Returns the present time of the loop's clock.
    pub(super) fn wall_time(&self) -> SystemTime {
        self.owner.0.driver.wall_time()
    }

    pub(super) fn permit(&self) -> Result<Permit> {
        Permit::take(&self.owner.0.permits)
    }

    pub(super) fn request(&self, request: Request) -> Result<(), Request> {
        self.owner.0.driver.request(request)
    }

    /// Returns both sides of an operation of the store's thread.
    pub(super) fn stored<T>(&self) -> (Completer<T>, Completion<T>) {
        completion(Some(self.owner.0.store_thread))
    }

    /// Returns both sides of an operation of the loop and of the store's thread.
    fn run_and_stored<T>(&self) -> (Completer<T>, Completion<T>) {
        completion_of_all(Box::new([self.owner.0.driver.loop_id(), self.owner.0.store_thread]))
    }

    fn ask(&self, id: TimerId, command: Command) -> Completion<bool> {
        let (completer, done) = self.run_and_stored();
        match self.permit() {
            Ok(permit) => {
                let asked = Asked { id, command, completer, permit };
                self.owner.0.driver.tell(Message::Asked(asked));
            }
            Err(error) => completer.complete(Err(error)),
        }
        done
    }

    fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn TimerStore) -> Result<T> + Send + 'static,
    ) -> Completion<T> {
        let (completer, done): (Completer<T>, _) = self.stored();
        let permit = match self.permit() {
            Ok(permit) => permit,
            Err(error) => {
                completer.complete(Err(error));
                return done;
            }
        };
        // If the store is closed, the query is dropped, and the completion fails.
        let query = Request::Query(Box::new(move |store| {
            completer.complete(store.and_then(query));
            drop(permit);
        }));
        drop(self.request(query));
        done
    }
}

impl fmt::Debug for DurableTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTimers").field("topics", &self.owner.0.topics).finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (completer, done) = completion(None);
        done.detach();
        self.0.driver.tell(Message::Close(completer));
    }
}
