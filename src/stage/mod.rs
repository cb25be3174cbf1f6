//! Ready-made stages: messages on both sides.
//!
//! | stage | feature | inward | outward |
//! |---|---|---|---|
//! | [`Heartbeat`] | | answers to its pings stay with it, everything else passes | everything passes; pings of its own |
//! | `Json` | `json` | frame → any `serde` type | any `serde` type → frame |
//!
//! A stage serves one channel and runs on that channel's loop. It owns no bytes: it gets whole frames from
//! the codec before it and writes whole frames to it.

mod heartbeat;
#[cfg(feature = "json")]
mod json;

pub use heartbeat::{Heartbeat, OnDead};

#[cfg(feature = "json")]
pub use json::Json;
