//! Buffers: bytes on their way out, bytes on their way in, and the marks between which a writer pauses.
//!
//! Pure structures: no socket, no clock, no thread.

mod outbound;
mod receive;
mod water_mark;

pub(crate) use outbound::OutboundMark;
pub use outbound::{KEEP_FROM, Outbound};
pub(crate) use receive::{ReceiveBuffers, Received, SIZE as RECEIVE_SIZE};
pub(crate) use water_mark::ENTRY_OVERHEAD;
pub use water_mark::WaterMark;
