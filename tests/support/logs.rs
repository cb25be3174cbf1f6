//! The logger of a test program: it collects what is logged, and panics at the word [`TRAP`].
//!
//! A process has one logger for all its tests. So each test looks for lines of its own, or logs to
//! a target of its own.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Panics in the logger at each record that contains this text.
pub(crate) const TRAP: &str = "a trap";

/// The target for which the logger is disabled at every level.
pub(crate) const OFF: &str = "off";

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// A record that was logged.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) target: String,
    pub(crate) level: log::Level,
    pub(crate) text: String,
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.level() <= log::Level::Debug && metadata.target() != OFF
    }

    /// Does not ask `enabled` again: a record of a disabled level is a fault that a test can see.
    fn log(&self, record: &log::Record<'_>) {
        let (target, text) = (record.target().to_owned(), record.args().to_string());
        assert!(!text.contains(TRAP), "the log panics");
        lock().push(Record { target, level: record.level(), text });
    }

    fn flush(&self) {}
}

fn lock() -> MutexGuard<'static, Vec<Record>> {
    RECORDS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Installs the logger, once. The level `Trace` makes the crate ask the logger itself.
pub(crate) fn collect() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        log::set_logger(&Logger).expect("no other logger");
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// Returns the records so far of `target`.
pub(crate) fn records_of(target: &str) -> Vec<Record> {
    lock().iter().filter(|record| record.target == target).cloned().collect()
}

/// Returns all lines so far that contain `part`, with their level in front. Lines of the level
/// `Debug` are not among them.
pub(crate) fn lines_with(part: &str) -> Vec<String> {
    let records = lock();
    let found =
        records.iter().filter(|record| record.level <= log::Level::Info && record.text.contains(part));
    found.map(|record| format!("{} {}", record.level, record.text)).collect()
}

/// Keeps panics that a test makes on purpose out of the output.
pub(crate) fn quiet_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let loud = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if !info.to_string().contains("on purpose") {
                loud(info);
            }
        }));
    });
}
