//! Topics that send their runs to the test, and stores in temporary directories.

#[cfg(feature = "rusqlite-040")]
pub(crate) use file::{File, started};
use netwheel::durable::{Due, Late, Retry, Topic};
use std::sync::mpsc::{Receiver, Sender, channel};

/// What a handler received: the payload.
pub(crate) type Runs = Receiver<String>;

/// A topic whose handler sends the payload and is done.
pub(crate) fn sending(name: &str) -> (Topic, Runs) {
    let (sender, runs) = channel();
    (done_after(name, sender), runs)
}

fn done_after(name: &str, sender: Sender<String>) -> Topic {
    Topic::new(name, Late::RunOnce, Retry::never(), move |due: Due<String>| {
        sender.send(due.payload().clone()).unwrap();
        due.done();
    })
}

#[cfg(feature = "rusqlite-040")]
mod file {
    use super::{Runs, sending};
    use crate::support::loops::one_loop;
    use netwheel::{
        EventLoopGroup,
        durable::{DurableTimers, DurableTimersBuilder, SqliteStore},
    };
    use std::path::PathBuf;
    use tempfile::TempDir;

    /// A file for a store, which is removed at the end.
    pub(crate) struct File {
        directory: TempDir,
    }

    impl File {
        pub(crate) fn new() -> Self {
            File { directory: tempfile::tempdir().unwrap() }
        }

        pub(crate) fn path(&self) -> PathBuf {
            self.directory.path().join("timers.db")
        }

        pub(crate) fn open(&self) -> DurableTimersBuilder {
            DurableTimers::builder(SqliteStore::open(self.path()).unwrap())
        }
    }

    /// Timers of the topic "topic" on an event loop of their own.
    pub(crate) fn started(file: &File) -> (EventLoopGroup, DurableTimers, Runs) {
        let group = one_loop();
        let (topic, runs) = sending("topic");
        let timers = file.open().topic(topic).start(&group).unwrap();
        (group, timers, runs)
    }
}
