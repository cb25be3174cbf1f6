//! The error of the crate.

use super::{
    encode_error::EncodeError, overloaded::Overloaded, peer_error::PeerError, resource::Resource,
    setting_error::SettingError,
};
use std::{fmt, io, sync::Arc, time::Duration};

/// The result of callbacks and of most operations of this crate.
pub type Result<T = (), E = Error> = std::result::Result<T, E>;

/// A boxed error of the program's own. See [`Error::other`].
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// Why an operation failed.
///
/// `Display` prints the error without its cause, which [`source`](std::error::Error::source)
/// returns. The alternate form `{error:#}` appends the causes, for logs:
///
/// ```
/// use netwheel::Error;
///
/// let error = Error::io("connecting", std::io::ErrorKind::ConnectionRefused.into());
/// assert_eq!(format!("{error}"), "connecting failed");
/// assert_eq!(format!("{error:#}"), "connecting failed: connection refused");
/// ```
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Error {
    /// The peer sent bytes that the protocol does not allow.
    Peer(PeerError),
    /// A message of the program cannot be encoded.
    Encode(EncodeError),
    /// A setting is out of its range.
    Setting(SettingError),
    /// The channel is closed or closing. It accepts no more messages.
    Closed,
    /// A datagram without an address was sent on a channel that is not connected to a peer.
    NotConnected,
    /// A limit was reached: `limit` of `resource` are in use.
    #[doc(alias = "what")]
    #[non_exhaustive]
    Full {
        /// The resource that is used up.
        resource: Resource,
        /// Its limit.
        limit: usize,
    },
    /// The event loop misses its
    /// [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target) and refuses work
    /// of this class.
    Overloaded(Overloaded),
    /// The event loop, worker pool or timer is shutting down or has ended. It accepts no more work.
    ShutDown,
    /// The operating system reported an error.
    #[doc(alias = "during")]
    #[non_exhaustive]
    Io {
        /// The operation that failed, for example "connecting".
        operation: &'static str,
        /// The error that the system reported.
        source: Arc<io::Error>,
    },
    /// An operation did not finish in time.
    #[non_exhaustive]
    TimedOut {
        /// The operation, for example "connecting".
        operation: &'static str,
        /// The timeout.
        after: Duration,
    },
    /// A blocking call was made on the thread that would have to finish it.
    WouldDeadlock,
    /// The operation was cancelled before it finished.
    Cancelled,
    /// A value was returned to an owner that it was not taken from.
    #[doc(alias = "Foreign")]
    #[non_exhaustive]
    WrongOwner {
        /// The owner that refused the value, for example "the channel pool".
        owner: &'static str,
    },
    /// The pipeline was [replaced](crate::Context::replace_pipeline) by one of other types.
    #[doc(alias = "Replaced")]
    PipelineReplaced,
    /// A newer message with the same key has replaced the message before it was sent
    /// ([`write_latest`](crate::Context::write_latest)).
    Conflated,
    /// A callback or a task panicked. The text is the panic's message.
    Panicked(Arc<str>),
    /// A handler, codec, stage or task failed with an error of its own.
    Other(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// Creates a [`Setting`](Error::Setting) error. `allowed` completes the sentence "it must be
    /// ..".
    pub fn setting(setting: &'static str, value: impl fmt::Display, allowed: &'static str) -> Self {
        Error::Setting(SettingError::new(setting, value.to_string(), allowed))
    }

    /// Creates an [`Io`](Error::Io) error. `operation` names what failed, for example "connecting".
    pub fn io(operation: &'static str, source: io::Error) -> Self {
        Error::Io { operation, source: Arc::new(source) }
    }

    /// Creates a [`TimedOut`](Error::TimedOut) error, for stages and handlers that watch a time
    /// limit of their own.
    pub fn timed_out(operation: &'static str, after: Duration) -> Self {
        Error::TimedOut { operation, after }
    }

    /// Wraps any other error, for use with `map_err` in handlers.
    pub fn other(cause: impl Into<BoxError>) -> Self {
        Error::Other(cause.into().into())
    }

    /// Creates a [`Panicked`](Error::Panicked) error from the text of a panic.
    pub(crate) fn panicked(message: impl Into<Arc<str>>) -> Self {
        Error::Panicked(message.into())
    }

    /// Returns whether the peer is at fault.
    pub fn is_peer(&self) -> bool {
        matches!(self, Error::Peer(_))
    }

    /// Returns the kind of an I/O error, or `None` for other errors.
    pub fn io_kind(&self) -> Option<io::ErrorKind> {
        match self {
            Error::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }

    /// Writes the causes, each after a colon.
    fn fmt_causes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cause = std::error::Error::source(self);
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Peer(_) => f.write_str("the peer violated the protocol"),
            Error::Encode(_) => f.write_str("the message cannot be encoded"),
            Error::Setting(e) => write!(f, "{e}"),
            Error::Closed => f.write_str("the channel is closed"),
            Error::NotConnected => f.write_str("the datagram channel is not connected and needs an address"),
            Error::Full { resource, limit } => write!(f, "the limit of {limit} {resource} is reached"),
            Error::Overloaded(e) => write!(f, "{e}"),
            Error::ShutDown => f.write_str("shut down; no more work is accepted"),
            Error::Io { operation, .. } => write!(f, "{operation} failed"),
            Error::TimedOut { operation, after } => write!(f, "{operation} timed out after {after:?}"),
            Error::WouldDeadlock => {
                f.write_str("waiting here would block the thread that has to finish the operation")
            }
            Error::Cancelled => f.write_str("the operation was cancelled"),
            Error::WrongOwner { owner } => write!(f, "the value does not belong to {owner}"),
            Error::Conflated => f.write_str("a newer message with the same key has replaced this one"),
            Error::PipelineReplaced => f.write_str("the pipeline was replaced by one of other types"),
            Error::Panicked(message) => write!(f, "panicked: {message}"),
            Error::Other(e) => write!(f, "{e}"),
        }?;
        if f.alternate() { self.fmt_causes(f) } else { Ok(()) }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::Peer(e) => Some(e),
            Error::Encode(e) => Some(e),
            Error::Io { source, .. } => Some(source),
            // `Display` prints the wrapped error itself.
            Error::Other(e) => e.source(),
            _ => None,
        }
    }
}

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

impl From<SettingError> for Error {
    fn from(e: SettingError) -> Self {
        Error::Setting(e)
    }
}

impl From<Overloaded> for Error {
    fn from(e: Overloaded) -> Self {
        Error::Overloaded(e)
    }
}

impl From<io::Error> for Error {
    fn from(source: io::Error) -> Self {
        Error::io("I/O", source)
    }
}

impl From<BoxError> for Error {
    fn from(e: BoxError) -> Self {
        Error::Other(e.into())
    }
}

impl From<&str> for Error {
    fn from(text: &str) -> Self {
        Error::other(text)
    }
}

impl From<String> for Error {
    fn from(text: String) -> Self {
        Error::other(text)
    }
}
