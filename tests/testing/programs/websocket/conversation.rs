//! What both sides of each conversation have sent and read.

use super::super::support::Violations;
use netwheel::{
    channel::CloseCause,
    testing::simulation::sometimes,
    websocket::{CloseCode, CloseFrame, Message},
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};

/// A side of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Client,
    Server,
}

impl Side {
    fn other(self) -> Side {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }
}

/// All conversations, by their numbers.
pub(super) struct Conversations {
    violations: Violations,
    all: BTreeMap<u64, Arc<Mutex<Conversation>>>,
    /// Conversations that were closed in order while nothing failed.
    pub(super) completed: u32,
}

impl Conversations {
    pub(super) fn new(violations: Violations) -> Self {
        Conversations { violations, all: BTreeMap::new(), completed: 0 }
    }

    pub(super) fn begin(&mut self) -> Arc<Mutex<Conversation>> {
        let id = self.all.len() as u64;
        let violations = self.violations.clone();
        let (client, server) = (Party::default(), Party::default());
        let begun = Arc::new(Mutex::new(Conversation { id, violations, client, server }));
        self.all.insert(id, begun.clone());
        begun
    }

    pub(super) fn get(&self, id: u64) -> Option<Arc<Mutex<Conversation>>> {
        self.all.get(&id).cloned()
    }
}

pub(super) struct Conversation {
    pub(super) id: u64,
    violations: Violations,
    pub(super) client: Party,
    pub(super) server: Party,
}

/// What one side has done.
#[derive(Default)]
pub(super) struct Party {
    /// Whether the handshake of this side has succeeded.
    pub(super) has_begun: bool,
    /// The messages that were accepted for sending.
    pub(super) sent: Vec<Message>,
    /// The number of messages that were read.
    pub(super) read: usize,
    /// The code of the Close frame that this side has begun with.
    close_sent: Option<CloseCode>,
    pub(super) has_read_close: bool,
    /// Whether this side has ended the connection without a Close frame, or has seen an error.
    is_rude: bool,
    cause: Option<CloseCause>,
    /// Whether the process has ended before the connection.
    was_killed: bool,
}

impl Conversation {
    pub(super) fn party(&mut self, side: Side) -> &mut Party {
        match side {
            Side::Client => &mut self.client,
            Side::Server => &mut self.server,
        }
    }

    fn must(&self, holds: bool, what: impl FnOnce() -> String) {
        self.violations.unless(holds, || format!("conversation {}: {}", self.id, what()));
    }

    /// Records a message that was written.
    pub(super) fn sent(&mut self, side: Side, message: Message) {
        self.party(side).sent.push(message);
    }

    /// Records that a side begins to close.
    pub(super) fn closes(&mut self, side: Side, code: CloseCode) {
        self.party(side).close_sent.get_or_insert(code);
    }

    /// Records that a side ends the connection without a Close frame.
    pub(super) fn breaks(&mut self, side: Side) {
        self.party(side).is_rude = true;
    }

    /// Checks a message that a side has read.
    pub(super) fn read(&mut self, side: Side, message: &Message) {
        if let Message::Close(frame) = message {
            return self.read_close(side, frame.as_ref());
        }
        let at = self.party(side).read;
        self.party(side).read += 1;
        let is_next = self.party(side.other()).sent.get(at) == Some(message);
        self.must(is_next, || format!("{side:?} has read another message as its number {at}"));
        let is_open = !self.party(side).has_read_close;
        self.must(is_open, || format!("{side:?} has read a message behind the Close frame"));
    }

    fn read_close(&mut self, side: Side, frame: Option<&CloseFrame>) {
        let (read, own) = (self.party(side).read, self.party(side).close_sent);
        let (sent, begun) = {
            let other = self.party(side.other());
            (other.sent.len(), other.close_sent)
        };
        let code = frame.map(|frame| frame.code);
        self.must(code.is_some() && (code == begun || code == own), || {
            format!("{side:?} has read the code {code:?}; sent were {begun:?} and {own:?}")
        });
        // A side that closes itself drops what arrives from then on.
        if own.is_none() {
            self.must(read == sent, || {
                format!("{side:?} has read {read} of {sent} messages, then a Close frame")
            });
        }
        let is_first = !self.party(side).has_read_close;
        self.must(is_first, || format!("{side:?} has read two Close frames"));
        self.party(side).has_read_close = true;
        match (begun, own) {
            (Some(_), Some(_)) => sometimes("closed by both"),
            (Some(CloseCode::GOING_AWAY), _) => sometimes("the server goes away"),
            (Some(_), None) if side == Side::Client => sometimes("closed by the server"),
            _ => sometimes("closed by the client"),
        }
    }

    /// Checks the end of a side's connection.
    pub(super) fn ended(&mut self, side: Side, cause: Option<CloseCause>) {
        let is_first = self.party(side).cause.is_none();
        self.must(is_first, || format!("{side:?} has ended twice"));
        self.party(side).cause = cause;
        if self.party(side).has_read_close {
            return;
        }
        sometimes("no Close frame");
        let other = self.party(side.other());
        let is_broken = !other.has_begun
            || other.was_killed
            || other.is_rude
            || other.cause.is_some_and(|cause| !cause.is_clean());
        let is_excused = is_broken || self.party(side).is_rude || cause != Some(CloseCause::Clean);
        self.must(is_excused, || format!("{side:?} has read no Close frame, although nothing has broken"));
    }

    /// Records that the handler of a side is gone. Without an end before, its process was killed.
    pub(super) fn dropped(&mut self, side: Side) {
        let party = self.party(side);
        party.was_killed |= party.cause.is_none();
    }

    pub(super) fn violated(&self, what: &str) {
        self.must(false, || what.to_owned());
    }

    /// Returns whether both sides have ended in order, and nothing is missing.
    pub(super) fn is_complete(&self) -> bool {
        let is_clean = |party: &Party| party.has_read_close && party.cause.is_none_or(CloseCause::is_clean);
        is_clean(&self.client) && is_clean(&self.server)
    }
}
