//! The logger of a test binary. It collects all records and panics if one contains [`TRAP`].
//!
//! All tests of a process share one logger. A test therefore looks for text that only it logs, or
//! logs to its own target.

use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// The text that makes the logger panic.
pub(crate) const TRAP: &str = "a trap";

/// The target for which the logger is disabled at every level.
pub(crate) const OFF: &str = "off";

static RECORDS: Mutex<Vec<Record>> = Mutex::new(Vec::new());

/// A collected log record.
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

    /// Does not check `enabled` again, so that a test can detect a record of a disabled level.
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

/// Installs the logger on the first call. The maximum level is `Trace`, so that the logger itself
/// decides which records are enabled.
pub(crate) fn collect() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        log::set_logger(&Logger).expect("no other logger is installed");
        log::set_max_level(log::LevelFilter::Trace);
    });
}

/// Returns the records of all tests of this process so far.
pub(crate) fn records() -> Vec<Record> {
    lock().clone()
}

/// Returns the records of `target`.
pub(crate) fn records_of(target: &str) -> Vec<Record> {
    lock().iter().filter(|record| record.target == target).cloned().collect()
}

/// Returns the lines so far that contain `part`, prefixed with their level. Skips records below
/// `Info`.
pub(crate) fn lines_with(part: &str) -> Vec<String> {
    let records = lock();
    let found =
        records.iter().filter(|record| record.level <= log::Level::Info && record.text.contains(part));
    found.map(|record| format!("{} {}", record.level, record.text)).collect()
}

/// Suppresses the output of panics whose message contains "on purpose".
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
