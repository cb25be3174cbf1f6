//! Buffers for outbound and received bytes, and the water marks for backpressure.
//!
//! Pure data structures, without sockets, clocks or threads.

mod outbound;
mod receive;
mod water_mark;

pub(crate) use outbound::OutboundMark;
// Public only for the tests of this crate. Its stability is not promised.
#[doc(hidden)]
pub use outbound::KEEP_FROM;
pub use outbound::OutboundBuffer;
pub(crate) use receive::{ReceiveBuffers, Received, SIZE as RECEIVE_SIZE};
pub(crate) use water_mark::ENTRY_OVERHEAD;
pub use water_mark::WaterMark;
