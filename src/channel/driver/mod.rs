//! Moves bytes between a transport and a channel core.

mod ready;

pub(crate) use ready::Ready;
