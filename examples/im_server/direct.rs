//! Direct messages: those that their receiver has to acknowledge.
//!
//! A direct message is handed to the session of its receiver, and stays with it until it ends: acknowledged, given up,
//! or its receiver gone. All that happens on the receiver's loop, so the table and its timeouts need no lock.
//!
//! Always holds: a direct message ends once, and its sender is told how: by its [`Receipt`], at the latest when that
//! is dropped.

use crate::{
    hub,
    protocol::{Code, MessageId, Reply},
    session::Session,
};
use netwheel::{TaskKey, prelude::*};
use std::{collections::HashMap, sync::Arc, time::Duration};

/// How often a direct message is sent again, if need be.
pub(crate) const RESENDS: u32 = 3;

/// On its way to the session of its receiver.
pub(crate) struct Direct {
    pub(crate) from: String,
    pub(crate) text: String,
    pub(crate) ts: u64,
    pub(crate) receipt: Receipt,
}

/// Tells the sender of a direct message how that ended: once, whatever happens.
pub(crate) struct Receipt {
    from: Arc<str>,
    sender: Channel<Reply>,
    to: String,
    id: Option<MessageId>,
    /// Counts the message as under way; none when the sender is told.
    under_way: Option<Arc<()>>,
}

impl Receipt {
    pub(crate) fn new(
        from: Arc<str>,
        sender: Channel<Reply>,
        to: String,
        id: Option<MessageId>,
        under_way: Arc<()>,
    ) -> Self {
        Receipt { from, sender, to, id, under_way: Some(under_way) }
    }

    fn delivered(mut self) {
        let reply = Reply::Delivered { to: self.to.clone(), id: self.id.clone() };
        self.end(reply);
    }

    fn failed(mut self, code: Code, message: String) {
        self.fail(code, message);
    }

    fn fail(&mut self, code: Code, message: String) {
        let reply = Reply::Error { code, message, to: Some(self.to.clone()), id: self.id.clone() };
        self.end(reply);
    }

    fn end(&mut self, reply: Reply) {
        // No longer under way before the sender hears of it: then it may send the next one.
        self.under_way = None;
        hub::send(&self.from, &self.sender, reply);
    }
}

impl Drop for Receipt {
    fn drop(&mut self) {
        if self.under_way.is_some() {
            self.fail(Code::Undelivered, format!("{} has gone", self.to));
        }
    }
}

/// Direct messages to one client that wait for its acknowledgement.
pub(crate) struct Unacked {
    timeout: Duration,
    max: usize,
    /// The last delivery's number.
    last: u64,
    waiting: HashMap<u64, Waiting>,
}

struct Waiting {
    message: Reply,
    resends: u32,
    timeout: TaskKey,
    receipt: Receipt,
}

impl Unacked {
    pub(crate) fn new(timeout: Duration, max: usize) -> Self {
        Unacked { timeout, max, last: 0, waiting: HashMap::new() }
    }

    /// Sends a message for the first time.
    pub(crate) fn deliver(&mut self, ctx: &mut Context<'_, Session>, direct: Direct) -> Result {
        let Direct { from, text, ts, receipt } = direct;
        if self.waiting.len() >= self.max {
            let why = format!("{} has not acknowledged {} direct messages yet", receipt.to, self.max);
            receipt.failed(Code::TooManyUnacked, why);
            return Ok(());
        }
        self.last += 1;
        let id = self.last;
        let message = Reply::Direct { from, text, ts, id };
        let timeout = arm(ctx, self.timeout, id);
        self.waiting.insert(id, Waiting { message: message.clone(), resends: 0, timeout, receipt });
        ctx.write(message)
    }

    /// The client has got it; false if it was not waited for.
    pub(crate) fn ack(&mut self, ctx: &mut Context<'_, Session>, id: u64) -> bool {
        let Some(waiting) = self.waiting.remove(&id) else { return false };
        ctx.cancel(waiting.timeout);
        waiting.receipt.delivered();
        true
    }

    /// The client is gone: all senders are told.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
    }

    /// A message was not acknowledged in time: sends it again, or gives up.
    fn timed_out(&mut self, ctx: &mut Context<'_, Session>, id: u64) -> Result {
        let Some(mut waiting) = self.waiting.remove(&id) else { return Ok(()) };
        if waiting.resends == RESENDS {
            let why = format!("{} has not acknowledged it", waiting.receipt.to);
            waiting.receipt.failed(Code::Undelivered, why);
            return Ok(());
        }
        let message = waiting.message.clone();
        waiting.resends += 1;
        waiting.timeout = arm(ctx, self.timeout, id);
        self.waiting.insert(id, waiting);
        ctx.write(message)
    }
}

/// The one place where an acknowledgement's time is measured.
fn arm(ctx: &mut Context<'_, Session>, timeout: Duration, id: u64) -> TaskKey {
    ctx.timeout(timeout, move |session, ctx| session.unacked.timed_out(ctx, id))
}
