//! Channels with filters, from the connection to their pipeline.
//!
//! A connection with filters becomes a channel before its handshake. When the filters are
//! established, the channel calls back here: an accepted one (`AcceptedChannel`) is admitted under
//! the address that its filters have announced, a connected one (`ConnectedChannel`) completes its
//! `connect`. Both then make the pipeline.
//!
//! Invariant: the result of a `connect` is reported exactly once. Runs on the loop's thread.

mod accepted_channel;
mod connected_channel;
mod counts;

pub(super) use accepted_channel::AcceptedChannel;
pub(super) use connected_channel::ConnectedChannel;
