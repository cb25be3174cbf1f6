//! The interest in events of a source, and the readiness that the poll has reported.

use crate::channel::driver::Ready;
use std::fmt;

/// The operations that a registered source is watched for.
///
/// Errors, and the end of both directions, are reported for any interest. The end of the peer's
/// output alone, as after its `shutdown` or `close` of a TCP socket, is reported only while input
/// is watched for. See [`EventLoop::register`](crate::EventLoop::register).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Interest(mio::Interest);

impl Interest {
    /// Watches for input.
    pub const READABLE: Interest = Interest(mio::Interest::READABLE);

    /// Watches for room to write.
    pub const WRITABLE: Interest = Interest(mio::Interest::WRITABLE);

    /// Watches for input and for room to write.
    pub const BOTH: Interest = Interest(mio::Interest::READABLE.add(mio::Interest::WRITABLE));

    /// Returns whether input is watched for.
    pub const fn is_readable(self) -> bool {
        self.0.is_readable()
    }

    /// Returns whether room to write is watched for.
    pub const fn is_writable(self) -> bool {
        self.0.is_writable()
    }

    pub(super) fn of_poll(self) -> mio::Interest {
        self.0
    }
}

impl fmt::Debug for Interest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_readable(), self.is_writable()) {
            (true, true) => "BOTH",
            (true, false) => "READABLE",
            _ => "WRITABLE",
        })
    }
}

/// The readiness of a source, as reported to its callback.
///
/// Readiness is a hint: an operation may still block, for example because another process has read
/// from the same pipe.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Readiness(Ready);

impl Readiness {
    pub(super) fn of(ready: Ready) -> Self {
        Readiness(ready)
    }

    pub(super) fn merge(&mut self, other: Readiness) {
        self.0 = self.0.with(other.0);
    }

    /// Returns whether a read should not block: there is input, the end of the stream, or an error.
    pub fn is_readable(self) -> bool {
        self.0.is_readable() || self.0.is_hang_up()
    }

    /// Returns whether a write should not block: there is room, or the write fails.
    pub fn is_writable(self) -> bool {
        self.0.is_writable() || self.0.is_write_closed() || self.0.is_error()
    }

    /// Returns whether the other end has ended its stream. Unread input may precede the end.
    pub fn is_read_closed(self) -> bool {
        self.0.is_read_closed()
    }

    /// Returns whether the other end has stopped reading.
    pub fn is_write_closed(self) -> bool {
        self.0.is_write_closed()
    }

    /// Returns whether the descriptor has an error, which the next operation returns.
    pub fn is_error(self) -> bool {
        self.0.is_error()
    }
}

impl fmt::Debug for Readiness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Readiness")
            .field("input", &self.0.is_readable())
            .field("output", &self.0.is_writable())
            .field("read_closed", &self.0.is_read_closed())
            .field("write_closed", &self.0.is_write_closed())
            .field("error", &self.0.is_error())
            .finish()
    }
}
