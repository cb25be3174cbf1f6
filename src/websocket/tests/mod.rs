//! Tests of the codec and the stage.

mod control;
mod frames;
mod limits;
mod pings;
mod splits;
mod support;
mod text;
