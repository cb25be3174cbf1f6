//! Tests of the codec and the stage.

mod broadcasts;
mod control;
#[cfg(feature = "deflate")]
mod deflate;
mod differential;
mod frames;
mod handshake;
mod limits;
mod pings;
mod splits;
mod support;
mod text;
