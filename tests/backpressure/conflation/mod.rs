//! Conflation: a message that waits is replaced by the newest one with the same key.

mod limits;
mod model;
mod slow_reader;
mod stays;
