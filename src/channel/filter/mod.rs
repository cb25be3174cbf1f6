//! Byte filters: transformations between a channel's transport and its codec.
//!
//! Below a filter are the bytes of the wire, above it is plaintext. A filter does no I/O: the
//! driver passes received bytes to it, and sends the bytes that it produces. The filters belong to
//! the channel, so they survive a replaced pipeline.
//!
//! Invariants: nothing reaches the pipeline before every filter is established. Plaintext is sealed
//! when it is flushed, and at most `SEALED_AHEAD` (64 KiB) bytes of the wire wait for the
//! transport. Nothing is opened after an error. Runs on the channel's loop.

mod sealed;
mod stack;

#[cfg(test)]
pub(crate) use sealed::SEALED_AHEAD;
pub(crate) use stack::Filters;

use crate::Result;
use bytes::BytesMut;
use std::fmt;

/// Translates between the bytes below it (the wire, or another filter) and the bytes above it.
pub(crate) trait Filter: fmt::Debug {
    /// Starts the filter. A filter that sends first appends its opening to `reply`.
    fn begin(&mut self, reply: &mut BytesMut) -> Result;

    /// Returns whether bytes may pass. Until then the filter sees input only to establish itself.
    fn is_established(&self) -> bool;

    /// Consumes all of `input`, which comes from below. Appends the opened bytes to `plain`, and
    /// bytes for the peer to `reply`. The filter keeps incomplete input.
    ///
    /// # Errors
    /// If the input is invalid. The filter is not called again.
    fn open(&mut self, input: &[u8], plain: &mut BytesMut, reply: &mut BytesMut) -> Result;

    /// Returns the number of input bytes that the filter keeps because they are incomplete.
    fn kept(&self) -> usize;

    /// Returns whether the peer has ended its stream in the filter's protocol. Later input from
    /// below is ignored.
    fn has_ended(&self) -> bool;

    /// Handles the end of the stream below.
    ///
    /// # Errors
    /// If the stream is truncated.
    fn end_of_input(&mut self) -> Result;

    /// Returns the largest number of bytes that [`seal`](Filter::seal) makes of `plain` bytes.
    fn sealed_len(&self, plain: usize) -> usize;

    /// Seals all of `plain` and appends the result to `sealed`.
    ///
    /// # Errors
    /// If the filter cannot seal any more.
    fn seal(&mut self, plain: &[u8], sealed: &mut BytesMut) -> Result;

    /// Ends the output in the filter's protocol: appends the bytes that mark the end of the stream.
    fn end_output(&mut self, sealed: &mut BytesMut) -> Result;
}
