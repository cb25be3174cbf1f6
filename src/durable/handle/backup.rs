//! Copies of a store that is in use.

use super::timers::DurableTimers;
use crate::{
    durable::{request::StoreRequest, store::TimerStore},
    error::Error,
    machine,
    sync::Completion,
};
use std::path::PathBuf;

impl DurableTimers {
    /// Writes a copy of an SQLite store to a new file, while the timers go on.
    ///
    /// The copy has everything that was stored before the call. The completion is done when the
    /// copy is on the disk under its name. Until then the name ends in `-partial`. The copy is a
    /// store that can be opened in place of the original: "Back up and restore" in
    /// docs/durable-timers.md has the steps.
    ///
    /// A separate thread reads the store. During the copy the log of the store grows, up to
    /// [`SqliteStore::max_log_bytes`](crate::durable::SqliteStore::max_log_bytes). Closing the
    /// timers does not wait for the copy.
    ///
    /// # Errors
    ///
    /// - [`StoreError::Busy`](crate::durable::StoreError::Busy) while another copy is made.
    /// - [`StoreError`](crate::durable::StoreError) if a file with this name exists, if it cannot
    ///   be written, or if the store is of another kind.
    /// - The errors of [`counts`](DurableTimers::counts).
    ///
    /// The completion fails with the error, and the timers go on.
    ///
    /// ```
    /// # use netwheel::{EventLoopGroup, durable::{DurableTimers, SqliteStore}};
    /// # let group = EventLoopGroup::builder().threads(1).build()?;
    /// # let directory = tempfile::tempdir()?;
    /// # let directory = directory.path();
    /// let timers = DurableTimers::builder(SqliteStore::open(directory.join("timers.db"))?).start(&group)?;
    /// timers.backup_to(directory.join("timers-monday.db")).wait()?;
    /// # timers.close().wait()?;
    /// # SqliteStore::open(directory.join("timers-monday.db"))?;
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn backup_to(&self, path: impl Into<PathBuf>) -> Completion {
        let (completer, permit, done) = match self.port.begin() {
            Ok(begun) => begun,
            Err(refused) => return refused,
        };
        let path = path.into();
        let begin = move |store: Result<&mut dyn TimerStore, Error>| {
            let work = match store.and_then(|store| store.backup(&path).map_err(Error::from)) {
                Ok(work) => work,
                Err(error) => return completer.complete(Err(error)),
            };
            // If there are no more threads, the work and with it the completer are dropped.
            let spawned = machine::spawn("netwheel-backup".to_owned(), move || {
                completer.complete(work().map_err(Error::from));
                drop(permit);
            });
            if let Err(error) = spawned {
                log::error!("the thread of a backup of the timer store was not started: {error}");
            }
        };
        self.port.send(StoreRequest::Query(Box::new(begin)));
        done
    }
}
