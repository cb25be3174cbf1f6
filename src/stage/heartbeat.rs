//! Heartbeats: pings a quiet peer, and closes a connection that does not answer.
//!
//! Invariants: a ping is sent only if the kernel has taken no bytes of the channel for a whole
//! interval and no bytes are pending. A peer is dead only if it has not answered the allowed number
//! of pings. It is also dead if, for the same time, no bytes were read and the kernel took none of
//! the pending bytes. So a full send queue does not delay the detection, and does not close a
//! channel whose peer still takes bytes. Runs on the channel's loop, with the channel's own entry
//! on the wheel.

use super::pulse::{Beat, Pulse, PulseSettings, Traffic};
use crate::{
    clock::nanos,
    error::{Error, Result},
    pipeline::{Stage, StageContext},
};
use std::{marker::PhantomData, time::Duration};

/// The default number of missed pings in a row.
const MISSES: u32 = 2;

/// A [`Stage`] that sends heartbeats and detects dead peers.
///
/// After each `interval` without outgoing bytes, it sends the message that `ping` returns. A ping
/// without an answer within the next interval is a miss. After more than
/// [`max_misses`](Heartbeat::max_misses) in a row the peer is dead: the handler's
/// [`error`](crate::Handler::error) receives [`Error::TimedOut`], and the channel closes
/// immediately. Every incoming byte counts as an answer, unless [`answer`](Heartbeat::answer)
/// selects the messages that count.
///
/// A program that writes all the time sends no pings. While bytes are pending because the peer does
/// not read, no pings are added. The peer is then dead if nothing is read and the kernel takes no
/// byte for `(max_misses + 1) × interval`. All times are late by at most one tick of the loop's
/// wheel (100 ms by default) plus the loop's lag.
///
/// While reading is paused, also by a [traffic limit](crate::traffic::TrafficLimits), unread bytes
/// count as an answer. A peer that has ended its stream need not answer pings. It is dead only if
/// the kernel takes no pending byte for that time, or for up to one `interval` more. After
/// [`shutdown_write`](crate::Context::shutdown_write), this stage sends no pings, so it does not
/// detect a dead peer.
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
///     .max_misses(2);
/// let pipeline = Pipeline::codec(Line::new()).stage(heartbeat).handler(Chat);
/// ```
pub struct Heartbeat<In, Out, F> {
    settings: PulseSettings,
    pulse: Pulse,
    ping: F,
    answer: Option<fn(&In) -> bool>,
    on_dead: OnDead,
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
        let interval = nanos(interval.max(Duration::from_millis(1)));
        Heartbeat {
            settings: PulseSettings { interval, misses: MISSES, jitter: 0 },
            pulse: Pulse::default(),
            ping,
            answer: None,
            on_dead: OnDead::Close,
            messages: PhantomData,
        }
    }

    /// Sets the number of pings in a row that the peer may miss. The default is 2. With 0 the peer
    /// must answer the first ping within one interval.
    pub fn max_misses(mut self, misses: u32) -> Self {
        self.settings.misses = misses;
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
        self.settings.jitter = nanos(window);
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
        let delay =
            until.saturating_add(ctx.jitter(self.settings.jitter)).saturating_sub(nanos(ctx.now())).max(1);
        ctx.wake_after(Duration::from_nanos(delay));
    }
}

impl<In: 'static, Out: 'static, F: FnMut() -> Out + 'static> Stage for Heartbeat<In, Out, F> {
    type ReadIn = In;
    type ReadOut = In;
    type WriteIn = Out;
    type WriteOut = Out;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        let first = self.pulse.start(&self.settings, nanos(ctx.now()));
        self.wake_at(ctx, first);
        Ok(())
    }

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: In) -> Result<Option<In>> {
        if self.answer.is_some_and(|is_answer| is_answer(&message)) {
            self.pulse.answer(nanos(ctx.now()));
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
        let traffic = Traffic::of(ctx, self.answer.is_none());
        let (beat, next) = self.pulse.beat(&self.settings, traffic);
        self.wake_at(ctx, next);
        match beat {
            Beat::Wait => Ok(()),
            Beat::Ping => {
                let ping = (self.ping)();
                ctx.write(ping)
            }
            Beat::Dead { after } => {
                let error = Error::TimedOut { operation: "an answer to the heartbeat", after };
                if self.on_dead == OnDead::Close {
                    ctx.close_now_because(&error);
                }
                Err(error)
            }
        }
    }
}
