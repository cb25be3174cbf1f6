//! Tests of the codec and the stage.

mod control;
#[cfg(feature = "deflate")]
mod deflate;
mod frames;
mod handshake;
mod limits;
mod pings;
mod splits;
mod support;
mod text;
