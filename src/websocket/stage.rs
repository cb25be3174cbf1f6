//! The stage: control frames, the close handshake and heartbeats.
//!
//! Invariants: no frame follows our Close frame. The peer's Close frame is echoed once. At most one
//! Pong waits outside of the outbound buffer; it is sent before any other message. The time of a
//! channel whose close handshake has begun is bounded: for sending by the `close_timeout` of the
//! channel, and from then on by that of the protocol.

use super::{
    close_hint::{CloseHint, close_hint},
    error::WebSocketError,
    message::{CloseCode, CloseFrame, Message},
    role::Role,
    settings::WebSocketSettings,
};
use crate::{
    clock::nanos,
    error::{Error, PeerError, Result},
    pipeline::{Stage, StageContext},
    stage::{Beat, Pulse, Traffic},
};
use bytes::Bytes;
use std::{sync::Arc, time::Duration};

/// A [`Stage`] that answers the control frames of a WebSocket connection.
///
/// Follows a [`WebSocketCodec`](super::WebSocketCodec) in the pipeline of an
/// [`Accepted`](super::Accepted) connection.
///
/// | the peer sends | the stage | the handler reads |
/// |---|---|---|
/// | a text or binary message | | the message |
/// | a Ping | sends a Pong | nothing |
/// | a Pong | | nothing |
/// | a Close frame | echoes it, unless it answers ours; then a server closes the channel | [`Message::Close`], the last message |
/// | invalid bytes | sends a Close frame with [`close_code`](WebSocketError::close_code), and closes the channel | the error, in `error` |
///
/// When an error of the handler closes the channel, the stage sends a Close frame with the code
/// 1011, or 1007 for [`PeerError::Malformed`]. In `error`, the handler may write another one.
///
/// While the outbound buffer is above its high water mark, only the last Ping is answered, when the
/// channel is writable again.
///
/// # Closing
/// A handler ends the connection with [`Message::Close`]. Afterwards the stage refuses messages
/// with [`Error::Closed`], ignores another Close, and drops inbound messages until the peer has
/// answered. Writes of handles fail with that error too. A peer that does not answer within
/// [`close_timeout`](super::WebSocketSettings::close_timeout) is disconnected, with the cause
/// [`TimedOut`](crate::channel::CloseCause::TimedOut). This time begins when the peer has accepted
/// all bytes. For these it has the same time, or that of a [closing
/// channel](crate::channel::ChannelOptions::close_timeout) if it is longer. The server ends the TCP
/// connection; a client waits for that, for the same time at most. A Close frame is accepted even
/// if the outbound buffer is full.
///
/// Closing the channel directly ([`Context::close`](crate::Context::close)) sends no Close frame.
/// The peer then reports code 1006. When the loop shuts down, or the connection has reached its
/// [maximum age](crate::channel::MaxConnectionAge), the stage sends code 1001; see
/// [`close_at_shutdown`](super::WebSocketSettings::close_at_shutdown).
///
/// A [reconnecting client](crate::ClientBootstrap::reconnect) obeys the codes 1012 (service
/// restart) and 1013 (try again later): it waits for the time that the reason states ("retry after
/// 12 s"), or for a random time from 5 to 30 s.
#[derive(Debug)]
pub struct WebSocketStage {
    settings: Arc<WebSocketSettings>,
    /// A Pong that waits until the channel is writable.
    pong: Option<Box<Bytes>>,
    /// The start of the close handshake, or the time of the peer's Close frame.
    closing_since: u64,
    pulse: Pulse,
    role: Role,
    phase: Phase,
    /// Whether the last error was a message that is malformed.
    is_malformed: bool,
}

/// The progress of the close handshake.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// Our Close frame was sent, and the peer's has not arrived.
    CloseSent,
    /// No further frame is sent or read.
    Closed,
}

impl WebSocketStage {
    pub(super) fn new(settings: Arc<WebSocketSettings>, role: Role) -> Self {
        WebSocketStage {
            settings,
            pong: None,
            closing_since: 0,
            pulse: Pulse::default(),
            role,
            phase: Phase::Open,
            is_malformed: false,
        }
    }

    /// Writes a Close frame, and limits the time until the channel is closed. It is accepted even
    /// if the buffer is full: it is short, and the last message.
    fn send_close(&mut self, ctx: &mut StageContext<'_, Self>, frame: Option<CloseFrame>) -> Result {
        ctx.write_beyond_limit(Message::Close(frame))?;
        self.phase = Phase::CloseSent;
        self.pong = None;
        // Their messages would be dropped without an error.
        ctx.refuse_handles();
        self.limit_closing(ctx);
        Ok(())
    }

    fn limit_closing(&mut self, ctx: &mut StageContext<'_, Self>) {
        self.closing_since = nanos(ctx.now());
        ctx.wake_after(self.settings.close_timeout);
    }

    /// Returns when the channel is closed. The peer has the time of a closing channel to accept the
    /// output, and needs all of it to answer the Close frame at its end.
    fn deadline(&self, ctx: &StageContext<'_, Self>) -> u64 {
        let answer = self.settings.close_timeout;
        if ctx.pending_bytes() > 0 {
            return self.closing_since.saturating_add(nanos(answer.max(ctx.close_timeout())));
        }
        self.closing_since.max(nanos(ctx.last_written())).saturating_add(nanos(answer))
    }

    /// Handles the peer's Close frame.
    fn close_received(&mut self, ctx: &mut StageContext<'_, Self>, frame: Option<&CloseFrame>) -> Result {
        if self.role == Role::Client {
            match frame.and_then(|frame| close_hint(frame, |most| ctx.jitter(most))) {
                Some(CloseHint::Stated(time)) => ctx.reconnect_after(time),
                Some(CloseHint::Drawn(time)) if ctx.reconnects_at_once() => ctx.reconnect_after(time),
                _ => {}
            }
        }
        let before = self.phase;
        let mut echoed = Ok(());
        if before == Phase::Open {
            let code = frame.map(|frame| CloseFrame { code: frame.code, reason: "".into() });
            echoed = self.send_close(ctx, code);
        }
        self.phase = Phase::Closed;
        match self.role {
            Role::Server => ctx.close(),
            // The server ends the connection.
            Role::Client if echoed.is_ok() => {
                if before == Phase::CloseSent {
                    self.limit_closing(ctx);
                }
            }
            Role::Client => ctx.close(),
        }
        echoed
    }

    /// Answers a Ping, or keeps the answer until the channel is writable.
    fn answer_ping(&mut self, ctx: &mut StageContext<'_, Self>, payload: Bytes) -> Result {
        if ctx.is_writable() {
            self.pong = None;
            return ctx.write(Message::Pong(payload));
        }
        // Copied, because it may wait for a long time, and would hold the memory of other messages.
        let payload = Bytes::copy_from_slice(&payload);
        match &mut self.pong {
            Some(pong) => **pong = payload,
            None => self.pong = Some(Box::new(payload)),
        }
        Ok(())
    }

    /// Writes the Pong that waits, and keeps it: it may be taken back with the message behind it.
    fn write_waiting_pong(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        match &self.pong {
            Some(pong) if self.phase == Phase::Open => ctx.write(Message::Pong(Bytes::clone(pong))),
            _ => Ok(()),
        }
    }

    /// Writes a message behind the Pong that waits.
    #[cold]
    fn write_behind_pong(&mut self, ctx: &mut StageContext<'_, Self>, message: Message) -> Result {
        self.write_waiting_pong(ctx)?;
        ctx.write(message)?;
        self.pong = None;
        Ok(())
    }

    fn beat(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        let Some(settings) = &self.settings.pulse() else { return Ok(()) };
        // A server that sends all the time needs to know that the peer still receives.
        let traffic = Traffic { pings_silence: true, ..Traffic::of(ctx, true) };
        let (beat, next) = self.pulse.beat(settings, traffic);
        let delay = next.saturating_add(ctx.jitter(settings.jitter)).saturating_sub(nanos(ctx.now()));
        ctx.wake_after(Duration::from_nanos(delay.max(1)));
        match beat {
            Beat::Wait => Ok(()),
            Beat::Ping => ctx.write(Message::Ping(Bytes::new())),
            Beat::Dead { after } => {
                let error = Error::timed_out("an answer to the ping", after);
                ctx.close_now_because(&error);
                Err(error)
            }
        }
    }
}

impl Stage for WebSocketStage {
    type ReadIn = Message;
    type ReadOut = Message;
    type WriteIn = Message;
    type WriteOut = Message;

    fn active(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        if let Some(settings) = &self.settings.pulse() {
            let now = nanos(ctx.now());
            let delay = self.pulse.start(settings, now) - now;
            ctx.wake_after(Duration::from_nanos(delay.saturating_add(ctx.jitter(settings.jitter))));
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut StageContext<'_, Self>, message: Message) -> Result<Option<Message>> {
        match message {
            Message::Text(_) | Message::Binary(_) => Ok((self.phase == Phase::Open).then_some(message)),
            Message::Ping(payload) if self.phase == Phase::Open => {
                self.answer_ping(ctx, payload).map(|()| None)
            }
            Message::Ping(_) | Message::Pong(_) => Ok(None),
            Message::Close(frame) => {
                if let Err(error) = self.close_received(ctx, frame.as_ref()) {
                    ctx.fail(error);
                }
                Ok(Some(Message::Close(frame)))
            }
        }
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Message) -> Result {
        match (self.phase, message) {
            (Phase::Open, Message::Close(frame)) => {
                ctx.encode_alone()?;
                self.send_close(ctx, frame)
            }
            (Phase::Open, message) if self.pong.is_some() => self.write_behind_pong(ctx, message),
            (Phase::Open, message) => ctx.write(message),
            (_, message) if message.is_control() => Ok(()),
            _ => Err(Error::Closed),
        }
    }

    fn encoded_len_hint(message: &Message, next: impl Fn(&Message) -> Option<usize>) -> Option<usize> {
        next(message)
    }

    /// A channel that is closing refuses messages, and a waiting Pong precedes them.
    fn encoding_key(&self) -> Option<u64> {
        (self.phase == Phase::Open && self.pong.is_none()).then_some(0)
    }

    fn writability_changed(&mut self, ctx: &mut StageContext<'_, Self>, writable: bool) -> Result {
        if writable && self.pong.is_some() {
            self.write_waiting_pong(ctx)?;
            self.pong = None;
        }
        Ok(())
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        if self.phase == Phase::Open {
            return self.beat(ctx);
        }
        match self.deadline(ctx).checked_sub(nanos(ctx.now())) {
            // Both Close frames were exchanged, and only the end of the connection is missing.
            None | Some(0) if self.phase == Phase::Closed && ctx.pending_bytes() == 0 => ctx.close(),
            None | Some(0) => {
                let after = Duration::from_nanos(nanos(ctx.now()).saturating_sub(self.closing_since));
                ctx.close_now_because(&Error::timed_out("the close handshake", after));
            }
            // The output may end earlier, which begins another time limit.
            Some(left) => ctx.wake_after(Duration::from_nanos(left).min(self.settings.close_timeout)),
        }
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        if self.phase != Phase::Open || !self.settings.close_at_shutdown {
            return Ok(());
        }
        let frame = CloseFrame { code: CloseCode::GOING_AWAY, reason: "".into() };
        self.send_close(ctx, Some(frame))
    }

    /// Tells the peer that the channel closes because of an error.
    fn failed(&mut self, ctx: &mut StageContext<'_, Self>) -> Result {
        if self.phase == Phase::Open {
            let code = if self.is_malformed { CloseCode::INVALID_PAYLOAD } else { CloseCode::INTERNAL_ERROR };
            self.send_close(ctx, Some(CloseFrame { code, reason: "".into() }))?;
            self.phase = Phase::Closed;
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut StageContext<'_, Self>, error: Error) -> Result {
        self.is_malformed = matches!(error, Error::Peer(PeerError::Malformed(_)));
        // A handler may fail with the error of a backend, for which this peer is not responsible.
        if let Some(cause) = WebSocketError::of_peer(&error, self.role) {
            if self.phase == Phase::Open {
                let frame = CloseFrame { code: cause.close_code(), reason: cause.to_string().into() };
                // The channel closes in any case.
                let _ = self.send_close(ctx, Some(frame));
            }
            self.phase = Phase::Closed;
            ctx.close();
        }
        Err(error)
    }
}
