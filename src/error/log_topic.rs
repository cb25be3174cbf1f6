//! How loud an error of a channel is in the log.

use super::error::Error;
use crate::log_throttle::{BROKEN, CHANNEL_ERRORS, LogTopic, PEER_ERRORS};
use log::Level;

impl Error {
    /// Returns the topic and the level at which it is logged. Peers break connections all the time,
    /// and some are silent or slow. Errors that the program can fix are warnings.
    pub(crate) fn log_topic(&self) -> (LogTopic, Level) {
        match self {
            Error::Io { .. } | Error::Closed => (BROKEN, Level::Debug),
            Error::Peer(_) | Error::TimedOut { .. } => (PEER_ERRORS, Level::Info),
            _ => (CHANNEL_ERRORS, Level::Warn),
        }
    }
}
