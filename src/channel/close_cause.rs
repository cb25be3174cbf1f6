//! Why a channel has ended.
//!
//! Invariants: every request to close names a cause, and the first one besides
//! [`Clean`](CloseCause::Clean) stays. So a close that follows an error does not hide it, even if a
//! handler requests the close in `error`. Pure.

use crate::error::{Error, PeerError};
use std::{fmt, io::ErrorKind};

/// Why a channel has ended. [`Channel::closed`](crate::Channel::closed) completes with it.
///
/// Only [`Clean`](CloseCause::Clean) means that the streams are complete. A program that passes on
/// an end, such as a proxy, should pass on every other cause as a
/// [`reset`](crate::Channel::reset).
///
/// ```
/// use netwheel::{channel::CloseCause, codec::Line, prelude::*, testing::EmbeddedChannel};
///
/// # struct Quiet;
/// # impl Handler for Quiet {
/// #     type Read = bytes::Bytes;
/// #     type Write = bytes::Bytes;
/// #     fn read(&mut self, _: &mut Context<'_, Self>, _: bytes::Bytes) -> Result { Ok(()) }
/// # }
/// # fn main() -> Result {
/// let mut peer = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Quiet));
/// let closed = peer.channel().closed();
/// peer.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
/// assert_eq!(closed.wait()?, CloseCause::Reset);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseCause {
    /// One side has ended its stream or closed the channel, and the kernel has accepted everything
    /// that was written before.
    Clean,
    /// The stream was cut: by `close_now`, or by a peer that left out the end mark of a filter
    /// (TLS: `close_notify`).
    Cut,
    /// The connection is broken: the peer has reset it, this side has, or the network failed.
    Reset,
    /// A time limit was reached: one of [`TimeLimits`](crate::channel::TimeLimits), the timeout of
    /// a handshake, the close timeout, the grace time of
    /// [`MaxConnectionAge`](crate::channel::MaxConnectionAge), that of a
    /// [heartbeat](crate::stage::Heartbeat) or a ping, or that of the kernel for a peer that does
    /// not acknowledge. Also if a callback has returned [`Error::TimedOut`].
    TimedOut,
    /// The event loop has ended before the channel.
    ShutDown,
    /// A callback, the codec, a filter or a limit has failed with another error.
    Failed,
}

impl CloseCause {
    /// Returns whether both streams are complete.
    pub fn is_clean(self) -> bool {
        self == CloseCause::Clean
    }

    /// Returns the cause of an end to which an error of a callback, a filter or a limit has led.
    pub(crate) fn of_error(error: &Error) -> Self {
        match error {
            Error::Peer(PeerError::Truncated) => CloseCause::Cut,
            Error::Peer(PeerError::TooSlow { .. }) | Error::TimedOut { .. } => CloseCause::TimedOut,
            _ => CloseCause::Failed,
        }
    }

    /// Returns the cause of an end to which an error of the transport has led.
    pub(crate) fn of_transport(error: &Error) -> Self {
        match error {
            // Of a filter, a logger or a destructor, while the transport was served.
            Error::Panicked(_) => CloseCause::Failed,
            _ if error.io_kind() == Some(ErrorKind::TimedOut) => CloseCause::TimedOut,
            _ => CloseCause::Reset,
        }
    }
}

impl fmt::Display for CloseCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            CloseCause::Clean => "closed",
            CloseCause::Cut => "cut",
            CloseCause::Reset => "reset",
            CloseCause::TimedOut => "timed out",
            CloseCause::ShutDown => "shut down",
            CloseCause::Failed => "failed",
        })
    }
}
