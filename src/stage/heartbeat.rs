//! Heartbeats: asks a quiet peer whether it is there, and ends a connection that does not answer.
//!
//! Always holds: a ping is sent only if the kernel took nothing of ours for a whole interval and nothing waits to be
//! sent; a peer is dead only if it gave no sign of life for as long as the pings that it was sent allow, or if for that
//! time neither bytes came nor the kernel took any of those that wait. So a full send queue neither holds the detection
//! up nor kills a peer that still takes bytes. Runs on the channel's loop, on the channel's own entry on the wheel.

use crate::{
    Error, Result,
    clock::nanos,
    pipeline::{Stage, StageContext},
};
use std::{marker::PhantomData, time::Duration};

/// Misses that are allowed, if nobody says otherwise.
const MISSES: u32 = 2;

/// A [`Stage`] that sends heartbeats and finds dead peers.
///
/// After every `interval` without bytes from us, the peer is sent what `ping` makes. A ping after which no answer comes
/// within the next interval is a miss; more than [`misses`](Heartbeat::misses) of them in a row, and the peer is dead: the
/// handler's [`error`](crate::Handler::error) is told [`Error::TimedOut`], and the channel closes at once. Every byte that
/// comes counts as an answer, unless [`answer`](Heartbeat::answer) says otherwise.
///
/// A ping is sent only when nothing else was: who writes all the time needs none, and finds a dead peer when its kernel
/// takes no more. While bytes wait because the peer does not read, no ping is added to them; then it is dead if neither
/// anything comes nor the kernel takes a byte for `(misses + 1) × interval`. All times are late by at most one tick of
/// the loop's wheel (100 ms unless set otherwise) plus the loop's lag.
///
/// The other end answers pings in its handler, or by [`IdleTimeouts`](crate::IdleTimeouts) sends something by itself; it
/// should do so more often than we ask: [`interval_for`](Heartbeat::interval_for).
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
    /// When the peer last gave a sign of life.
    alive: u64,
    /// When a ping was last written, and how many were since the last sign of life.
    asked: u64,
    unanswered: u32,
    dead: bool,
    messages: PhantomData<fn(In) -> Out>,
}

/// What becomes of the channel of a dead peer, once its handler was told.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnDead {
    /// It closes at once; what waits to be sent is dropped.
    #[default]
    Close,
    /// Nothing: the handler decides. It is told once, and again if the peer comes back to life and dies again.
    Report,
}

impl<In, Out, F: FnMut() -> Out> Heartbeat<In, Out, F> {
    /// Asks with what `ping` makes after each `interval` (1 ms or more) in which nothing was sent.
    pub fn new(interval: Duration, ping: F) -> Self {
        Heartbeat {
            interval: nanos(interval.max(Duration::from_millis(1))),
            misses: MISSES,
            jitter: 0,
            ping,
            answer: None,
            on_dead: OnDead::Close,
            alive: 0,
            asked: 0,
            unanswered: 0,
            dead: false,
            messages: PhantomData,
        }
    }

    /// Pings in a row that may be missed; 2 unless set otherwise. At 0 the peer has one interval to answer the first.
    pub fn misses(mut self, misses: u32) -> Self {
        self.misses = misses;
        self
    }

    /// Only messages of which this is true count as answers; they are not handed on. Without it all bytes do, and all
    /// messages are handed on.
    pub fn answer(mut self, is_answer: fn(&In) -> bool) -> Self {
        self.answer = Some(is_answer);
        self
    }

    /// What becomes of the channel of a dead peer: it closes, unless set otherwise.
    pub fn on_dead(mut self, what: OnDead) -> Self {
        self.on_dead = what;
        self
    }

    /// Postpones each ping by a random time below `window`, so that peers which came at the same moment are not all asked
    /// in the same millisecond; none unless it is set.
    pub fn jitter(mut self, window: Duration) -> Self {
        self.jitter = nanos(window);
        self
    }

    /// How often an end should send something whose peer closes after `idle` without bytes: a third of it, so that one
    /// may be lost and one late.
    pub fn interval_for(idle: Duration) -> Duration {
        idle / 3
    }
}

impl<In: 'static, Out: 'static, F: FnMut() -> Out + 'static> Heartbeat<In, Out, F> {
    /// Asks to be called when the next thing may be due.
    fn rest(&mut self, ctx: &mut StageContext<'_, Self>, until: u64) {
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
        self.asked = self.alive;
        self.rest(ctx, self.alive.saturating_add(self.interval));
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
        if self.alive >= self.asked {
            self.unanswered = 0;
        }
        let is_blocked = ctx.pending_bytes() > 0;
        // Of what waits, the peer's system has to take some: it cannot answer what it has not got.
        let patience = self.interval.saturating_mul(u64::from(self.misses).saturating_add(1));
        let stirred = self.alive.max(read).max(written);
        if is_blocked && now.saturating_sub(stirred) >= patience && !self.dead {
            self.rest(ctx, now.saturating_add(self.interval));
            return self.die(ctx, stirred);
        }
        let due = written.max(self.asked).saturating_add(self.interval);
        if now < due || is_blocked {
            // What waits may be gone long before the patience is.
            let next = if is_blocked { now.saturating_add(self.interval) } else { due };
            self.rest(ctx, next);
            return Ok(());
        }
        let unanswered = self.unanswered;
        self.rest(ctx, now.saturating_add(self.interval));
        if unanswered > self.misses {
            if self.dead {
                return Ok(());
            }
            return self.die(ctx, self.alive);
        }
        self.dead = false;
        self.asked = now;
        self.unanswered = unanswered + 1;
        let ping = (self.ping)();
        ctx.write(ping)
    }
}
