//! `DurableTimers`: the handle of a program.

use crate::durable::{
    driver::Driver,
    engine::EngineMessage,
    metrics::DurableMetrics,
    port::Port,
    request::StoreRequest,
    store::{NewTimer, StoreTransaction, TimerFilter, TimerInfo, TimerStore},
    topic::Due,
};
use crate::{
    error::{Error, Result},
    machine::Mutex,
    sync::{Completion, completion},
};
use serde::Serialize;
use std::{fmt, sync::Arc};

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
/// use netwheel::{EventLoopGroup, durable::{Due, DurableTimers, Late, MemoryDisk, Retry, Topic}};
/// use std::time::Duration;
///
/// # let (sent, received) = std::sync::mpsc::channel();
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let remind = move |due: Due<String>| {
///     println!("Time for {}!", due.payload());
/// #   sent.send(due.payload().clone()).unwrap();
///     due.done();
/// };
/// // A server uses a store that survives, such as `SqliteStore::open("/var/lib/timers.db")?`.
/// let timers = DurableTimers::builder(MemoryDisk::new().open()?)
///     .topic(Topic::new("remind", Late::RunOnce, Retry::backoff(5), remind))
///     .start(&group)?;
/// let id = timers.at("remind", Duration::from_millis(20), &"tea").key("order-17").start().wait()?;
/// # assert_eq!(received.recv().unwrap(), "tea");
/// timers.close().wait()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct DurableTimers {
    pub(super) port: Arc<Port>,
    /// `None` in a handle that does not keep the timers open.
    _owner: Option<Arc<Owner>>,
}

/// Closes the timers when the last handle that keeps them open is dropped.
struct Owner {
    port: Arc<Port>,
    /// Answers commands after the engine has stopped, with the error of the store.
    _driver: Arc<Driver>,
}

impl<T> Due<T> {
    /// Returns a handle of the timers, for example to start the next one.
    ///
    /// It does not keep the timers open, so a handler may store it. After the program has closed
    /// the timers or dropped its own handles, operations fail with [`Error::ShutDown`]. In
    /// contrast, a handler that owns a clone of the program's handle keeps the timers open, and the
    /// file locked, until they are [closed](DurableTimers::close).
    pub fn timers(&self) -> DurableTimers {
        DurableTimers { port: self.port().clone(), _owner: None }
    }
}

impl DurableTimers {
    pub(super) fn new(port: Arc<Port>, driver: Arc<Driver>) -> Self {
        let owner = Owner { port: port.clone(), _driver: driver };
        DurableTimers { port, _owner: Some(Arc::new(owner)) }
    }

    /// Returns timers of the store.
    ///
    /// The thread of the store reads them, which delays its other work. A filter that few timers
    /// match may read all of them.
    ///
    /// # Errors
    ///
    /// The errors of [`cancel`](DurableTimers::cancel).
    pub fn list(&self, filter: TimerFilter) -> Completion<Vec<TimerInfo>> {
        self.query(move |store| store.list(&filter).map_err(Error::from))
    }

    /// Runs work of the program on the store's connection, in a transaction of its own, and commits
    /// it if the work succeeds. For tables of the program beside the timers, such as the tables
    /// that [`Due::done_with`](crate::durable::Due::done_with) writes.
    ///
    /// The work runs on the thread of the store, and delays its other work. To wait for these
    /// timers there fails with [`Error::WouldDeadlock`].
    ///
    /// # Errors
    ///
    /// The error of the work if it fails. Otherwise the errors of
    /// [`counts`](DurableTimers::counts).
    pub fn transaction<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut StoreTransaction<'_>) -> Result<T> + Send + 'static,
    ) -> Completion<T> {
        let (completer, permit, done) = match self.port.begin() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        let value = Arc::new(Mutex::new(None));
        let (result, mut work) = (value.clone(), Some(work));
        let work = move |transaction: &mut StoreTransaction<'_>| {
            let work = work.take().ok_or("the transaction is not repeated")?;
            let value = work(transaction)?;
            *result.lock() = Some(value);
            Ok(())
        };
        let reply = move |committed: Result| {
            let value = value.lock().take();
            completer.complete(committed.and_then(|()| value.ok_or(Error::ShutDown)));
            drop(permit);
        };
        self.port.send(StoreRequest::Transaction { work: Box::new(work), reply: Box::new(reply) });
        done
    }

    /// Returns the topics of the store that the program does not have. Their timers do not fire.
    pub fn unknown_topics(&self) -> &[String] {
        &self.port.unknown
    }

    /// Returns the current metrics. Callable from any thread, without a lock.
    pub fn metrics(&self) -> DurableMetrics {
        self.port.metrics.snapshot()
    }

    /// Returns a collector of the metrics for
    /// [`prometheus::encode`](crate::prometheus::encode).
    ///
    /// Every field of [`DurableMetrics`] is exported under a name that begins with
    /// `netwheel_durable_`, with the given name as the label `timers`. Times are in seconds.
    /// `docs/observability.md` lists all names. Encoding runs on the calling thread, without a
    /// lock. A collector does not keep the timers open.
    ///
    /// ```
    /// use netwheel::{EventLoopGroup, durable::{DurableTimers, MemoryDisk}, prometheus};
    ///
    /// let group = EventLoopGroup::builder().threads(1).build()?;
    /// let timers = DurableTimers::builder(MemoryDisk::new().open()?).start(&group)?;
    /// let text = prometheus::encode(&(&group, timers.collector("orders")))?;
    /// assert!(text.contains(r#"netwheel_durable_fired_total{timers="orders"} 0"#));
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    #[cfg(feature = "prometheus")]
    pub fn collector(&self, name: impl Into<String>) -> crate::prometheus::Collector {
        let metrics = self.port.metrics.clone();
        crate::prometheus::Collector::of("timers", name.into(), move || metrics.snapshot().rows())
    }

    /// Stops firing, waits until the runs have ended, and closes the store. Timers that are in the
    /// store fire after the next start.
    ///
    /// Use [`wait_timeout`](Completion::wait_timeout) to limit the wait for handlers.
    ///
    /// # Errors
    ///
    /// The error of the store if it has stopped.
    pub fn close(&self) -> Completion {
        let (completer, done) = self.port.run_and_stored();
        self.port.is_closing.store(true, std::sync::atomic::Ordering::Release);
        self.port.inbox.tell(EngineMessage::Close(completer));
        done
    }

    /// Checks a timer that is to be stored.
    pub(super) fn timer<T: Serialize + ?Sized>(
        &self,
        topic: &str,
        due: i64,
        payload: &T,
    ) -> Result<NewTimer> {
        let known = self.port.topics.iter().position(|name| name == topic);
        let unknown = || Error::setting("topic", topic, "one of the topics that were added before the start");
        let topic = known.ok_or_else(unknown)?;
        let payload = serde_json::to_vec(payload).map_err(Error::other)?;
        if payload.len() > self.port.max_payload {
            let length = format!("a payload of {} bytes", payload.len());
            return Err(Error::setting("payload", length, "at most `max_payload` bytes of JSON"));
        }
        Ok(NewTimer { topic, due, idempotency_key: None, schedule: None, payload, replaces_payload: false })
    }

    pub(super) fn query<T: Send + 'static>(
        &self,
        query: impl FnOnce(&mut dyn TimerStore) -> Result<T> + Send + 'static,
    ) -> Completion<T> {
        let (completer, permit, done) = match self.port.begin() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        self.port.send(StoreRequest::Query(Box::new(move |store| {
            completer.complete(store.and_then(query));
            drop(permit);
        })));
        done
    }
}

impl fmt::Debug for DurableTimers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DurableTimers").field("topics", &self.port.topics).finish_non_exhaustive()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let (completer, done) = completion(None);
        done.detach();
        self.port.is_closing.store(true, std::sync::atomic::Ordering::Release);
        self.port.inbox.tell(EngineMessage::Close(completer));
    }
}
