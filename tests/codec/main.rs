//! Codecs and stages of a pipeline through the public API.

#[path = "../support/mod.rs"]
mod support;

mod delimiter;
mod heartbeat;
mod length_field;
mod line;
mod model;
#[cfg(feature = "prost-014")]
mod protobuf;
mod resp;
mod varint;
