//! The trait of the transport that carries a channel's bytes.

use std::io::{self, IoSlice};

/// A non-blocking, connected stream of bytes.
///
/// A call that would have to wait fails with `WouldBlock`. The owner of the driver reports a
/// [`Ready`](super::Ready) event when that has changed, once (edge-triggered).
pub(crate) trait Transport {
    /// Reads into `buffer`. Zero is the end of the stream.
    ///
    /// A read that does not fill the buffer has emptied the transport, unless urgent data ended it:
    /// bytes that arrive later cause another event. If its reads end for other reasons, a transport
    /// reads again before it returns.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize>;

    /// Returns the number of bytes that a read would return, at most 1, and does not consume them.
    /// Zero is the end of the stream. A later read may not return an error that this has returned.
    fn peek(&self) -> io::Result<usize>;

    /// Writes one contiguous slice.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize>;

    /// Writes several slices.
    fn write_vectored(&mut self, slices: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Shuts down the write half.
    fn shutdown_write(&mut self) -> io::Result<()>;
}
