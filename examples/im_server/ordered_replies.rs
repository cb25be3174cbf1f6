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

#[derive(Default)]
pub(crate) struct OrderedReplies {
    /// Requests whose outcome is unknown.
    unknown: usize,
    /// Replies that wait for it.
    waiting: VecDeque<Reply>,
    /// Whether the client's copy of a message may be in the queue of the loop.
    has_copy: bool,
    /// Replies in the queue of the loop.
    queued: usize,
    /// Held while reading is paused.
    pause: Option<InputGuard>,
}

impl OrderedReplies {
    /// Records that a request is answered later.
    pub(crate) fn begin(&mut self) {
        self.unknown += 1;
    }

    /// Returns whether reading is paused because of the replies that wait.
    pub(crate) fn is_paused(&self) -> bool {
        self.pause.is_some()
    }

    /// Records that a request was answered.
    pub(crate) fn end(&mut self, ctx: &mut Context<'_, Session>) -> Result {
        self.unknown = self.unknown.saturating_sub(1);
        if self.unknown == 0 { self.flush(ctx) } else { Ok(()) }
    }

    /// Records that the client's copy of a message is in the queue of the loop.
    pub(crate) fn note_copy(&mut self) {
        self.has_copy = true;
    }

    /// Records that a request was answered, and writes the answer, if there is one.
    pub(crate) fn answer(&mut self, ctx: &mut Context<'_, Session>, reply: Option<Reply>) -> Result {
        if let Some(reply) = reply {
            self.write_now(ctx, reply)?;
        }
        self.end(ctx)
    }

    /// Writes a reply behind those to earlier requests.
    pub(crate) fn write(&mut self, ctx: &mut Context<'_, Session>, reply: Reply) -> Result {
        if self.unknown > 0 {
            let pauses = must_be_last(&reply) || self.waiting.len() + 1 >= MAX_WAITING;
            self.waiting.push_back(reply);
            if pauses && self.pause.is_none() {
                self.pause = Some(ctx.pause_reading());
            }
            return Ok(());
        }
        self.write_now(ctx, reply)
    }

    /// Writes all waiting replies.
    pub(crate) fn flush(&mut self, ctx: &mut Context<'_, Session>) -> Result {
        self.pause = None;
        while let Some(reply) = self.waiting.pop_front() {
            self.write_now(ctx, reply)?;
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
        self.flush(ctx)?;
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
