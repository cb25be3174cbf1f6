//! The limits and times of WebSocket connections.

use crate::{
    clock::nanos,
    error::{Error, Result},
    settings::settings,
    stage::PulseSettings,
};
use std::time::Duration;

settings! {
    /// The limits and times of a WebSocket connection. A value out of range is reported by
    /// [`WebSocketServer::with`](super::WebSocketServer::with) and
    /// [`WebSocketClient::with`](super::WebSocketClient::with).
    ///
    /// Times are late by at most one tick of the loop's wheel (100 ms by default) plus the loop's
    /// lag.
    pub struct WebSocketSettings {
        /// Sets the length of the longest inbound message in bytes.
        ///
        /// The connection uses memory for the bytes that have arrived, not for the length that the
        /// peer announces. The limit applies to a compressed message after decompression. Before
        /// that, it may be longer by an eighth and 256 bytes, because incompressible data becomes
        /// longer.
        max_message(bytes: usize) = 1024 * 1024, "1 MiB", range 1.. => "1 byte or more",
            reached "Close with 1009, at the header of the frame that exceeds it";
        /// Sets the largest number of fragments of an inbound message. Fragments may be empty, so
        /// `max_message` does not bound their number.
        max_fragments(fragments: u32) = 1024, "1024", range 1.. => "1 or more",
            reached "Close with 1009";
        /// Sets the time that the peer has to answer a Close frame, from when it has accepted all
        /// bytes up to that frame. For these bytes it has the same time, or
        /// [`ChannelOptions::close_timeout`](crate::channel::ChannelOptions::close_timeout) if that
        /// is longer. On a client, it is also the time that the server has to end the connection
        /// after both Close frames.
        close_timeout(limit: Duration) = Duration::from_secs(10), "10 s", always "above 0 s",
            reached "the channel is closed";
        /// Sets the interval after which a Ping is sent if no bytes were sent, or none were
        /// received. Zero turns Pings off.
        ///
        /// Proxies close idle connections, often after one minute. Every incoming byte counts as an
        /// answer. [`Heartbeat`](crate::stage::Heartbeat) describes the times.
        ping_interval(interval: Duration) = Duration::from_secs(30), "30 s",
            always "0 s, or 1 ms and more", reached "a Ping is sent";
        /// Sets the number of Pings in a row that the peer may leave unanswered.
        max_ping_misses(misses: u32) = 2, "2", range 0.. => "0 or more",
            reached "`Error::TimedOut`, and the channel is closed";
        /// Postpones each Ping by a random time below this one, so that the Pings of many channels
        /// do not coincide.
        ping_jitter(window: Duration) = Duration::ZERO, "0 ns";
        /// Sets whether a Close frame with the code 1001 is sent when the event loop shuts down.
        ///
        /// It precedes the handler's [`shutdown`](crate::Handler::shutdown), whose messages are
        /// then refused. Turn this off if the handler writes a last message there, followed by
        /// [`Message::Close`](super::Message::Close).
        close_at_shutdown(yes: bool) = true, "on";
    }
}

impl WebSocketSettings {
    /// Returns these settings if all are in range.
    pub(super) fn checked(self) -> Result<Self> {
        self.check()?;
        if self.close_timeout.is_zero() {
            return Err(Error::setting("close_timeout", "0 s", "above 0 s"));
        }
        if !self.ping_interval.is_zero() && self.ping_interval < Duration::from_millis(1) {
            let interval = format!("{:?}", self.ping_interval);
            return Err(Error::setting("ping_interval", interval, "0 s, or 1 ms and more"));
        }
        Ok(self)
    }

    /// Returns the settings of the Pings, if they are on.
    pub(super) fn pulse(&self) -> Option<PulseSettings> {
        (!self.ping_interval.is_zero()).then(|| PulseSettings {
            interval: nanos(self.ping_interval),
            misses: self.max_ping_misses,
            jitter: nanos(self.ping_jitter),
        })
    }
}
