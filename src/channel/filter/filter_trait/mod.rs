//! The trait of byte filters.

mod filter_context;

pub use filter_context::FilterContext;
pub(super) use filter_context::Surroundings;

use super::filter_state::FilterState;
use crate::error::Result;

/// Translates between the bytes below it (the wire, or another filter) and the plaintext above it.
///
/// All methods are called on the channel's event loop and must not block.
///
/// ```
/// use netwheel::{
///     codec::Line,
///     filter::{Filter, FilterContext, FilterState},
///     prelude::*,
///     testing::EmbeddedChannel,
/// };
///
/// /// Flips bits in both directions.
/// struct Flip;
///
/// impl Filter for Flip {
///     fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
///         input.iter_mut().for_each(|byte| *byte ^= 0x55);
///         ctx.deliver(input);
///         Ok(input.len())
///     }
///     fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
///         ctx.output().extend(plain.iter().map(|byte| byte ^ 0x55));
///         Ok(())
///     }
///     fn state(&self) -> FilterState {
///         FilterState::Established
///     }
/// }
/// ```
#[doc(alias = "SslHandler")]
#[allow(unused_variables, reason = "default methods ignore their arguments")]
pub trait Filter: 'static {
    /// Starts the filter, once the filter below it is established. A filter that speaks first
    /// appends its opening to [`ctx.output()`](FilterContext::output).
    ///
    /// # Errors
    /// An error closes the channel.
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        Ok(())
    }

    /// Handles bytes from below. Returns how many of them are consumed.
    ///
    /// `input` begins with the bytes that earlier calls did not consume. The filter handles all of
    /// it that it can, also if it becomes established in the middle: the rest is passed again only
    /// when more has arrived. The filter may change `input`, for example decrypt in place; bytes
    /// that it does not consume must make sense when they are passed again. It passes plaintext to
    /// [`ctx.deliver`](FilterContext::deliver) and appends bytes for the peer to
    /// [`ctx.output()`](FilterContext::output).
    ///
    /// # Errors
    /// An error closes the channel, after the output was sent. The filter is not called again.
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize>;

    /// Handles the end of the stream below, with `kept` bytes that were not consumed. The default
    /// reports a truncated stream if there are any.
    ///
    /// During a handshake, it is also called if the filter below has found its stream truncated.
    /// Then an error replaces that of the filter below, for example because the peer has refused
    /// the handshake.
    ///
    /// # Errors
    /// [`PeerError::Truncated`](crate::error::PeerError::Truncated) if the stream is cut off.
    fn end_of_input(&mut self, ctx: &mut FilterContext<'_>, kept: usize) -> Result {
        if kept == 0 { Ok(()) } else { Err(crate::error::PeerError::Truncated.into()) }
    }

    /// Seals all of `plain`, at most 16 KiB, and appends the result to
    /// [`ctx.output()`](FilterContext::output). Called only in the states
    /// [`Established`](FilterState::Established) and [`InputEnded`](FilterState::InputEnded).
    ///
    /// By default passes the bytes on unchanged, for filters that look at input only.
    ///
    /// # Errors
    /// An error closes the channel.
    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    /// Returns the largest number of bytes that [`write`](Filter::write) makes of `plain` bytes.
    /// The default is the number of `plain` bytes. Implement it for a filter that adds bytes,
    /// because the result bounds the sealed bytes.
    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }

    /// Ends the output in the filter's protocol: appends the mark of the end to
    /// [`ctx.output()`](FilterContext::output). Called once, after the last bytes, in any state.
    ///
    /// # Errors
    /// An error closes the channel.
    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        Ok(())
    }

    /// Returns the state, which is looked at after each call.
    fn state(&self) -> FilterState;
}

impl<F: Filter + ?Sized> Filter for Box<F> {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        (**self).start(ctx)
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        (**self).read(ctx, input)
    }

    fn end_of_input(&mut self, ctx: &mut FilterContext<'_>, kept: usize) -> Result {
        (**self).end_of_input(ctx, kept)
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        (**self).write(ctx, plain)
    }

    fn sealed_len(&self, plain: usize) -> usize {
        (**self).sealed_len(plain)
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        (**self).end_output(ctx)
    }

    fn state(&self) -> FilterState {
        (**self).state()
    }
}
