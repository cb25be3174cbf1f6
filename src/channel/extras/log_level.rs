//! The level of a log record.

/// The level of a log record.
///
/// It has the levels of the crate `log`, which is not a part of this crate's interface. Version 1
/// of `log` cannot get another level, so a `match` needs no wildcard.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LogLevel {
    /// Errors that need attention.
    Error,
    /// Unexpected conditions.
    Warn,
    /// Regular events.
    Info,
    /// Details for finding faults.
    Debug,
    /// All details.
    Trace,
}

impl LogLevel {
    pub(super) fn of_log(self) -> log::Level {
        match self {
            LogLevel::Error => log::Level::Error,
            LogLevel::Warn => log::Level::Warn,
            LogLevel::Info => log::Level::Info,
            LogLevel::Debug => log::Level::Debug,
            LogLevel::Trace => log::Level::Trace,
        }
    }
}
