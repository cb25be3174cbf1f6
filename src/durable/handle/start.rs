//! `StartTimer`: a timer that is about to be stored.

use super::{timers::DurableTimers, when::When};
use crate::durable::{
    cron::Cron,
    engine::EngineMessage,
    id::TimerId,
    request::{StoreReply, StoreRequest},
    schedule::Schedule,
    starting::{Starting, StartingMany},
    store::{Change, NewTimer, StartIn},
    unix_millis::{LATEST, duration_millis},
};
use crate::{
    error::{Error, Result},
    sync::Completion,
};
use serde::Serialize;
use std::{collections::VecDeque, sync::Arc, time::Duration};

/// The longest idempotency key, in bytes.
const KEY_LIMIT: usize = 256;

/// A timer that [`start`](StartTimer::start) stores.
#[derive(Debug)]
#[must_use = "the timer is stored by `start`"]
pub struct StartTimer<'a> {
    timers: &'a DurableTimers,
    timer: Result<NewTimer>,
}

impl DurableTimers {
    /// Describes a timer that is due once: at a `SystemTime`, or after a `Duration`. Call
    /// [`start`](StartTimer::start) to store it.
    ///
    /// Times are rounded up to milliseconds, and limited to the year 9999. A time that has passed
    /// is late if it is older than
    /// [`late_after`](crate::durable::DurableTimersBuilder::late_after): then the topic's
    /// [`Late`](crate::durable::Late) applies. Otherwise the timer fires at once.
    pub fn at<T: Serialize + ?Sized>(
        &self,
        topic: &str,
        when: impl Into<When>,
        payload: &T,
    ) -> StartTimer<'_> {
        let due = when.into().due(self.port.wall_time());
        StartTimer::new(self, self.timer(topic, due, payload))
    }

    /// Describes a timer that is due every `period`, first after one period. At least 1 ms.
    pub fn every<T: Serialize + ?Sized>(&self, topic: &str, period: Duration, payload: &T) -> StartTimer<'_> {
        let due = When::from(period).due(self.port.wall_time());
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
    /// [`Error::Other`] with a [`CronError`](crate::durable::CronError).
    pub fn cron<T: Serialize + ?Sized>(
        &self,
        topic: &str,
        expression: &str,
        zone: &str,
        payload: &T,
    ) -> Result<StartTimer<'_>> {
        let cron = Cron::new(expression, zone).map_err(Error::other)?;
        let now = self.port.clock.present_millis();
        let never = || Error::setting("expression", expression, "one with a time before the year 10000");
        let due = cron.next_after(now).ok_or_else(never)?;
        let timer = self.timer(topic, due, payload);
        Ok(StartTimer::new(self, timer.map(|timer| periodic(timer, &Schedule::Cron(cron)))))
    }
}

impl DurableTimers {
    /// Stores many timers with one completion, in as few transactions as their limit of 1024
    /// changes permits. Completes with a result for each timer, in their order.
    ///
    /// Each timer is stored on its own: the others are stored if one is refused, and after a crash
    /// the first ones may be stored without the last. Use [`start_in`](StartTimer::start_in) to
    /// store all or none.
    ///
    /// # Errors
    ///
    /// [`Error::Full`] if there are more timers than
    /// [`max_waiting`](crate::durable::DurableTimersBuilder::max_waiting) permits. The completion
    /// fails with it, and nothing is stored. Otherwise each result has the errors of
    /// [`start`](StartTimer::start).
    ///
    /// ```
    /// # use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic}};
    /// # use std::time::Duration;
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let topic = Topic::new("trial", Late::RunOnce, Retry::never(), |due: Due<u32>| due.done());
    /// # let timers = DurableTimers::builder(MemoryDisk::new().open()?).topic(topic).start(&group)?;
    /// let month = Duration::from_secs(30 * 24 * 3600);
    /// let ends = (0..1000u32).map(|user| timers.at("trial", month, &user).key(user.to_string()));
    /// for id in timers.start_many(ends).wait()? {
    ///     id?;
    /// }
    /// # timers.close().wait()?;
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn start_many<'a>(
        &self,
        timers: impl IntoIterator<Item = StartTimer<'a>>,
    ) -> Completion<Vec<Result<TimerId>>> {
        let (completer, done) = self.port.stored();
        let foreign = || Error::setting("timer", "one of other timers", "described by the same timers");
        let timers: Vec<_> = timers
            .into_iter()
            .map(|start| {
                let is_own = Arc::ptr_eq(&start.timers.port, &self.port);
                if is_own { start.timer } else { Err(foreign()) }
            })
            .collect();
        let permits: Result<Vec<_>> = timers.iter().map(|_| self.port.permit()).collect();
        let permits = match permits {
            Ok(permits) if !permits.is_empty() => permits,
            none => {
                completer.complete(none.map(|_| Vec::new()));
                return done;
            }
        };
        let many = StartingMany::new(timers.len(), completer);
        let mut starts = VecDeque::with_capacity(timers.len());
        for (index, (timer, permit)) in timers.into_iter().zip(permits).enumerate() {
            let starting = Starting::Many(many.clone(), index, permit);
            match timer {
                Ok(timer) => starts.push_back((timer, starting)),
                Err(error) => starting.complete(Err(error)),
            }
        }
        if !starts.is_empty() {
            self.port.send(StoreRequest::StartMany(starts));
        }
        done
    }
}

impl<'a> StartTimer<'a> {
    fn new(timers: &'a DurableTimers, timer: Result<NewTimer>) -> Self {
        StartTimer { timers, timer }
    }

    /// Sets the idempotency key, at most 256 bytes. A topic has at most one timer with a key: a
    /// second start returns the id of the first, and changes neither its time nor its payload (but
    /// see [`replace_payload`](StartTimer::replace_payload)). The
    /// key of a one-shot timer is remembered for a day after its end, also if it was cancelled. To
    /// change its time, use [`move_key`](DurableTimers::move_key).
    ///
    /// A program that does not know whether its start was stored, for example after a crash, can
    /// therefore start again. If a periodic timer is started with another schedule, it gets the new
    /// schedule and payload. A run whose time has come is not dropped; those after it follow the
    /// new schedule. Periodic timers have the key `periodic` unless another one is set, so several
    /// of them in one topic need a key each.
    pub fn key(mut self, key: impl Into<String>) -> Self {
        let key = key.into();
        if key.len() > KEY_LIMIT {
            let length = format!("a key of {} bytes", key.len());
            self.timer = Err(Error::setting("key", length, "at most 256 bytes"));
        }
        if let Ok(timer) = &mut self.timer {
            timer.idempotency_key = Some(key);
        }
        self
    }

    /// Gives this payload to the timer that is stored with the same key, if there is one. Without
    /// this, only a new schedule changes the payload.
    ///
    /// Its due time does not change. A run that has begun keeps the old payload; its retries, its
    /// dead letter and the runs after it have the new one. A dead letter gets the payload too, and
    /// is not run. An ended timer is not started again.
    ///
    /// ```
    /// # use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic}};
    /// # use std::time::Duration;
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let topic = Topic::new("poll", Late::Skip, Retry::never(), |due: Due<String>| due.done());
    /// # let timers = DurableTimers::builder(MemoryDisk::new().open()?).topic(topic).start(&group)?;
    /// let minute = Duration::from_secs(60);
    /// timers.every("poll", minute, "https://old.example").start().wait()?;
    /// timers.every("poll", minute, "https://new.example").replace_payload().start().wait()?;
    /// let timer = timers.find("poll", "periodic").wait()?.expect("stored");
    /// assert_eq!(timer.payload, "\"https://new.example\"");
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn replace_payload(mut self) -> Self {
        if let Ok(timer) = &mut self.timer {
            timer.replaces_payload = true;
        }
        self
    }

    /// Stores the timer in a transaction of the program, so that it exists if, and only if, that
    /// transaction is committed. Returns its id.
    ///
    /// `transaction` is one of:
    ///
    /// | type | transaction |
    /// |---|---|
    /// | `&rusqlite::Connection`, `&rusqlite::Transaction` (feature `rusqlite-040`) | the program's own, on the file of the store |
    /// | `&mut postgres::Client`, `&mut postgres::Transaction` (feature `postgres-019`) | the program's own, on the database of the store |
    /// | `&mut StoreTransaction` | the transaction that ends a timer, see [`Due::done_with`](crate::durable::Due::done_with), or that of [`DurableTimers::transaction`] |
    ///
    /// A connection without a transaction gets one for the start. The crates `rusqlite` and
    /// `postgres` must have the versions that the features name. [`durable`](crate::durable)
    /// exports them.
    ///
    /// The row is the same as that of [`start`](StartTimer::start), and keys have the same meaning.
    /// But a stored timer is not changed: another schedule is an error.
    ///
    /// Blocks the calling thread for the statements, so do not call it on an event loop. The timers
    /// look for the row in this process from 5 ms after the call on, at intervals that double. If
    /// the transaction is committed later than a second after the call, or in another process, they
    /// find it within about a second. The due time itself is not delayed otherwise.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] for a topic that the program does not have, a payload that is too large,
    /// a key that is too long, or [`replace_payload`](StartTimer::replace_payload).
    /// [`Error::Other`] with a [`StoreError`](crate::durable::StoreError): `OtherStore` if the
    /// connection is to another database, `OtherSchedule`, `Busy` if another connection writes for
    /// longer than the busy timeout of an SQLite connection, or an error of the database. After an
    /// error of PostgreSQL, the transaction can only be rolled back. An SQLite transaction may go
    /// on.
    ///
    /// ```
    /// use netwheel::{Error, EventLoopGroup};
    /// use netwheel::durable::{Due, DurableTimers, Late, Retry, SqliteStore, Topic, rusqlite};
    /// use rusqlite::TransactionBehavior;
    /// use std::time::Duration;
    ///
    /// # let folder = tempfile::tempdir().unwrap();
    /// # let path = folder.path().join("orders.db");
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let topic = Topic::new("unpaid", Late::RunOnce, Retry::never(), |due: Due<i64>| due.done());
    /// let timers = DurableTimers::builder(SqliteStore::open(&path)?).topic(topic).start(&group)?;
    ///
    /// let mut database = rusqlite::Connection::open(&path).map_err(Error::other)?;
    /// database.execute_batch("CREATE TABLE orders (id INTEGER PRIMARY KEY)").map_err(Error::other)?;
    /// // An immediate transaction waits for other writers at its beginning.
    /// let order = database.transaction_with_behavior(TransactionBehavior::Immediate).map_err(Error::other)?;
    /// order.execute("INSERT INTO orders VALUES (17)", []).map_err(Error::other)?;
    /// timers.at("unpaid", Duration::from_secs(1800), &17).key("order-17").start_in(&order)?;
    /// order.commit().map_err(Error::other)?;
    /// assert!(timers.find("unpaid", "order-17").wait()?.is_some());
    /// # timers.close().wait()?;
    /// # Ok::<(), Error>(())
    /// ```
    pub fn start_in(self, transaction: impl StartIn) -> Result<TimerId> {
        let port = &self.timers.port;
        let timer = self.timer?;
        if timer.replaces_payload {
            let allowed = "`start`, because `start_in` does not change a stored timer";
            return Err(Error::setting("replace_payload", "`start_in`", allowed));
        }
        let none = || Error::other("the store has no transactions for programs");
        let starter = port.starter.as_ref().ok_or_else(none)?;
        let now = port.clock.present_millis();
        let id = transaction.start(starter, &timer, now)?;
        // Later ones are loaded when their time comes nearer.
        if timer.due <= now.saturating_add(port.near) {
            port.inbox.tell(EngineMessage::StartHinted);
        }
        Ok(id)
    }

    /// Stores the timer. Completes with the timer's id once it is on disk.
    ///
    /// # Errors
    ///
    /// - [`Error::Setting`] if the program does not have the topic, the payload is too large, or
    ///   the key is too long.
    /// - [`Error::Other`] if the payload cannot be converted to JSON.
    /// - [`Error::Full`] if too many starts wait.
    /// - [`Error::ShutDown`] after [`DurableTimers::close`].
    /// - [`Error::Other`] with a [`StoreError`](crate::durable::StoreError) if the store fails.
    ///
    /// The completion fails with the error, and nothing is stored. After
    /// [`StoreError::Busy`](crate::durable::StoreError::Busy) from a store on another machine it is
    /// not known whether the timer was stored; a start with a key can be repeated.
    pub fn start(self) -> Completion<TimerId> {
        let (completer, done) = self.timers.port.stored();
        let permit = self.timers.port.permit();
        match self.timer.and_then(|timer| permit.map(|permit| (timer, permit))) {
            Ok((timer, permit)) => {
                let reply = StoreReply::Start(Starting::One(completer, permit));
                self.timers.port.send(StoreRequest::Change { change: Change::Start(timer), reply });
            }
            Err(error) => completer.complete(Err(error)),
        }
        done
    }
}

/// Gives a timer its schedule, and the key that all periodic timers have.
fn periodic(mut timer: NewTimer, schedule: &Schedule) -> NewTimer {
    timer.schedule = Some(schedule.to_string());
    timer.idempotency_key = Some("periodic".to_owned());
    timer
}
