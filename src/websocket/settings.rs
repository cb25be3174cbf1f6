//! The settings of WebSocket endpoints.

use super::{WebSocketCodec, WebSocketStage, role::Role};
use crate::{
    Error, Pipeline, Result,
    clock::nanos,
    pipeline::{Framed, PipelineBuilder, Staged},
    stage::PulseSettings,
};
use std::{sync::Arc, time::Duration};

/// The codec and the stage of a WebSocket connection, which the program's stages and its handler
/// complete.
pub type WebSocketPipeline = PipelineBuilder<Staged<Framed<WebSocketCodec>, WebSocketStage>>;

/// The settings of a WebSocket server or client.
///
/// Cheap to clone: the clones share the settings. [`builder`](WebSocket::builder) lists them.
///
/// ```
/// use netwheel::{prelude::*, testing::EmbeddedChannel, websocket::{Message, WebSocket}};
///
/// struct Echo;
///
/// impl Handler for Echo {
///     type Read = Message;
///     type Write = Message;
///
///     fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
///         match message {
///             Message::Text(_) | Message::Binary(_) => ctx.write(message),
///             _ => Ok(()),
///         }
///     }
/// }
///
/// # fn main() -> Result {
/// let websocket = WebSocket::builder().max_message(64 * 1024).build()?;
/// let mut channel = EmbeddedChannel::new(websocket.server().handler(Echo));
/// // A text message "hi", masked with zeros.
/// channel.write_inbound(b"\x81\x82\0\0\0\0hi")?;
/// assert_eq!(channel.read_outbound(), &b"\x81\x02hi"[..]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct WebSocket(pub(super) Arc<Settings>);

/// Settings of all connections of an endpoint.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) max_message: usize,
    pub(super) max_fragments: u32,
    pub(super) close_timeout: Duration,
    pub(super) pulse: Option<PulseSettings>,
    pub(super) close_at_shutdown: bool,
}

/// A builder for a [`WebSocket`], from [`WebSocket::builder`].
#[derive(Debug, Clone)]
#[must_use]
pub struct WebSocketBuilder {
    settings: Settings,
    ping_interval: Option<Duration>,
    ping_jitter: Duration,
    ping_misses: u32,
}

impl WebSocket {
    /// Returns a builder with default settings.
    pub fn builder() -> WebSocketBuilder {
        WebSocketBuilder {
            settings: Settings {
                max_message: 1024 * 1024,
                max_fragments: 1024,
                close_timeout: Duration::from_secs(10),
                pulse: None,
                close_at_shutdown: true,
            },
            ping_interval: Some(Duration::from_secs(30)),
            ping_jitter: Duration::ZERO,
            ping_misses: 2,
        }
    }

    /// Starts the pipeline of a server's connection after the handshake.
    pub fn server(&self) -> WebSocketPipeline {
        self.pipeline(Role::Server)
    }

    /// Starts the pipeline of a client's connection after the handshake.
    pub fn client(&self) -> WebSocketPipeline {
        self.pipeline(Role::Client)
    }

    fn pipeline(&self, role: Role) -> WebSocketPipeline {
        let codec = WebSocketCodec::new(self.0.clone(), role);
        Pipeline::codec(codec).stage(WebSocketStage::new(self.0.clone(), role))
    }
}

impl WebSocketBuilder {
    /// Sets the length of the longest inbound message in bytes, at least 1. The default is 1 MiB.
    ///
    /// A longer message is an error with the close code 1009, reported at the header of the frame
    /// that exceeds the limit. The connection uses memory for the bytes that have arrived, not for
    /// the length that the peer announces.
    pub fn max_message(mut self, bytes: usize) -> Self {
        self.settings.max_message = bytes;
        self
    }

    /// Sets the maximum number of fragments of an inbound message, at least 1. The default is 1024.
    ///
    /// Fragments may be empty, so that `max_message` does not bound their number.
    pub fn max_fragments(mut self, fragments: u32) -> Self {
        self.settings.max_fragments = fragments;
        self
    }

    /// Sets the time that the peer has to answer a Close frame, above zero. The default is 10 s.
    ///
    /// After that time the channel is closed. On a client, it is also the time that the server has
    /// to close the connection after both Close frames.
    pub fn close_timeout(mut self, time: Duration) -> Self {
        self.settings.close_timeout = time;
        self
    }

    /// Sets the interval after which a Ping is sent if no bytes were sent, or `None` for no Pings.
    /// The default is 30 s.
    ///
    /// Proxies close idle connections, often after one minute. Every incoming byte counts as an
    /// answer. [`Heartbeat`](crate::stage::Heartbeat) describes the times.
    pub fn ping_interval(mut self, interval: impl Into<Option<Duration>>) -> Self {
        self.ping_interval = interval.into();
        self
    }

    /// Sets the number of Pings in a row that the peer may leave unanswered. The default is 2.
    ///
    /// Beyond that number, the handler's [`error`](crate::Handler::error) receives
    /// [`Error::TimedOut`], and the channel closes.
    pub fn ping_misses(mut self, misses: u32) -> Self {
        self.ping_misses = misses;
        self
    }

    /// Postpones each Ping by a random time below `window`, so that the Pings of many channels do
    /// not coincide. The default is zero.
    pub fn ping_jitter(mut self, window: Duration) -> Self {
        self.ping_jitter = window;
        self
    }

    /// Sets whether the stage sends a Close frame with the code 1001 when the event loop shuts
    /// down. The default is `true`.
    ///
    /// The Close frame precedes the handler's [`shutdown`](crate::Handler::shutdown), whose
    /// messages are then refused. Turn this off if the handler writes a last message there; it can
    /// write a [`Message::Close`](super::Message::Close) behind that message.
    pub fn close_at_shutdown(mut self, yes: bool) -> Self {
        self.settings.close_at_shutdown = yes;
        self
    }

    /// Returns the settings.
    ///
    /// # Errors
    /// [`Error::Setting`] for a setting that is out of its range.
    pub fn build(self) -> Result<WebSocket> {
        let WebSocketBuilder { mut settings, ping_interval, ping_jitter, ping_misses } = self;
        if settings.max_message == 0 {
            return Err(Error::setting("max_message", 0, "at least 1"));
        }
        if settings.max_fragments == 0 {
            return Err(Error::setting("max_fragments", 0, "at least 1"));
        }
        if settings.close_timeout.is_zero() {
            return Err(Error::setting("close_timeout", "0", "above zero"));
        }
        if let Some(interval) = ping_interval {
            if interval < Duration::from_millis(1) {
                return Err(Error::setting("ping_interval", format!("{interval:?}"), "at least 1 ms"));
            }
            settings.pulse = Some(PulseSettings {
                interval: nanos(interval),
                misses: ping_misses,
                jitter: nanos(ping_jitter),
            });
        }
        Ok(WebSocket(Arc::new(settings)))
    }
}
