//! Ready-made stages: messages on both sides.
//!
//! | stage | feature | inward | outward |
//! |---|---|---|---|
//! | `Json` | `json` | frame → any `serde` type | any `serde` type → frame |
//!
//! A stage serves one channel and runs on that channel's loop. It owns no bytes: it gets whole frames from
//! the codec before it and writes whole frames to it.

#[cfg(feature = "json")]
mod json;

#[cfg(feature = "json")]
pub use json::Json;
