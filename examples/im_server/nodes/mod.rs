//! The other servers of the store.
//!
//! Each server has a topic with its name, through which other servers pass direct messages to its
//! users. The outcome returns by the same path to the sender's server, which waits for it for a
//! limited time.
//!
//! Invariant: each direct message that was passed on ends once: with the first outcome, or when its
//! time is over.

mod kept_end;
mod node_message;
mod node_receipt;
mod unsent;

pub(crate) use kept_end::KeptEnd;
pub(crate) use node_message::NodeMessage;
pub(crate) use node_receipt::NodeReceipt;

use crate::{
    direct::{self, Direct, Receipt, SenderReceipt},
    hub::{Hub, lock},
    protocol::{Code, Reply},
    store::may_be_stored,
};
use netwheel::{
    Error, Result,
    broker::{HistoryLimits, MessageId, NewMessage, Topic, TopicWatch, Topics},
};
use node_message::{Deliver, Failure, NodeFormat, Outcome, Ticket};
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};
use unsent::{Letter, Unsent};

/// What the topic of each server begins with.
const PREFIX: &str = "node/";
/// What is kept of the messages to a server: enough for a short interruption of its connection.
const HISTORY: HistoryLimits =
    HistoryLimits::new().messages(10_000).bytes(4 * 1024 * 1024).age(Duration::from_secs(60));
/// Time for which a repeated message is recognised. An outcome is sent again for six minutes at
/// most: `unsent::ATTEMPTS`, each with its pause and the timeout of the store.
const ID_WINDOW: Duration = Duration::from_secs(600);
/// How long a start waits for the broker.
const READY_TIMEOUT: Duration = Duration::from_secs(1);

pub(crate) struct Nodes {
    /// The name of this server.
    name: String,
    /// Differs between all servers of the store, and after a restart.
    server: u64,
    topics: Topics,
    /// Keeps the subscription to this server's topic.
    watch: OnceLock<TopicWatch>,
    /// Number of the next message.
    next: AtomicU64,
    /// Direct messages that were passed to other servers, in the order of their numbers.
    passed: Mutex<BTreeMap<u64, Passed>>,
    unsent: Unsent,
}

/// A direct message that was passed to another server.
struct Passed {
    receipt: SenderReceipt,
    /// When it ends without an outcome.
    expires: Instant,
}

impl Nodes {
    /// `name` and `server` differ between all servers of the store.
    pub(crate) fn new(topics: Topics, name: String, server: u64) -> Self {
        Nodes {
            name,
            server,
            topics,
            watch: OnceLock::new(),
            next: AtomicU64::new(0),
            passed: Mutex::default(),
            unsent: Unsent::default(),
        }
    }

    /// Begins to receive messages from other servers.
    ///
    /// # Errors
    /// Fails if the name is not allowed, or if there are too many topics.
    pub(crate) fn start(&self, hub: &Arc<Hub>) -> Result {
        let topic = self.topic(&self.name, NodeFormat::of_receiver(hub))?;
        let watch = topic.watch();
        // Users that have logged in may receive direct messages. Logins need the broker, too.
        drop(watch.ready().wait_timeout(READY_TIMEOUT));
        // This is the only call.
        let _ = self.watch.set(watch);
        Ok(())
    }

    /// Returns the name of this server.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Returns whether this server may deliver messages to its users. If its lease has ended, their
    /// names may be in use at another server.
    pub(crate) fn has_authority(&self) -> bool {
        self.topics.authority().is_some()
    }

    // ---- direct messages to users of other servers ----------------------------------------------

    /// Passes a direct message to the server of its receiver. It ends at `expires` at the latest,
    /// or some milliseconds later. These times are about in the order of the calls.
    pub(crate) fn pass(
        self: &Arc<Self>,
        node: &str,
        message: Reply,
        to: &str,
        receipt: SenderReceipt,
        expires: Instant,
    ) {
        let Reply::Direct { from, text, ts, .. } = message else { return };
        let number = self.number();
        lock(&self.passed).insert(number, Passed { receipt, expires });
        let (ticket, reply_to) = (Ticket { server: self.server, number }, self.name.clone());
        let deliver = Deliver { ticket, reply_to, from, to: to.to_owned(), text, ts };
        let nodes = self.clone();
        self.publish(node, NodeMessage::Deliver(deliver).into(), self.id(number), move |error| {
            // Otherwise it may be on its way.
            if !may_be_stored(&error)
                && let Some(passed) = lock(&nodes.passed).remove(&number)
            {
                passed.receipt.failed(Code::Busy, |_| format!("not sent, try again later: {error:#}"));
            }
        });
    }

    /// Ends direct messages without an outcome, and sends outcomes again. Called periodically.
    pub(crate) fn tick(self: &Arc<Self>, now: Instant) {
        while let Some(passed) = self.next_expired(now) {
            passed.receipt.failed(Code::Undelivered, direct::not_acknowledged);
        }
        for letter in self.unsent.take(now) {
            self.send(letter);
        }
    }

    fn next_expired(&self, now: Instant) -> Option<Passed> {
        let mut passed = lock(&self.passed);
        let first = passed.first_entry()?;
        (first.get().expires <= now).then(|| first.remove())
    }

    // ---- messages from other servers ------------------------------------------------------------

    /// Receives a message from another server. Called on any thread.
    fn receive(hub: &Arc<Hub>, message: &NodeMessage) {
        match message {
            NodeMessage::Deliver(deliver) => Self::deliver(hub, deliver),
            NodeMessage::Outcome(outcome) => hub.nodes.end(outcome),
            NodeMessage::KeptEnd(end) => Self::kept_ended(hub, end),
        }
    }

    fn deliver(hub: &Arc<Hub>, deliver: &Deliver) {
        let Deliver { from, to, text, ts, .. } = deliver;
        let bytes = direct::size(from, to, text, None);
        let charge = hub.unacked_bytes.charge(bytes);
        let is_full = charge.is_none();
        let receipt = NodeReceipt::new(&hub.nodes, deliver, bytes, charge);
        if is_full {
            return receipt.failed(Code::Busy, |_| direct::TOO_MANY.to_owned());
        }
        // Without a session or a right to deliver, the receipt is dropped, which notifies the
        // sender's server.
        let Some(session) = hub.find(to).filter(|_| hub.nodes.has_authority()) else { return };
        let message = Reply::Direct { from: from.clone(), text: text.clone(), ts: *ts, id: 0 };
        let direct = Direct { message, receipt: Receipt::Node(receipt) };
        let _ = session.execute(move |session, ctx| session.unacked.deliver(ctx, direct));
        hub.counters.count_message(1, 0);
    }

    fn end(&self, outcome: &Outcome) {
        let Outcome { ticket, failure } = outcome;
        if ticket.server != self.server {
            // Of an earlier process with the name of this server.
            return;
        }
        let Some(Passed { receipt, .. }) = lock(&self.passed).remove(&ticket.number) else { return };
        match failure {
            None => receipt.delivered(),
            Some(Failure { code, message }) => receipt.failed(*code, |_| message.clone()),
        }
    }

    /// Sends an outcome to the server of a sender.
    fn send_outcome(self: &Arc<Self>, node: &str, outcome: NodeMessage) {
        let (node, message) = (node.to_owned(), Arc::new(outcome));
        self.send(Letter { node, message, id: self.id(self.number()), attempts: 0 });
    }

    fn send(self: &Arc<Self>, letter: Letter) {
        let nodes = self.clone();
        let (node, message) = (letter.node.clone(), letter.message.clone());
        self.publish(&node, message, letter.id.clone(), move |error| {
            log::debug!("an outcome was not sent to {}: {error:#}", letter.node);
            nodes.unsent.add(letter);
        });
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Returns the id of a message of this server, by which a repetition is recognised.
    fn id(&self, number: u64) -> MessageId {
        MessageId::new(self.server.to_le_bytes(), number.to_le_bytes()).expect("both are short")
    }

    // ---- topics ---------------------------------------------------------------------------------

    /// Publishes a message to a server. `failed` is called with the error if that fails.
    fn publish(
        &self,
        node: &str,
        message: Arc<NodeMessage>,
        id: MessageId,
        failed: impl FnOnce(Error) + Send + 'static,
    ) {
        match self.topic(node, NodeFormat::of_sender()) {
            Err(error) => failed(error),
            Ok(topic) => topic.publish(NewMessage::new(message).id(id)).on_complete(move |stored| {
                if let Err(error) = stored {
                    failed(error);
                }
            }),
        }
    }

    fn topic(&self, node: &str, format: NodeFormat) -> Result<Topic<Arc<NodeMessage>>, Error> {
        self.topics.topic(format!("{PREFIX}{node}"), format).history(HISTORY).id_window(ID_WINDOW).open()
    }
}
