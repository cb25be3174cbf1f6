//! `DurableTimers`: the handle of a program.

use super::{
    DurableMetrics, DurableTimersBuilder, Metrics, StartTimer, TimerId, When,
    cron::Cron,
    driver::Driver,
    engine::{Asked, Command, Message},
    permit::Permit,
    schedule::Schedule,
    store::{NewTimer, SqliteStore, TimerFilter, TimerInfo, TimerStore, TopicCounts},
    unix_millis::{LATEST, duration_millis, present_millis},
    writer::Request,
};
use crate::{
    Completion, Error, Result,
    sync::{Completer, Permits, completion},
};
use serde::Serialize;
use std::{fmt, path::Path, sync::Arc, time::Duration};

/// Timers that survive the program.
///
/// A timer is stored before its start completes, fires on an event loop with a precision of
/// milliseconds, and is removed when its handler has answered. After a crash, all timers that were
/// not removed are still there; the [`Late`](super::Late) policy of their topic says what happens to
/// those whose time has passed. The [module](super) describes the guarantees.
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

/// What a handle consists of.
pub(super) struct Parts {
    pub(super) driver: Arc<Driver>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) topics: Vec<String>,
    pub(super) unknown: Vec<String>,
    pub(super) permits: Arc<Permits>,
    pub(super) max_payload: usize,
}

impl DurableTimers {
    /// Opens or creates an SQLite file with timers. The file is locked until the timers are closed.
    ///
    /// # Errors
    ///
    /// Those of [`SqliteStore::open`], as [`Error::Other`].
    pub fn open(path: impl AsRef<Path>) -> Result<DurableTimersBuilder> {
        Ok(Self::on(SqliteStore::open(path)?))
    }

    /// Uses a store.
    pub fn on(store: impl TimerStore + 'static) -> DurableTimersBuilder {
        DurableTimersBuilder::new(Box::new(store))
    }

    pub(super) fn new(parts: Parts) -> Self {
        DurableTimers { owner: Arc::new(Owner(parts)) }
    }

    /// Describes a timer that is due once: at a `SystemTime`, or after a `Duration`. Call
    /// [`start`](StartTimer::start) to store it.
    ///
    /// Times are rounded up to milliseconds, and limited to the year 9999. A time that has passed
    /// means at once.
    pub fn at<T: Serialize + ?Sized>(
        &self,
        topic: &str,
        when: impl Into<When>,
        payload: &T,
    ) -> StartTimer<'_> {
        let due = when.into().due(self.owner.0.driver.wall_time());
        StartTimer::new(self, self.timer(topic, due, payload))
    }

    /// Describes a timer that is due every `period`, first after one period. At least 1 ms.
    pub fn every<T: Serialize + ?Sized>(&self, topic: &str, period: Duration, payload: &T) -> StartTimer<'_> {
        let due = When::from(period).due(self.owner.0.driver.wall_time());
        let millis = duration_millis(period);
        let timer = if (1..LATEST).contains(&millis) {
            self.timer(topic, due, payload).map(|timer| periodic(timer, &Schedule::Every(millis)))
        } else {
            Err(Error::setting("period", format!("{period:?}"), "1 ms or more"))
        };
        StartTimer::new(self, timer)
    }

    /// Describes a timer that is due at the times of a cron expression in a time zone. [`Cron`]
    /// describes the syntax and the rules for daylight saving time.
    ///
    /// ```no_run
    /// # fn f(timers: netwheel::durable::DurableTimers) -> netwheel::Result {
    /// timers.cron("digest", "0 9 * * MON-FRI", "Asia/Shanghai", &())?.start().wait()?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// [`Error::Other`] with a [`CronError`](super::CronError).
    pub fn cron<T: Serialize + ?Sized>(
        &self,
        topic: &str,
        expression: &str,
        zone: &str,
        payload: &T,
    ) -> Result<StartTimer<'_>> {
        let cron = Cron::new(expression, zone).map_err(Error::other)?;
        let now = present_millis(self.owner.0.driver.wall_time());
        let never = || Error::setting("expression", expression, "one with a time before the year 10000");
        let due = cron.next_after(now).ok_or_else(never)?;
        let timer = self.timer(topic, due, payload);
        Ok(StartTimer::new(self, timer.map(|timer| periodic(timer, &Schedule::Cron(cron)))))
    }

    /// Removes a timer. The completion has `true` if it was removed: then it does not fire again.
    /// `false` if there is no such timer, because it has ended or was never stored.
    ///
    /// If the timer's handler runs at the moment, the completion waits for its answer. A periodic
    /// timer, and one that will be retried, is then removed. Dead letters are removed, too.
    pub fn cancel(&self, id: TimerId) -> Completion<bool> {
        self.ask(id, Command::Cancel)
    }

    /// Moves a timer or a dead letter to another time, as if it had been started for that time.
    /// `false` if there is no such timer. A periodic timer goes on from the new time.
    pub fn move_to(&self, id: TimerId, when: impl Into<When>) -> Completion<bool> {
        let due = when.into().due(self.owner.0.driver.wall_time());
        self.ask(id, Command::MoveTo(due))
    }

    /// Runs a timer or a dead letter at once. `false` if there is no such timer.
    pub fn run_now(&self, id: TimerId) -> Completion<bool> {
        self.ask(id, Command::RunNow)
    }

    /// Returns timers of the store.
    ///
    /// The store's thread reads them, and other operations wait meanwhile. A filter that few timers
    /// match may look at all of them.
    pub fn list(&self, filter: TimerFilter) -> Completion<Vec<TimerInfo>> {
        self.query(move |store| store.list(&filter).map_err(Error::from))
    }

    /// Returns the numbers of timers of each topic of the store.
    pub fn counts(&self) -> Completion<Vec<TopicCounts>> {
        self.query(|store| store.counts().map_err(Error::from))
    }

    /// Returns the topics of the store that the program does not have. Their timers do not fire.
    pub fn unknown_topics(&self) -> &[String] {
        &self.owner.0.unknown
    }

    /// Returns the current numbers. Callable from any thread, without a lock.
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
    /// Use [`wait_timeout`](Completion::wait_timeout) to limit the wait for handlers. The completion
    /// fails with the error of a store that has stopped.
    pub fn close(&self) -> Completion {
        let (completer, done) = completion(None);
        self.owner.0.driver.tell(Message::Close(completer));
        done
    }

    fn timer<T: Serialize + ?Sized>(&self, topic: &str, due: i64, payload: &T) -> Result<NewTimer> {
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

    pub(super) fn permit(&self) -> Result<Permit> {
        Permit::take(&self.owner.0.permits)
    }

    pub(super) fn request(&self, request: Request) -> Result<(), Request> {
        self.owner.0.driver.request(request)
    }

    fn ask(&self, id: TimerId, command: Command) -> Completion<bool> {
        let (completer, done) = completion(None);
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
        let (completer, done): (Completer<T>, _) = completion(None);
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

/// Gives a timer its schedule, and the key that all periodic timers have.
fn periodic(mut timer: NewTimer, schedule: &Schedule) -> NewTimer {
    timer.schedule = Some(schedule.to_string());
    timer.idempotency_key = Some("periodic".to_owned());
    timer
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
