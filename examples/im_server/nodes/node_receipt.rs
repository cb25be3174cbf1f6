//! `NodeReceipt`: the outcome of a direct message whose sender is at another server.

use super::{
    Nodes,
    node_message::{Deliver, Failure, NodeMessage, Outcome, Ticket},
};
use crate::{byte_budget::Charge, protocol::Code};
use std::sync::Arc;

/// Notifies the sender's server of the outcome, exactly once.
pub(crate) struct NodeReceipt {
    nodes: Arc<Nodes>,
    to: String,
    reply_to: String,
    ticket: Ticket,
    /// Bytes that the message occupies.
    pub(crate) bytes: usize,
    /// Share of the bytes of all clients.
    charge: Option<Charge>,
    has_ended: bool,
}

impl NodeReceipt {
    pub(super) fn new(nodes: &Arc<Nodes>, message: &Deliver, bytes: usize, charge: Option<Charge>) -> Self {
        let Deliver { ticket, reply_to, to, .. } = message;
        NodeReceipt {
            nodes: nodes.clone(),
            to: to.clone(),
            reply_to: reply_to.clone(),
            ticket: *ticket,
            bytes,
            charge,
            has_ended: false,
        }
    }

    pub(crate) fn delivered(mut self) {
        self.end(None);
    }

    pub(crate) fn failed(mut self, code: Code, why: impl FnOnce(&str) -> String) {
        let message = why(&self.to);
        self.end(Some(Failure { code, message }));
    }

    fn end(&mut self, failure: Option<Failure>) {
        self.has_ended = true;
        self.charge = None;
        let outcome = NodeMessage::Outcome(Outcome { ticket: self.ticket, failure });
        self.nodes.send_outcome(&self.reply_to, outcome);
    }
}

impl Drop for NodeReceipt {
    fn drop(&mut self) {
        if !self.has_ended {
            let message = format!("{} has disconnected", self.to);
            self.end(Some(Failure { code: Code::Undelivered, message }));
        }
    }
}
