//! Heartbeats: pings a quiet peer, and closes a connection that does not answer.
//!
//! Invariants: a ping is sent only if the kernel has taken no bytes of the channel for a whole
//! interval and no bytes are pending. A peer is dead only if it has not answered the allowed number
//! of pings. It is also dead if, for the same time, no bytes were read and the kernel took none of
//! the pending bytes. So a full send queue does not delay the detection, and does not close a
//! channel whose peer still takes bytes. Runs on the channel's loop, with the channel's own entry
//! on the wheel.

use crate::{
    Error, Result,
    clock::nanos,
    pipeline::{Stage, StageContext},
};
use std::{marker::PhantomData, time::Duration};

/// The default number of missed pings in a row.
const MISSES: u32 = 2;

/// A [`Stage`] that sends heartbeats and detects dead peers.
///
/// After each `interval` without outgoing bytes, it sends the message that `ping` returns. A ping
/// without an answer within the next interval is a miss. After more than
/// [`misses`](Heartbeat::misses) in a row the peer is dead: the handler's
/// [`error`](crate::Handler::error) receives [`Error::TimedOut`], and the channel closes
/// immediately. Every incoming byte counts as an answer, unless [`answer`](Heartbeat::answer)
/// selects the messages that count.
///
/// A program that writes all the time sends no pings. While bytes are pending because the peer does
/// not read, no pings are added. The peer is then dead if nothing is read and the kernel takes no
/// byte for `(misses + 1) × interval`. All times are late by at most one tick of the loop's wheel
/// (100 ms by default) plus the loop's lag.
///
/// The other end answers pings in its handler, or sends something by itself with
/// [`IdleTimeouts`](crate::IdleTimeouts). [`interval_for`](Heartbeat::interval_for) recommends an
/// interval for that.
///
/// ```
/// use netwheel::{codec::Line, prelude::*, stage::Heartbeat};
/// use std::time::Duration;
/// # struct Chat;
/// # impl Handler for Chat {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
///
/// let heartbeat = Heartbeat::new(Duration::from_secs(30), || bytes::Bytes::from_static(b"PING"))
///     .answer(|line: &bytes::Bytes| line == "PONG")
///     .misses(2);
/// let pipeline = Pipeline::codec(Line::new()).stage(heartbeat).handler(Chat);
/// ```
pub struct Heartbeat<In, Out, F> {
    interval: u64,
    misses: u32,
    jitter: u64,
    ping: F,
    answer: Option<fn(&In) -> bool>,
    on_dead: OnDead,
    /// The time of the last answer.
    alive: u64,
    /// The time of the last ping, and the number of pings since the last answer.
    pinged: u64,
    unanswered: u32,
    dead: bool,
    messages: PhantomData<fn(In) -> Out>,
}

/// The action for a dead peer, after its handler has received the error.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDead {
    /// Closes the channel without sending pending bytes.
    #[default]
    Close,
    /// Leaves the decision to the handler. It receives the error once, and again if the peer
    /// answers and then stops answering.
    Report,
}

impl<In, Out, F: FnMut() -> Out> Heartbeat<In, Out, F> {
    /// Returns a stage that sends the message of `ping` after each `interval` without outgoing
    /// bytes. Intervals below 1 ms become 1 ms.
    pub fn new(interval: Duration, ping: F) -> Self {
        Heartbeat {
            interval: nanos(interval.max(Duration::from_millis(1))),
            misses: MISSES,
            jitter: 0,
            ping,
            answer: None,
            on_dead: OnDead::Close,
            alive: 0,
            pinged: 0,
            unanswered: 0,
            dead: false,
            messages: PhantomData,
        }
    }

    /// Sets the number of pings in a row that the peer may miss. The default is 2. With 0 the peer
    /// must answer the first ping within one interval.
    pub fn misses(mut self, misses: u32) -> Self {
        self.misses = misses;
        self
    }

    /// Counts only messages for which `is_answer` returns `true`, and does not pass them on. By
    /// default all bytes count, and all messages are passed on.
    pub fn answer(mut self, is_answer: fn(&In) -> bool) -> Self {
        self.answer = Some(is_answer);
        self
    }

    /// Sets the action for a dead peer. The default closes the channel.
    pub fn on_dead(mut self, action: OnDead) -> Self {
        self.on_dead = action;
        self
    }

    /// Postpones each ping by a random time below `window`, so that the pings of many channels do
    /// not coincide. The default is zero.
    pub fn jitter(mut self, window: Duration) -> Self {
        self.jitter = nanos(window);
        self
    }

    /// Returns the recommended interval for a peer that closes the channel after `idle` without
    /// bytes: one third, so that one message may be lost and one may be late.
    pub fn interval_for(idle: Duration) -> Duration {
        idle / 3
    }
}

impl<In: 'static, Out: 'static, F: FnMut() -> Out + 'static> Heartbeat<In, Out, F> {
    /// Requests a call at `until`, plus jitter.
    fn wake_at(&mut self, ctx: &mut StageContext<'_, Self>, until: u64) {
        let delay = until.saturating_add(ctx.jitter(self.jitter)).saturating_sub(nanos(ctx.now())).max(1);
        ctx.wake_after(Duration::from_nanos(delay));
    }

    fn die(&mut self, ctx: &mut StageContext<'_, Self>, since: u64) -> Result {
        self.dead = true;
        if self.on_dead == OnDead::Close {
            ctx.close_now();
        }
        let after = ctx.now().saturating_sub(Duration::from_nanos(since));
        Err(Error::TimedOut { operation: "an answer to the heartbeat", after })
    }
}

impl<In: 'static, Out: 'static, F: FnMut() -> Out + 'static> Stage for Heartbeat<In, Out, F> {
    type ReadIn = In;
    type ReadOut = In;
    type WriteIn = Out;
    type WriteOut = Out;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        self.alive = nanos(ctx.now());
        self.pinged = self.alive;
        self.wake_at(ctx, self.alive.saturating_add(self.interval));
        Ok(())
    }

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: In) -> Result<Option<In>> {
        if self.answer.is_some_and(|is_answer| is_answer(&message)) {
            self.alive = nanos(ctx.now());
            self.unanswered = 0;
            return Ok(None);
        }
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Out) -> Result {
        ctx.write(message)
    }

    fn encoded_len_hint(message: &Out, next: impl Fn(&Out) -> Option<usize>) -> Option<usize> {
        next(message)
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        let now = nanos(ctx.now());
        let (read, written) = (nanos(ctx.last_read()), nanos(ctx.last_written()));
        if self.answer.is_none() && read > self.alive {
            self.alive = read;
        }
        if self.alive >= self.pinged {
            self.unanswered = 0;
        }
        let is_blocked = ctx.pending_bytes() > 0;
        // The peer cannot answer a ping behind pending bytes. Instead, its kernel has to take
        // bytes.
        let patience = self.interval.saturating_mul(u64::from(self.misses).saturating_add(1));
        let stirred = self.alive.max(read).max(written);
        if is_blocked && now.saturating_sub(stirred) >= patience && !self.dead {
            self.wake_at(ctx, now.saturating_add(self.interval));
            return self.die(ctx, stirred);
        }
        let due = written.max(self.pinged).saturating_add(self.interval);
        if now < due || is_blocked {
            // The pending bytes may be sent long before the patience ends.
            let next = if is_blocked { now.saturating_add(self.interval) } else { due };
            self.wake_at(ctx, next);
            return Ok(());
        }
        let unanswered = self.unanswered;
        self.wake_at(ctx, now.saturating_add(self.interval));
        if unanswered > self.misses {
            if self.dead {
                return Ok(());
            }
            return self.die(ctx, self.alive);
        }
        self.dead = false;
        self.pinged = now;
        self.unanswered = unanswered + 1;
        let ping = (self.ping)();
        ctx.write(ping)
    }
}
