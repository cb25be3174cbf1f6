//! The commands of the handles of a datagram channel.

use super::task::RemoteDatagramTask;
use crate::{
    channel::Confirmation,
    event_loop::{SourceCommand, SourceInbox},
};
use bytes::Bytes;
use std::net::SocketAddr;

/// A command to a datagram channel. Dropped if the channel is closed.
pub(crate) enum DatagramCommand {
    Send { datagram: Bytes, to: Option<SocketAddr>, done: Option<Confirmation> },
    Run(RemoteDatagramTask),
    Close,
}

impl SourceCommand for DatagramCommand {}

/// The inbox of a datagram channel.
pub(crate) type DatagramInbox = SourceInbox<DatagramCommand>;
