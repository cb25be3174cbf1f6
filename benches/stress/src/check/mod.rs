//! The checks of a round: when everything is at rest, and after the end of all loops.

mod ends;
mod rest;

pub(crate) use ends::{after_the_end, honest_ends};
pub(crate) use rest::{at_rest, come_to_rest};
