//! Replies in the order of the requests, although some requests are answered later.
//!
//! A `join` is answered when the position in the room is known, and a `say` when the message is
//! stored. Replies to later requests of the same client wait for them. So a `pong` shows that all
//! earlier messages to rooms were answered.

use crate::{
    message_id::MessageId,
    protocol::{Reason, Reply},
    session::{Session, bye},
};
use netwheel::{channel::InputGuard, prelude::*};
use std::collections::VecDeque;

/// Number of waiting replies at which reading from the client pauses, at the latest.
const MAX_WAITING: usize = 64;
/// Length of a waiting reply at which reading pauses at once.
const MAX_LEN: usize = 1024;

/// A request that is answered later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unanswered(u64);

/// The place of a reply.
enum Waiting {
    /// The outcome of this request is unknown.
    For(Unanswered),
    /// A reply that waits for the requests before it.
    Behind(Reply),
}

#[derive(Default)]
pub(crate) struct OrderedReplies {
    /// The number of the next request that is answered later.
    next: u64,
    /// From the first request whose outcome is unknown, in the order of the requests.
    waiting: VecDeque<Waiting>,
    /// Whether the client's copy of a message may be in the queue of the loop.
    has_copy: bool,
    /// Replies in the queue of the loop.
    queued: usize,
    /// Held while reading is paused.
    pause: Option<InputGuard>,
}

impl OrderedReplies {
    /// Records that a request is answered later.
    pub(crate) fn begin(&mut self) -> Unanswered {
        let request = Unanswered(self.next);
        self.next += 1;
        self.waiting.push_back(Waiting::For(request));
        request
    }

    /// Returns whether reading is paused because of the replies that wait.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Records that the client's copy of a message is in the queue of the loop.
    pub(crate) fn note_copy(&mut self) {
        self.has_copy = true;
    }

    /// Records that a request was answered. The reply, if there is one, waits for those to earlier
    /// requests.
    pub(crate) fn answer(
        &mut self,
        ctx: &mut Context<'_, Session>,
        request: Unanswered,
        reply: Option<Reply>,
    ) -> Result {
        let is_place = |waiting: &Waiting| matches!(waiting, Waiting::For(other) if *other == request);
        // None after the last reply of the connection.
        let Some(at) = self.waiting.iter().position(is_place) else { return Ok(()) };
        match reply {
            Some(reply) => self.waiting[at] = Waiting::Behind(reply),
            None => drop(self.waiting.remove(at)),
        }
        while let Some(reply) = self.pop_reply() {
            self.write_now(ctx, reply)?;
        }
        if self.waiting.is_empty() {
            self.pause = None;
        }
        Ok(())
    }

    /// Takes the first reply, unless it waits for another one.
    fn pop_reply(&mut self) -> Option<Reply> {
        match self.waiting.pop_front()? {
            Waiting::Behind(reply) => Some(reply),
            unanswered => {
                self.waiting.push_front(unanswered);
                None
            }
        }
    }

    /// Writes a reply behind those to earlier requests.
    pub(crate) fn write(&mut self, ctx: &mut Context<'_, Session>, reply: Reply) -> Result {
        if self.waiting.is_empty() {
            return self.write_now(ctx, reply);
        }
        let replies = self.waiting.iter().filter(|waiting| matches!(waiting, Waiting::Behind(_))).count();
        let pauses = must_be_last(&reply) || replies + 1 >= MAX_WAITING;
        self.waiting.push_back(Waiting::Behind(reply));
        if pauses && self.pause.is_none() {
            self.pause = Some(ctx.pause_reading());
        }
        Ok(())
    }

    /// Writes the last reply and a `bye` behind everything else, and closes the connection.
    pub(crate) fn end_with(
        &mut self,
        ctx: &mut Context<'_, Session>,
        reply: Reply,
        reason: Reason,
    ) -> Result {
        self.pause = None;
        for waiting in std::mem::take(&mut self.waiting) {
            if let Waiting::Behind(reply) = waiting {
                self.write_now(ctx, reply)?;
            }
        }
        self.write_now(ctx, reply)?;
        if self.queued == 0 {
            return bye(ctx, reason);
        }
        ctx.handler_ref().execute(move |_, ctx| bye(ctx, reason))
    }

    fn write_now(&mut self, ctx: &mut Context<'_, Session>, reply: Reply) -> Result {
        if !self.has_copy && self.queued == 0 {
            return ctx.write(reply);
        }
        // Through the queue of the loop, behind the copies in it.
        self.has_copy = false;
        self.queued += 1;
        ctx.handler_ref().execute(|me, ctx| {
            me.replies.queued -= 1;
            ctx.write(reply)
        })
    }
}

/// Returns whether no other reply may wait behind this one.
fn must_be_last(reply: &Reply) -> bool {
    match reply {
        // A list may have the names of a full room.
        Reply::Members { .. } | Reply::Reminders { .. } => true,
        // A `joined` or `active` with a position does not wait, and must not overtake them.
        Reply::Left { .. } | Reply::Passive { .. } => true,
        // All of them may have text of the client.
        Reply::Error { message, room, id, .. } => {
            let room = room.as_ref().map_or(0, String::len);
            message.len() + room + id.as_ref().map_or(0, MessageId::len) >= MAX_LEN
        }
        _ => false,
    }
}
