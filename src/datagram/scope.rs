//! The operations on a datagram channel while one of its callbacks or tasks runs.
//!
//! Runs on the channel's loop, and borrows the channel for the length of one callback.

use super::state::DatagramState;
use crate::{
    Result,
    channel::{LoopServices, TaskKey},
    error::SendError,
    id::ChannelId,
    metrics::Metrics,
    transport::MulticastGroup,
};
use bytes::Bytes;
use std::{net::SocketAddr, time::Instant};

/// A datagram channel during one of its callbacks: send, connect, join, close.
///
/// Nothing that is asked for here calls back into the handler before the running callback has returned.
pub struct DatagramScope<'a> {
    pub(super) state: &'a mut DatagramState,
    pub(super) services: &'a mut LoopServices,
    pub(super) metrics: &'a Metrics,
}

/// A task from another thread.
pub(crate) type ScopeTask = Box<dyn FnOnce(&mut DatagramScope<'_>) -> Result + Send>;

impl DatagramScope<'_> {
    /// Sends a datagram to `to`, now. If the kernel takes no more for the moment it waits, behind others that do, for as
    /// long as there is room.
    ///
    /// That the kernel took it does not mean that it arrives.
    ///
    /// # Errors
    /// The datagram comes back, and nothing else is concerned: [`Io`](crate::Error::Io) if the system refuses it (the
    /// address cannot be reached, it is longer than 65,507 bytes); [`Full`](crate::Error::Full) if `max_outbound` bytes
    /// wait, or as much as all channels of the loop or of the group may have; [`Closed`](crate::Error::Closed) if the
    /// channel is closing.
    pub fn send_to(&mut self, datagram: impl Into<Bytes>, to: SocketAddr) -> Result<(), SendError<Bytes>> {
        let outbound = &mut self.services.outbound;
        let sent = self.state.send(outbound, self.metrics, datagram.into(), Some(to), None);
        sent.map_err(|(refused, _)| refused)
    }

    /// Returns whether a line about `topic` may be logged now. A rate limit for log lines that a
    /// peer can cause.
    ///
    /// Each loop allows 10 lines of each topic in 10 seconds, for all of its channels together. It
    /// counts further lines ([`log_lines_suppressed`](crate::LoopMetrics::log_lines_suppressed)).
    /// At the end of the 10 seconds it logs their number at level `warn`. See
    /// [`Scope::may_log`](crate::Scope::may_log).
    pub fn may_log(&self, topic: &'static str) -> bool {
        self.services.may_log(topic)
    }

    /// Sends a datagram to the peer of a connected channel, as [`send_to`](DatagramScope::send_to) does.
    ///
    /// # Errors
    /// As of `send_to`; [`NotConnected`](crate::Error::NotConnected) if there is no peer.
    pub fn send(&mut self, datagram: impl Into<Bytes>) -> Result<(), SendError<Bytes>> {
        let outbound = &mut self.services.outbound;
        let sent = self.state.send(outbound, self.metrics, datagram.into(), None, None);
        sent.map_err(|(refused, _)| refused)
    }

    /// Gives the channel a peer: the kernel delivers datagrams of this peer only (those that are there already still
    /// come), and tells if nobody listens at the other end. Instead of a peer that it has already, if so; what waits for
    /// that one still goes there (on systems that do not send elsewhere from a connected socket, like macOS, it fails, and
    /// `error` is told).
    ///
    /// # Errors
    /// What the system refuses.
    pub fn connect(&mut self, peer: SocketAddr) -> Result {
        self.state.connect(peer)
    }

    /// Takes the peer back: datagrams of everybody come again; what waits for it still goes there. Nothing happens if there
    /// is none. Linux and Android only.
    ///
    /// # Errors
    /// What the system refuses; `Unsupported` on others.
    pub fn disconnect(&mut self) -> Result {
        self.state.disconnect()
    }

    /// Joins a multicast group: what is sent to it, and to this channel's port, comes here.
    ///
    /// # Errors
    /// If it is no group, or the system refuses.
    pub fn join(&mut self, group: MulticastGroup) -> Result {
        self.state.socket.as_ref().map_or(Err(crate::Error::Closed), |socket| socket.join(&group))
    }

    /// Leaves a multicast group.
    ///
    /// # Errors
    /// If it is no group, was not joined, or the system refuses.
    pub fn leave(&mut self, group: MulticastGroup) -> Result {
        self.state.socket.as_ref().map_or(Err(crate::Error::Closed), |socket| socket.leave(&group))
    }

    /// Closes the channel as soon as this callback returns. What waits is sent as far as the kernel takes it at once; the
    /// rest is dropped, and counted (`closes_unsent`). `inactive` is called later in the turn.
    pub fn close(&mut self) {
        self.state.closing = true;
        self.state.handle().set_closing();
    }

    /// The identity of the channel.
    pub fn id(&self) -> ChannelId {
        self.state.id
    }

    /// The address of this end, as it is now: a channel that has a peer has the address by which that is reached.
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state.socket.as_ref().and_then(|socket| socket.local_address().ok())
    }

    /// The peer, if it has one.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state.peer
    }

    /// Whether the channel sends.
    pub fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// Whether what is sent goes to the kernel at once: nothing waits.
    pub fn is_writable(&self) -> bool {
        self.is_open() && self.state.queue.is_empty()
    }

    /// What waits for the kernel: bytes, and 96 for each datagram.
    pub fn pending_bytes(&self) -> usize {
        self.state.queue.weight()
    }

    /// The time of this turn, by the loop's clock.
    pub fn now(&self) -> Instant {
        self.services.time.instant(self.services.now)
    }

    /// Cancels a scheduled task or a timeout, which is dropped at once; false if it has run, was cancelled, or is running.
    pub fn cancel(&mut self, task: TaskKey) -> bool {
        self.state.tasks.cancel(self.services, task)
    }
}
