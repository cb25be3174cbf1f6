//! Opens the stores at the start of the server, and starts the timers.

use super::{Later, REMIND, Reminders, mailbox::Mailbox};
use crate::hub::{Hub, unix_ms};
use netwheel::{
    Error, EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, TimerStore, Topic},
    time::{Clock, default_clock},
};
use std::{
    path::Path,
    sync::{Arc, Mutex, OnceLock, atomic::AtomicU64},
    time::Duration,
};

impl Later {
    /// Opens the store of reminders, reads the kept messages, and starts firing. Without a file,
    /// reminders are kept in memory only.
    pub(crate) fn start(
        file: Option<&Path>,
        expiry: Duration,
        hub: &Arc<Hub>,
        group: &EventLoopGroup,
    ) -> Result<Arc<Self>> {
        let store = match file {
            Some(file) => SqliteStore::open(file)
                .map_err(|error| Error::other(format!("the timers {}: {error}", file.display())))?,
            None => SqliteStore::in_memory()?,
        };
        Self::start_on(store, expiry, default_clock(), hub, group)
    }

    /// Starts firing the timers of a store. `clock` has the time of day by which messages expire.
    pub(crate) fn start_on(
        mut store: impl TimerStore + 'static,
        expiry: Duration,
        clock: Arc<dyn Clock>,
        hub: &Arc<Hub>,
        group: &EventLoopGroup,
    ) -> Result<Arc<Self>> {
        let now = unix_ms(&*clock);
        let later = Arc::new(Later {
            hub: Arc::downgrade(hub),
            clock,
            timers: OnceLock::new(),
            mail: OnceLock::new(),
            expiry,
            server: hub.tokens.server(),
            // Numbers go on increasing after a restart, unless the clock was set back. They are
            // above those of stored reminders.
            last: AtomicU64::new(now.saturating_mul(1000)),
            reminders: Reminders::new(),
            mailbox: Mailbox::new(),
            lease: Mutex::default(),
        });
        // Before the reminders, because some of them may be kept messages by now.
        later.open_mail(hub.nodes.topics())?;
        // Before the first timer fires.
        let leftovers = later.load(&mut store)?;
        let timers =
            DurableTimers::builder(store).topic(later.topic(REMIND, Later::remind_now)).start(group)?;
        // This is the only call.
        let _ = later.timers.set(timers);
        // Before a message can be acknowledged, because its reminder would then be sent again.
        let cancelled: Vec<_> = leftovers.into_iter().map(|timer| later.timers().cancel(timer)).collect();
        cancelled.into_iter().try_for_each(|cancelled| cancelled.wait().map(drop))?;
        Ok(later)
    }

    fn topic<T>(self: &Arc<Self>, name: &str, handler: fn(&Arc<Self>, Due<T>)) -> Topic
    where
        T: serde::de::DeserializeOwned + Send + 'static,
    {
        let later = Arc::downgrade(self);
        // A failure of the store, or a full map of kept messages, may last for days, and reminders
        // must not be lost.
        let retry = Retry::backoff(u32::MAX).max_delay(Duration::from_secs(60));
        Topic::new(name, Late::RunOnce, retry, move |due: Due<T>| match later.upgrade() {
            Some(later) => handler(&later, due),
            None => due.fail("the server is shutting down"),
        })
    }
}
