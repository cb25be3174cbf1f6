//! Bodies: whole ones, compressed ones, those that never change, and streams of events.

mod aggregate;
#[cfg(feature = "deflate")]
mod decompress;
mod event;
mod static_body;

pub use aggregate::Aggregate;
#[cfg(feature = "deflate")]
pub use decompress::Decompress;
pub use event::Event;
pub use static_body::StaticBody;
