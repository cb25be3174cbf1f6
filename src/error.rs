//! Errors that say whose fault they are.
//!
//! One enum for the whole crate, `#[non_exhaustive]`; each variant names a culprit: the peer, a setting, the
//! program's own use of the crate, the operating system. A value that an operation refuses is handed back in
//! [`Refused`]. Nothing here is owned by a thread; errors are `Send + Sync`.

use crate::log_throttle::{PANICS, log_throttled, off_loop};
use log::Level;
use std::{
    any::Any,
    fmt, io,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

/// What callbacks and most operations of this crate return.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A cause that is not one of this crate's own.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed, and whose fault that is.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The peer sent bytes that the protocol does not allow.
    Peer(PeerError),
    /// A message of ours cannot be encoded.
    Encode(EncodeError),
    /// A setting was refused when it was built.
    Setting(SettingError),
    /// The channel is closed, or about to close: nothing more is written to it.
    Closed,
    /// A datagram without an address was to be sent, and the channel has no peer to send it to.
    NotConnected,
    /// A bound was hit: `limit` of `what` are taken already.
    Full {
        /// The thing that is bounded, with its unit.
        what: &'static str,
        /// Its limit.
        limit: usize,
    },
    /// The event loop is shutting down or has ended, and takes no more work; or a timer was stopped.
    ShutDown,
    /// The operating system refused, while doing `during`.
    Io {
        /// What was tried.
        during: &'static str,
        /// What the system answered.
        source: io::Error,
    },
    /// Something did not happen in time.
    TimedOut {
        /// What was waited for.
        what: &'static str,
        /// How long.
        after: Duration,
    },
    /// Waiting here would wait for the waiting thread itself.
    WouldDeadlock,
    /// The operation was cancelled before it was done.
    Cancelled,
    /// A thing was given back to something else than it was taken from.
    Foreign {
        /// What it was given to.
        to: &'static str,
    },
    /// The pipeline for which it was meant has been [replaced](crate::Context::replace_pipeline) by one of other types.
    Replaced,
    /// A callback or a task panicked; the text is the panic's message.
    Panicked(String),
    /// A handler, codec, stage or task failed with an error of its own.
    Other(BoxError),
}

/// How a peer broke the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// A frame or line is longer than allowed.
    TooLong {
        /// What is too long: "frame", "line".
        what: &'static str,
        /// Its length in bytes, as far as known.
        length: u64,
        /// The longest that is allowed, in bytes.
        limit: usize,
    },
    /// A frame contradicts itself (a negative length, a length shorter than its header).
    Corrupted(&'static str),
    /// A message does not parse; the text says where.
    Malformed(String),
    /// A message that has begun comes too slowly.
    TooSlow {
        /// Bytes that came in the last interval.
        bytes: usize,
        /// Bytes that have to come at least.
        least: usize,
        /// The interval.
        within: Duration,
    },
}

/// Why a message of ours cannot be encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// The message is longer than the format can say or the codec allows.
    TooLong {
        /// What is too long: "frame", "line".
        what: &'static str,
        /// Its length in bytes.
        length: u64,
        /// The longest that is allowed, in bytes.
        limit: u64,
    },
    /// The message cannot be expressed in the format; the text says why.
    Unencodable(String),
}

/// A setting outside its range.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettingError {
    /// The setting's name, as its builder method is called.
    pub setting: &'static str,
    /// The value that was given.
    pub value: String,
    /// What is allowed.
    pub allowed: &'static str,
}

impl Error {
    /// A setting that is refused.
    pub fn setting(setting: &'static str, value: impl fmt::Display, allowed: &'static str) -> Self {
        Error::Setting(SettingError { setting, value: value.to_string(), allowed })
    }

    /// A refusal by the operating system, with what was tried.
    pub fn io(during: &'static str, source: io::Error) -> Self {
        Error::Io { during, source }
    }

    /// Any other error, for use with `map_err` in handlers.
    pub fn other(cause: impl Into<BoxError>) -> Self {
        Error::Other(cause.into())
    }

    /// The same error once more, for somebody else who asks: a cause that cannot be copied is its text.
    pub(crate) fn again(&self) -> Self {
        match self {
            Error::Peer(e) => Error::Peer(e.clone()),
            Error::Encode(e) => Error::Encode(e.clone()),
            Error::Setting(e) => Error::Setting(e.clone()),
            Error::Closed => Error::Closed,
            Error::NotConnected => Error::NotConnected,
            Error::Full { what, limit } => Error::Full { what, limit: *limit },
            Error::ShutDown => Error::ShutDown,
            Error::Io { during, source } => {
                let source = match source.raw_os_error() {
                    Some(code) => io::Error::from_raw_os_error(code),
                    None => io::Error::new(source.kind(), source.to_string()),
                };
                Error::Io { during, source }
            }
            Error::TimedOut { what, after } => Error::TimedOut { what, after: *after },
            Error::WouldDeadlock => Error::WouldDeadlock,
            Error::Cancelled => Error::Cancelled,
            Error::Foreign { to } => Error::Foreign { to },
            Error::Replaced => Error::Replaced,
            Error::Panicked(message) => Error::Panicked(message.clone()),
            Error::Other(e) => Error::Other(e.to_string().into()),
        }
    }

    /// Whether the peer is to blame.
    pub fn is_peer(&self) -> bool {
        matches!(self, Error::Peer(_))
    }

    /// The kind of I/O error, if it is one.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Peer(e) => write!(f, "the peer broke the protocol: {e}"),
            Error::Encode(e) => write!(f, "cannot encode: {e}"),
            Error::Setting(e) => e.fmt(f),
            Error::Closed => f.write_str("the channel is closed"),
            Error::NotConnected => f.write_str("the channel has no peer: an address is needed"),
            Error::Full { what, limit } => write!(f, "full: at most {limit} {what}"),
            Error::ShutDown => f.write_str("it is shut down, and takes no more work"),
            Error::Io { during, source } => write!(f, "{during}: {source}"),
            Error::TimedOut { what, after } => write!(f, "{what} timed out after {after:?}"),
            Error::WouldDeadlock => f.write_str("waiting on its own thread would never end"),
            Error::Cancelled => f.write_str("cancelled"),
            Error::Foreign { to } => write!(f, "it does not belong to {to}"),
            Error::Replaced => f.write_str("the pipeline that it was meant for has been replaced"),
            Error::Panicked(message) => write!(f, "panicked: {message}"),
            Error::Other(e) => e.fmt(f),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Peer(e) => Some(e),
            Error::Encode(e) => Some(e),
            Error::Io { source, .. } => Some(source),
            Error::Other(e) => e.source(),
            _ => None,
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerError::TooLong { what, length, limit } => {
                write!(f, "a {what} of {length} bytes, at most {limit} are allowed")
            }
            PeerError::Corrupted(why) => write!(f, "corrupted frame: {why}"),
            PeerError::Malformed(why) => write!(f, "malformed message: {why}"),
            PeerError::TooSlow { bytes, least, within } => {
                write!(f, "{bytes} bytes of a message in {within:?}, at least {least} are demanded")
            }
        }
    }
}

impl std::error::Error for PeerError {}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::TooLong { what, length, limit } => {
                write!(f, "a {what} of {length} bytes, at most {limit} are possible")
            }
            EncodeError::Unencodable(why) => f.write_str(why),
        }
    }
}

impl std::error::Error for EncodeError {}

impl fmt::Display for SettingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} = {} is refused: allowed is {}", self.setting, self.value, self.allowed)
    }
}

impl std::error::Error for SettingError {}

impl From<PeerError> for Error {
    fn from(e: PeerError) -> Self {
        Error::Peer(e)
    }
}

impl From<EncodeError> for Error {
    fn from(e: EncodeError) -> Self {
        Error::Encode(e)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Error::Io { during: "I/O", source }
    }
}

impl From<BoxError> for Error {
    fn from(e: BoxError) -> Self {
        Error::Other(e)
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Error::Other(text.into())
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Error::Other(text.into())
    }
}

impl<T> From<Refused<T>> for Error {
    fn from(refused: Refused<T>) -> Self {
        refused.reason
    }
}

/// A value that was not taken, with the reason; the caller has it back.
pub struct Refused<T> {
    /// What was refused.
    pub value: T,
    /// Why.
    pub reason: Error,
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("reason", &self.reason).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.reason)
    }
}

impl<T> std::error::Error for Refused<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.reason)
    }
}

/// Drops something of the program's own; a panic in its `Drop` is logged and goes no further.
pub(crate) fn drop_guarded<T>(value: T) {
    if let Some(message) = caught(|| drop(value)) {
        // The program's log may panic, too.
        let name = std::any::type_name::<T>();
        caught(|| log_throttled!(off_loop(), PANICS, Level::Error, "dropping a {name}: {message}"));
    }
}

/// The text of what `f` panicked with, if it did.
pub(crate) fn caught(f: impl FnOnce()) -> Option<String> {
    catch_unwind(AssertUnwindSafe(f)).err().map(panic_message)
}

/// The text of a panic, as far as it has one. What was thrown is dropped here, since its `Drop` may panic in its turn.
pub(crate) fn panic_message(payload: Box<dyn Any + Send>) -> String {
    let text = match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => (*text).to_owned(),
        (_, Some(text)) => text.clone(),
        _ => "(no message)".to_owned(),
    };
    if let Err(another) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // There is no end to this; nobody minds a leak.
        std::mem::forget(another);
    }
    text
}
