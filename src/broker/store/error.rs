//! `BrokerError`: why an operation of a broker failed.

use super::position::Position;
use crate::error::Error;
use std::{fmt, sync::Arc};

/// An error of a broker. Reported as the cause of an [`Error::Other`].
///
/// [`BrokerError::of`] finds it in an error. [`may_be_stored`](BrokerError::may_be_stored) says
/// whether a message that failed may have been stored all the same. Send it again with the same
/// [`MessageId`](super::MessageId), so that it is stored once.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum BrokerError {
    /// The store cannot be reached. The operation was not made.
    Unreachable(Arc<str>),
    /// The connection ended during the operation, or the answer did not come in time. The operation
    /// may have had its effect.
    Uncertain(Arc<str>),
    /// The store has refused the operation: it is read-only, loading, or a
    /// permission is missing, for example.
    Refused(Arc<str>),
    /// The store is full. The operation was not made.
    Full(Arc<str>),
    /// The map, which has this position, is larger than an answer of the store may be. It cannot be
    /// read until entries are removed.
    TooLarge(Position, Arc<str>),
    /// The store was set up with another number of partitions.
    #[non_exhaustive]
    Partitions {
        /// The number of the store.
        found: u16,
        /// The number of this node.
        asked: u16,
    },
    /// The store has settings with which it would lose data, such as an eviction policy.
    Unsuitable(Arc<str>),
    /// A newer version of this crate has set up the store.
    #[non_exhaustive]
    Version {
        /// The version of the store.
        found: u64,
        /// The newest version that is understood.
        known: u64,
    },
    /// An operation on messages was called for a map topic, or the other way round.
    WrongKind,
    /// The lease of the node has ended.
    LeaseEnded,
    /// Another incarnation of the node has a lease: a newer process has the same name.
    LeaseTaken,
    /// The broker was started before, or another program uses the store exclusively.
    InUse,
    /// The broker is closed.
    Closed,
    /// Anything else, such as damaged data. The operation may have had its effect.
    Failed(Arc<str>),
}

impl BrokerError {
    /// Wraps any other error.
    pub fn failed(cause: impl fmt::Display) -> Self {
        BrokerError::Failed(cause.to_string().into())
    }

    /// Returns the broker's error that is the cause of `error`, if there is one.
    pub fn of(error: &Error) -> Option<&Self> {
        match error {
            Error::Other(cause) => cause.downcast_ref(),
            _ => None,
        }
    }

    /// Returns whether the operation may have had its effect.
    pub fn may_be_stored(&self) -> bool {
        matches!(self, BrokerError::Uncertain(_) | BrokerError::Failed(_))
    }

    /// Returns whether the same operation may succeed later, without a change of settings.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            BrokerError::Unreachable(_)
                | BrokerError::Uncertain(_)
                | BrokerError::Refused(_)
                | BrokerError::Full(_)
                | BrokerError::TooLarge(..)
        )
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrokerError::Unreachable(cause) => write!(f, "the broker cannot be reached: {cause}"),
            BrokerError::Uncertain(cause) => {
                write!(f, "the broker has not answered, so the operation may have been made: {cause}")
            }
            BrokerError::Refused(cause) => write!(f, "the broker refuses: {cause}"),
            BrokerError::Full(cause) => write!(f, "the broker is full: {cause}"),
            BrokerError::TooLarge(at, cause) => write!(f, "the map is too large at {at}: {cause}"),
            BrokerError::Partitions { found, asked } => {
                write!(f, "the broker has {found} partitions, and this node {asked}")
            }
            BrokerError::Unsuitable(cause) => write!(f, "the broker has unsuitable settings: {cause}"),
            BrokerError::Version { found, known } => {
                write!(f, "the broker has version {found}; versions up to {known} are understood")
            }
            BrokerError::WrongKind => f.write_str("the topic is of the other kind: messages or a map"),
            BrokerError::LeaseEnded => f.write_str("the lease of the node has ended"),
            BrokerError::LeaseTaken => f.write_str("another node with the same name has a lease"),
            BrokerError::InUse => f.write_str("the broker is in use"),
            BrokerError::Closed => f.write_str("the broker is closed"),
            BrokerError::Failed(cause) => write!(f, "the broker failed: {cause}"),
        }
    }
}

impl std::error::Error for BrokerError {}

impl From<BrokerError> for Error {
    fn from(error: BrokerError) -> Self {
        Error::other(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_is_found_in_that_of_the_crate() {
        let error = Error::from(BrokerError::Uncertain("cut".into()));
        assert!(BrokerError::of(&error).is_some_and(BrokerError::may_be_stored));
        assert_eq!(BrokerError::of(&Error::Closed), None);
    }
}
