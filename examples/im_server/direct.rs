//! Direct messages, which their receiver has to acknowledge.
//!
//! A direct message is handed to the session of its receiver. It stays there until it is
//! acknowledged, given up, or the receiver has gone. All of this happens on the receiver's loop, so
//! the table and its timeouts do not need a lock. Messages that were kept for a user that was not
//! connected, reminders, and messages from other servers follow the same path.
//!
//! Invariant: every message ends exactly once, and its [`Receipt`] then notifies the sender, the
//! sender's server or the store, at the latest when the receipt is dropped.

use crate::{
    byte_budget::{ByteBudget, Charge},
    hub,
    later::KeptReceipt,
    message_id::MessageId,
    nodes::NodeReceipt,
    protocol::{Code, Reply},
    session::Session,
};
use netwheel::{channel::TaskKey, prelude::*, time::Delay};
use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

/// Maximum number of times that a direct message is sent again.
pub(crate) const RESENDS: u32 = 3;
/// The longest wait for the outcome of a message: a year.
const LONGEST_WAIT: Duration = Duration::from_secs(365 * 24 * 3600);

/// Why a direct message is refused that exceeds the limit for the bytes of all clients.
pub(crate) const TOO_MANY: &str = "not sent, try again later: too many direct messages are unacknowledged";

/// A direct message or a reminder on its way to the session of its receiver.
pub(crate) struct Direct {
    /// The message. The session sets its id.
    pub(crate) message: Reply,
    pub(crate) receipt: Receipt,
}

/// Receives the outcome of a message, exactly once.
pub(crate) enum Receipt {
    Sender(SenderReceipt),
    /// The sender is at another server.
    Node(NodeReceipt),
    Kept(KeptReceipt),
}

impl Receipt {
    fn bytes(&self) -> usize {
        match self {
            Receipt::Sender(receipt) => receipt.under_way.as_ref().map_or(0, |under_way| under_way.bytes),
            Receipt::Node(receipt) => receipt.bytes,
            Receipt::Kept(receipt) => receipt.bytes,
        }
    }

    fn delivered(self) {
        match self {
            Receipt::Sender(receipt) => receipt.delivered(),
            Receipt::Node(receipt) => receipt.delivered(),
            Receipt::Kept(receipt) => receipt.delivered(),
        }
    }

    /// Reports a failure, which `why` describes with the name of the receiver.
    pub(crate) fn failed(self, code: Code, why: impl FnOnce(&str) -> String) {
        match self {
            Receipt::Sender(receipt) => receipt.failed(code, why),
            Receipt::Node(receipt) => receipt.failed(code, why),
            Receipt::Kept(receipt) => receipt.failed(),
        }
    }
}

/// Returns until when the server of a sender waits for the outcome of a message to a user of
/// another server: until the other server gives it up, plus a margin for transport.
pub(crate) fn give_up_at(now: Instant, ack_timeout: Duration) -> Instant {
    let wait = ack_timeout.saturating_mul(RESENDS + 1).saturating_add(Duration::from_secs(5));
    now + wait.min(LONGEST_WAIT)
}

/// Describes the end of a message without an acknowledgement.
pub(crate) fn not_acknowledged(to: &str) -> String {
    format!("{to} has not acknowledged it")
}

/// Notifies the sender of the outcome of a direct message, exactly once.
pub(crate) struct SenderReceipt {
    from: Arc<str>,
    sender: Channel<Reply>,
    to: String,
    id: Option<MessageId>,
    /// Counts the message as in flight; `None` once the sender has been notified.
    under_way: Option<UnderWay>,
}

/// Counts a direct message and its bytes until the message ends.
pub(crate) struct UnderWay {
    /// Bytes that the message occupies.
    pub(crate) bytes: usize,
    /// Counts the sender's messages by its references.
    pub(crate) _message: Arc<()>,
    /// Share of the sender's bytes.
    pub(crate) _own: Charge,
    /// Share of the bytes of all clients.
    pub(crate) _all: Charge,
}

/// Bytes that a message occupies besides its text, id and names: this server's records and the
/// timeout.
const RECORD: usize = 512;

/// Returns the number of bytes that a direct message occupies until it ends.
pub(crate) fn size(from: &str, to: &str, text: &str, id: Option<&MessageId>) -> usize {
    RECORD + from.len() + 2 * to.len() + text.len() + id.map_or(0, MessageId::len)
}

impl SenderReceipt {
    pub(crate) fn new(
        from: Arc<str>,
        sender: Channel<Reply>,
        to: String,
        id: Option<MessageId>,
        under_way: UnderWay,
    ) -> Self {
        SenderReceipt { from, sender, to, id, under_way: Some(under_way) }
    }

    pub(crate) fn delivered(mut self) {
        let reply = Reply::Delivered { to: self.to.clone(), id: self.id.clone() };
        self.end(reply);
    }

    pub(crate) fn failed(mut self, code: Code, why: impl FnOnce(&str) -> String) {
        let message = why(&self.to);
        self.fail(code, message);
    }

    fn fail(&mut self, code: Code, message: String) {
        let reply =
            Reply::Error { code, message, room: None, to: Some(self.to.clone()), id: self.id.clone() };
        self.end(reply);
    }

    fn end(&mut self, reply: Reply) {
        // Release the message before the sender is notified, because the sender may then send the
        // next one.
        self.under_way = None;
        hub::send(&self.from, &self.sender, reply);
    }
}

impl Drop for SenderReceipt {
    fn drop(&mut self) {
        if self.under_way.is_some() {
            self.fail(Code::Undelivered, format!("{} has disconnected", self.to));
        }
    }
}

/// Unacknowledged direct messages to one client.
pub(crate) struct Unacked {
    timeout: Duration,
    max: usize,
    /// Bytes of the unacknowledged messages.
    bytes: Arc<ByteBudget>,
    /// Number of the last delivery.
    last: u64,
    waiting: BTreeMap<u64, Waiting>,
}

struct Waiting {
    message: Reply,
    resends: u32,
    timeout: TaskKey,
    receipt: Receipt,
    _bytes: Charge,
}

impl Unacked {
    /// Returns an empty table for at most `max` messages with `max_bytes` in total.
    pub(crate) fn new(timeout: Duration, max: usize, max_bytes: usize) -> Self {
        Unacked { timeout, max, bytes: ByteBudget::new(max_bytes), last: 0, waiting: BTreeMap::new() }
    }

    /// Sends a message for the first time.
    pub(crate) fn deliver(&mut self, ctx: &mut Context<'_, Session>, direct: Direct) -> Result {
        let Direct { mut message, receipt } = direct;
        if self.waiting.len() >= self.max {
            receipt.failed(Code::TooManyUnacked, |to| {
                format!("{to} has not acknowledged {} direct messages yet", self.max)
            });
            return Ok(());
        }
        let Some(charge) = self.bytes.charge(receipt.bytes()) else {
            receipt.failed(Code::TooManyUnacked, |to| {
                format!("{to} has not acknowledged {} bytes yet", self.bytes.used())
            });
            return Ok(());
        };
        self.last += 1;
        let id = self.last;
        if let Reply::Direct { id: number, .. } | Reply::Reminder { id: number, .. } = &mut message {
            *number = id;
        }
        let timeout = arm(ctx, self.timeout, id);
        self.waiting
            .insert(id, Waiting { message: message.clone(), resends: 0, timeout, receipt, _bytes: charge });
        ctx.write(message)
    }

    /// Returns how many bytes the next message may have: 0 if there are too many messages.
    pub(crate) fn room(&self) -> usize {
        match self.waiting.len() {
            // A message that is too long even now must not wait for room.
            0 => usize::MAX,
            len if len >= self.max => 0,
            _ => self.bytes.limit() - self.bytes.used(),
        }
    }

    /// Returns the number of kept messages among the unacknowledged ones.
    pub(crate) fn kept(&self) -> usize {
        self.waiting.values().filter(|waiting| matches!(waiting.receipt, Receipt::Kept(_))).count()
    }

    /// Records an acknowledgement. Returns `false` if the message was not pending.
    pub(crate) fn ack(&mut self, ctx: &mut Context<'_, Session>, id: u64) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        ctx.cancel(waiting.timeout);
        waiting.receipt.delivered();
        true
    }

    /// Drops all messages when the client has gone, which notifies their senders.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// Called when a message was not acknowledged in time: sends it again, or gives up.
    fn timed_out(&mut self, ctx: &mut Context<'_, Session>, id: u64) -> Result {
        let Some(mut waiting) = self.waiting.remove(&id) else { return Ok(()) };
        if waiting.resends == RESENDS {
            waiting.receipt.failed(Code::Undelivered, not_acknowledged);
            return Ok(());
        }
        let message = waiting.message.clone();
        waiting.resends += 1;
        waiting.timeout = arm(ctx, self.timeout, id);
        self.waiting.insert(id, waiting);
        ctx.write(message)
    }
}

/// Starts the timeout for an acknowledgement.
fn arm(ctx: &mut Context<'_, Session>, timeout: Duration, id: u64) -> TaskKey {
    ctx.schedule(Delay::coarse(timeout), move |session, ctx| {
        session.unacked.timed_out(ctx, id)?;
        session.deliver_more(ctx)
    })
}
