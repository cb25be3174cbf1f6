//! Byte filters: transformations between a channel's socket and its codec.
//!
//! A [`Filter`] sees the bytes of the wire below it, and the plaintext above it. It does no I/O: it
//! is given received bytes, and the bytes that it produces are sent. TLS
//! (`ServerBootstrap::tls`) and the PROXY protocol are filters. Filters belong to the channel, so
//! they survive a replaced pipeline. [`ServerBootstrap::filter`](crate::ServerBootstrap::filter)
//! and [`ClientBootstrap::filter`](crate::ClientBootstrap::filter) add one to each connection;
//! several filters stack, the first one next to the socket.
//!
//! # What the channel does
//! - Nothing of the program is called before every filter is established: the pipeline is made
//!   then, and `active` is called. A handshake that fails, or takes longer than
//!   `handshake_timeout`, closes the channel. A client's `connect` fails with its cause.
//! - Outbound messages stay plaintext until they are flushed. Limits, water marks, and what a slow
//!   peer's channel drops, count plaintext. At most 64 KiB of sealed bytes wait for the socket.
//!   [`write_tracked`](crate::Channel::write_tracked) completes when the kernel has taken the
//!   sealed bytes.
//! - Idle times, traffic limits and byte counters measure the wire. Bytes that are kept for filters
//!   have the limit `max_inbound`, but not less than 80 KiB.
//! - After an error nothing is opened any more. What the filter has sent (an alert) is written, and
//!   then the channel fails.

// Runs on the channel's loop. A loop lends buffers to the channels that have something to seal or
// an incomplete record; an idle channel owns none.

mod buffers;
mod filter_state;
mod filter_trait;
mod filter_waker;
mod filters;
#[cfg(all(test, feature = "tls"))]
mod harness;
mod opened;
mod sealed;
#[cfg(test)]
mod tests;

pub(crate) use buffers::FilterBuffers;
pub use filter_state::FilterState;
pub use filter_trait::{Filter, FilterContext};
pub use filter_waker::FilterWaker;
pub(crate) use filters::{Filters, Lent, MAX_KEPT, Resume};
#[cfg(all(test, feature = "tls"))]
pub(crate) use harness::FilterHarness;
pub(crate) use opened::Opened;
