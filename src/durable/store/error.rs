//! `StoreError`: why a store failed.

use crate::error::{Error, SettingError};
use std::{fmt, sync::Arc};

/// An error of a store. Reported as the cause of an [`Error::Other`].
///
/// [`StoreError::is_transient`] determines the reaction. After a transient error, starts fail and
/// the ends of timers are tried again, with pauses of up to 2 s. After any other error, the store
/// stops: the state on disk is unknown, and trying again would hide that. In particular, a failed
/// `fsync` is never repeated, because the kernel may drop the pages that it could not write.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StoreError {
    /// Another program, or another part of this one, has opened the store.
    InUse,
    /// The file is not a store of timers.
    NotAStore,
    /// A newer version of this crate wrote the store.
    #[non_exhaustive]
    Version {
        /// The version of the schema in the store.
        found: i64,
        /// The newest version that is understood.
        known: i64,
    },
    /// The store is busy or cannot be reached at the moment.
    Busy(Arc<str>),
    /// The disk is full.
    DiskFull,
    /// The server has refused the request and stored nothing of it, for example because a
    /// permission or a table is missing, or because another transaction holds a lock for long. It
    /// may work again when an operator has repaired that. If a transaction with many changes was
    /// refused, it is split to find the change that causes it.
    Server(Arc<str>),
    /// A transaction's effect failed, and was rolled back alone.
    Effect(Arc<str>),
    /// Another node has taken over the partition of the timer.
    StaleEpoch,
    /// The connection of a [`start_in`](crate::durable::StartTimer::start_in) leads to another
    /// database.
    OtherStore,
    /// A [`start_in`](crate::durable::StartTimer::start_in) of a periodic timer that is stored with
    /// another schedule. Only [`start`](crate::durable::StartTimer::start) changes a schedule.
    OtherSchedule,
    /// A setting of the store is out of its range. [`Error::Setting`] for the program.
    Setting(SettingError),
    /// Anything else, such as a failed `fsync` or a damaged file.
    Failed(Arc<str>),
}

impl StoreError {
    /// Returns the `StoreError` in `error`, if it is one.
    ///
    /// ```
    /// # use netwheel::{Error, durable::StoreError};
    /// /// Whether another program has the timers, so that this one has to wait.
    /// fn is_in_use(error: &Error) -> bool {
    ///     matches!(StoreError::of(error), Some(StoreError::InUse))
    /// }
    /// ```
    pub fn of(error: &Error) -> Option<&StoreError> {
        match error {
            Error::Other(cause) => cause.downcast_ref(),
            _ => None,
        }
    }

    /// Returns whether trying again later can succeed without a risk. That does not mean that
    /// nothing was stored: only [`StoreError::Server`] says so, and [`StoreError::DiskFull`].
    pub fn is_transient(&self) -> bool {
        matches!(self, StoreError::Busy(_) | StoreError::DiskFull | StoreError::Server(_))
    }

    /// Creates a [`Setting`](StoreError::Setting) error, which
    /// [`attach`](super::TimerStore::attach) returns for a setting that was not checked before.
    pub fn setting(setting: &'static str, value: impl fmt::Display, allowed: &'static str) -> Self {
        StoreError::Setting(SettingError::new(setting, value.to_string(), allowed))
    }

    /// Wraps any other error.
    pub fn failed(cause: impl fmt::Display) -> Self {
        StoreError::Failed(cause.to_string().into())
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreError::InUse => f.write_str("the timer store is in use"),
            StoreError::NotAStore => f.write_str("the file is not a store of timers"),
            StoreError::Version { found, known } => {
                write!(f, "the timer store has version {found}; versions up to {known} are understood")
            }
            StoreError::Busy(cause) => write!(f, "the timer store is busy: {cause}"),
            StoreError::Server(cause) => write!(f, "the server of the timer store refuses: {cause}"),
            StoreError::DiskFull => f.write_str("the disk of the timer store is full"),
            StoreError::Effect(cause) => write!(f, "the transaction of a timer failed: {cause}"),
            StoreError::OtherStore => {
                f.write_str("the connection is not to the database in which these timers are stored")
            }
            StoreError::OtherSchedule => {
                f.write_str("the timer is stored with another schedule, which only `start` changes")
            }
            StoreError::StaleEpoch => f.write_str("another node has taken over the timer"),
            StoreError::Setting(refused) => refused.fmt(f),
            StoreError::Failed(cause) => write!(f, "the timer store failed: {cause}"),
        }
    }
}

impl std::error::Error for StoreError {}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Setting(refused) => Error::Setting(refused),
            error => Error::other(error),
        }
    }
}
