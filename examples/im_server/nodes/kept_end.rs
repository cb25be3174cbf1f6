//! `KeptEnd`: the outcome of a direct message that was kept, on its way to the sender.

use super::{Letter, NodeMessage, Nodes};
use crate::{
    hub::{self, Hub, Route},
    later::{self, KeptId},
    protocol::{Code, Reply},
};
use netwheel::broker::MessageId;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// What the ids of these messages begin with, so that no other message has them.
const KEPT: &[u8] = b"kept";

/// The outcome of a direct message that was kept, for its sender.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptEnd {
    pub(crate) kept: KeptId,
    pub(crate) from: String,
    pub(crate) to: String,
    /// The sender's id as JSON text.
    pub(crate) id: Option<String>,
    /// Whether the receiver has acknowledged it. It has expired otherwise.
    pub(crate) is_delivered: bool,
}

impl KeptEnd {
    fn reply(&self) -> Reply {
        let (to, id) = (self.to.clone(), later::sender_id(self.id.as_deref()));
        if self.is_delivered {
            return Reply::Delivered { to, id };
        }
        let message = format!("{to} was not connected in time");
        Reply::Error { code: Code::Expired, message, room: None, to: Some(to), id }
    }

    /// Returns the id by which a repetition is recognised, also one of another server.
    fn message_id(&self) -> MessageId {
        let KeptId { number, server } = self.kept;
        let sender = [KEPT, &server.to_le_bytes()].concat();
        MessageId::new(sender, number.to_le_bytes()).expect("both are short")
    }
}

impl Nodes {
    /// Sends the outcome of a kept message to the server of its sender, which may be this one. If
    /// the sender is not connected, no user is notified.
    pub(crate) fn report(hub: &Arc<Hub>, end: KeptEnd) {
        let node = match hub.route(&end.from) {
            Route::Here(_) => hub.nodes.name.clone(),
            Route::There(node) => node,
            Route::Absent => return,
        };
        let (id, message) = (end.message_id(), Arc::new(NodeMessage::KeptEnd(end)));
        hub.nodes.send(Letter { node, message, id, attempts: 0 });
    }

    /// Receives the outcome of a kept message. Called on any thread.
    pub(crate) fn kept_ended(hub: &Arc<Hub>, end: &KeptEnd) {
        if hub.later().is_some_and(|later| later.hold_outcome(end)) {
            return;
        }
        match hub.route(&end.from) {
            Route::Here(session) => {
                // The topic has delivered the outcome, so no server repeats it.
                hub::send(&end.from, session.channel(), end.reply());
            }
            // The sender has changed its server. A server that has sent it before does not send it
            // again.
            Route::There(_) => Self::report(hub, end.clone()),
            Route::Absent => {}
        }
    }
}
