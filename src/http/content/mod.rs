//! Whole bodies, static bodies, and streams of events.

mod aggregate;
mod event;
mod static_body;

pub use aggregate::Aggregate;
pub(super) use aggregate::{BodyCollector, TooLong};
pub use event::ServerSentEvent;
pub use static_body::StaticBody;
