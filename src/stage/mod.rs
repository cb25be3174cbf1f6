//! Ready-made stages, which transform messages between the codec and the handler.
//!
//! | stage | feature | read | write |
//! |---|---|---|---|
//! | [`Heartbeat`] | | consumes answers to its pings, passes on all other messages | passes on all messages, and adds pings |
//! | `Json` | `json` | frame or WebSocket message → any `serde` type | any `serde` type → frame or text message |
//! | `Protobuf` | `prost-014` | frame → any prost message | any prost message → frame |
//!
//! A stage serves one channel and runs on that channel's loop. Stages of your own implement
//! [`Stage`](crate::pipeline::Stage).

mod heartbeat;
#[cfg(feature = "json")]
mod json;
#[cfg(feature = "prost-014")]
mod protobuf;
mod pulse;

pub use heartbeat::{Heartbeat, OnDead};
#[cfg(feature = "websocket")]
pub(crate) use pulse::{Beat, Pulse, PulseSettings, Traffic};

#[cfg(feature = "json")]
pub use json::Json;
#[cfg(all(feature = "json", feature = "websocket"))]
pub(crate) use json::JsonFrame;
#[cfg(feature = "prost-014")]
pub use protobuf::Protobuf;
