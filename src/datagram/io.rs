//! The I/O of a datagram channel: receiving, sending queued datagrams, closing the socket.
//!
//! Invariants: a turn receives a bounded number of datagrams and sends a bounded number of queued
//! datagrams. If there may be more, the channel is scheduled for the next turn, because an
//! edge-triggered poll does not report it again. Runs on the channel's loop.

use super::{
    handler::DatagramEvent,
    queue::Outgoing,
    source::DatagramSource,
    state::{Sent, is_report},
};
use crate::{
    error::{Error, Result},
    event_loop::{ClosedChannel, Io},
    log_throttle::{BROKEN, STUCK, log_throttled},
    metrics::Metrics,
};
use log::Level;
use std::io::ErrorKind;

/// The number of consecutive failed receives after which the channel is closed. Reports about
/// earlier datagrams do not count. A socket that only fails would keep its loop busy forever.
const MAX_FAILURES: u32 = 16;

impl DatagramSource {
    pub(super) fn read(&mut self, io: &mut Io, metrics: &Metrics) {
        let in_full = io.has_room();
        let budget = if in_full { self.state.config.datagrams_per_turn } else { 1 };
        for n in 0..budget {
            if !self.state.is_open() {
                return;
            }
            if n > 0 && io.services.io_is_over() {
                break;
            }
            let Some(socket) = &self.state.socket else { return };
            let mut sender = None;
            let received = io.receive.read(&[], |room| {
                let (n, from) = socket.receive(room)?;
                sender = Some(from);
                Ok(n)
            });
            metrics.reads.add(1);
            match (received, sender) {
                (Ok(mut received), Some(from)) => {
                    self.failures = 0;
                    metrics.bytes_read.add(received.read as u64);
                    metrics.datagrams_received.add(1);
                    io.turn_bytes += received.read;
                    let datagram = std::mem::take(&mut received.data);
                    self.dispatch(io, metrics, DatagramEvent::Read(datagram, from));
                    drop(received);
                    io.receive.give_back();
                }
                (Ok(received), None) => {
                    drop(received);
                    io.receive.give_back();
                }
                (Err(e), _) if e.kind() == ErrorKind::WouldBlock => {
                    self.failures = 0;
                    metrics.reads_blocked.add(1);
                    return;
                }
                (Err(e), _) if e.kind() == ErrorKind::Interrupted => {}
                (Err(e), _) => {
                    self.failures += u32::from(!is_report(&e));
                    let error = Error::io("receiving a datagram", e);
                    if self.failures >= MAX_FAILURES {
                        let (services, id) = (&io.services, self.state.id);
                        log_throttled!(
                            services,
                            STUCK,
                            Level::Warn,
                            "datagram channel {id}: closing after repeated failures: {error:#}"
                        );
                        return self.close_with(io, metrics, error);
                    }
                    self.report_error(&mut io.services, metrics, error);
                    self.finish_call(io, metrics);
                }
            }
        }
        self.carry_over(io, in_full);
    }

    /// Sends queued datagrams until the queue is empty, the kernel accepts no more, or the budget
    /// of this turn is used up.
    pub(super) fn flush(&mut self, io: &mut Io, metrics: &Metrics) {
        for _ in 0..self.state.config.datagrams_per_turn {
            let Some(Outgoing { datagram, to, .. }) = self.state.queue.front() else { break };
            let (datagram, to) = (datagram.clone(), *to);
            match self.state.transmit(metrics, &datagram, to) {
                Sent::Blocked => {
                    self.state.blocked = true;
                    break;
                }
                Sent::Done => self.complete_front(Ok(())),
                Sent::Failed(e) => {
                    let error = Error::io("sending a datagram", e);
                    match self.state.queue.pop() {
                        Some(Outgoing { done: Some(done), .. }) => done.complete(Err(error)),
                        _ => self.report_error(&mut io.services, metrics, error),
                    }
                    if !self.state.is_open() {
                        break;
                    }
                }
            }
        }
        self.state.note_weight(&mut io.services.outbound);
        if !self.state.queue.is_empty() && !self.state.blocked {
            self.carry_over(io, false);
        }
        self.finish_call(io, metrics);
    }

    /// Removes the first datagram of the queue, and completes it with `result`.
    fn complete_front(&mut self, result: Result) {
        if let Some(Outgoing { done: Some(done), .. }) = self.state.queue.pop() {
            done.complete(result);
        }
    }

    /// Schedules the channel for the next turn, without an event.
    pub(super) fn carry_over(&mut self, io: &mut Io, in_full: bool) {
        if self.state.is_open() && !self.listed {
            self.listed = true;
            io.carry_over(self.state.id.key, in_full);
        }
    }

    /// Closes the socket, after sending as many queued datagrams as the kernel accepts without
    /// blocking. The handler's `inactive` is called later in the turn, never from here.
    pub(super) fn close_socket(&mut self, io: &mut Io, metrics: &Metrics) {
        while let Some(Outgoing { datagram, to, .. }) = self.state.queue.front() {
            let (datagram, to) = (datagram.clone(), *to);
            match self.state.transmit(metrics, &datagram, to) {
                Sent::Blocked => break,
                Sent::Done => self.complete_front(Ok(())),
                Sent::Failed(e) => {
                    metrics.datagrams_refused.add_shared(1);
                    self.complete_front(Err(Error::io("sending a datagram", e)));
                }
            }
        }
        let Some(mut socket) = self.state.socket.take() else { return };
        self.state.closing = true;
        if let Err(e) = io.selector.deregister(socket.source()) {
            let (services, id) = (&io.services, self.state.id);
            log_throttled!(
                services,
                BROKEN,
                Level::Debug,
                "datagram channel {id}: deregistering the socket: {e:#}"
            );
        }
        drop(socket);
        self.state.handle().set_closed();
        metrics.datagram_channels.set(metrics.datagram_channels.read().saturating_sub(1));
        let mut unsent = 0;
        while let Some(Outgoing { datagram, done, .. }) = self.state.queue.pop() {
            unsent += datagram.len();
            metrics.datagrams_refused.add_shared(1);
            if let Some(done) = done {
                done.complete(Err(Error::Closed));
            }
        }
        if unsent > 0 {
            metrics.closes_unsent.add(1);
            metrics.closes_unclean.add(1);
            metrics.bytes_unsent.add(unsent as u64);
        }
        self.state.note_weight(&mut io.services.outbound);
        self.state.tasks.cancel_all(&mut io.services, &Error::Closed);
        io.inactive.push(ClosedChannel::closed(self.state.id.key));
    }
}
