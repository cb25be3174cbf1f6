//! The messages between servers, and what receives them.

use super::{KeptEnd, Nodes};
use crate::{hub::Hub, protocol::Code};
use netwheel::{
    ChannelGroup, Error, Result, SendError,
    broker::{Position, TopicFormat},
    bytes::Bytes,
    channel::Broadcast,
};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Weak};

/// A message to another server.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum NodeMessage {
    Deliver(Deliver),
    Outcome(Outcome),
    KeptEnd(KeptEnd),
}

/// A direct message to a user of the server that receives this.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Deliver {
    pub(crate) ticket: Ticket,
    /// The server that receives the outcome.
    pub(crate) reply_to: String,
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) text: String,
    /// Time of receipt at the sender's server, in milliseconds since 1970 (UTC).
    pub(crate) ts: u64,
}

/// The outcome of a direct message, for the server of its sender.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    pub(crate) ticket: Ticket,
    /// `None` if the receiver has acknowledged the message.
    pub(crate) failure: Option<Failure>,
}

/// Why a direct message was not delivered.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Failure {
    pub(crate) code: Code,
    pub(crate) message: String,
}

/// The number of a direct message, unique among all servers of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ticket {
    /// The number of the sender's server, which differs after a restart.
    pub(crate) server: u64,
    pub(crate) number: u64,
}

/// The messages to one server, as JSON.
pub(super) struct NodeFormat {
    /// Receives the messages. Empty at the servers that send them.
    receiver: Weak<Hub>,
}

impl NodeFormat {
    pub(super) fn of_sender() -> Self {
        NodeFormat { receiver: Weak::new() }
    }

    pub(super) fn of_receiver(hub: &Arc<Hub>) -> Self {
        NodeFormat { receiver: Arc::downgrade(hub) }
    }
}

impl TopicFormat<Arc<NodeMessage>> for NodeFormat {
    fn encode(&self, message: &Arc<NodeMessage>) -> Result<Bytes> {
        serde_json::to_vec(&**message).map(Bytes::from).map_err(Error::other)
    }

    fn decode(&self, payload: Bytes, _: Option<Position>) -> Result<Arc<NodeMessage>> {
        serde_json::from_slice(&payload).map(Arc::new).map_err(Error::other)
    }

    fn deliver(
        &self,
        message: Arc<NodeMessage>,
        _: Position,
        members: &ChannelGroup<Arc<NodeMessage>>,
    ) -> Result<Broadcast, SendError<Arc<NodeMessage>>> {
        // The topic has no members. After an error, the message would be passed again.
        let sent = members.broadcast(message.clone())?;
        if let Some(hub) = self.receiver.upgrade() {
            Nodes::receive(&hub, &message);
        }
        Ok(sent)
    }
}
