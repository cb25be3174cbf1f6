//! Byte filters. `netwheel::filter` has the documentation for users.

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
