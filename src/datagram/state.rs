//! A datagram channel without its handler: the socket and the queued datagrams.
//!
//! Invariants: datagrams leave in the order in which they were sent. An error concerns one datagram
//! only. A kernel report about an earlier datagram is kept for the handler, and does not fail a
//! later one. A queued datagram goes to the address that it was sent to. Runs on the channel's
//! loop.

use super::{
    config::DatagramConfig,
    queue::{Outgoing, SendQueue},
    shared::{DatagramGuard, DatagramShared},
};
use crate::{
    channel::{Confirmation, LoopServices, OutboundBudget, Periodic, TaskKey, TaskTime, Tasks},
    error::{Error, Result, SendError},
    id::ChannelId,
    metrics::Metrics,
    transport::UdpSocket,
};
use bytes::Bytes;
use std::{
    any::Any,
    io::{self, ErrorKind},
    net::SocketAddr,
};

pub(crate) struct DatagramState {
    pub(super) id: ChannelId,
    /// `None` once the socket is closed and only `inactive` remains to be called.
    pub(super) socket: Option<UdpSocket>,
    pub(super) config: DatagramConfig,
    pub(super) queue: SendQueue,
    /// The weight of the queue, as last reported to the loop.
    pub(super) counted: usize,
    pub(super) tasks: Tasks,
    pub(super) shared: DatagramGuard,
    pub(super) peer: Option<SocketAddr>,
    /// A kernel report about an earlier datagram, not passed to the handler yet.
    pub(super) reported: Option<Error>,
    /// Whether a task was dropped because the limit of tasks was reached.
    pub(super) task_refused: bool,
    pub(super) closing: bool,
    /// Whether the kernel accepts no more datagrams until the next event.
    pub(super) blocked: bool,
}

/// The result of passing a datagram to the kernel.
pub(super) enum Sent {
    Done,
    Blocked,
    Failed(io::Error),
}

impl DatagramState {
    pub(super) fn is_open(&self) -> bool {
        self.socket.is_some() && !self.closing
    }

    pub(super) fn handle(&self) -> &std::sync::Arc<DatagramShared> {
        &self.shared.0
    }

    /// Sends a datagram now. If others are queued or the kernel accepts no more, queues it.
    ///
    /// # Errors
    /// The datagram and `done`, with the error of the datagram or the channel. `done` is not
    /// completed.
    pub(super) fn send(
        &mut self,
        outbound: &mut OutboundBudget,
        metrics: &Metrics,
        datagram: Bytes,
        to: Option<SocketAddr>,
        done: Option<Confirmation>,
    ) -> Result<(), (SendError<Bytes>, Option<Confirmation>)> {
        let refuse = |value, reason, done| Err((SendError::new(value, reason), done));
        if !self.is_open() {
            return refuse(datagram, Error::Closed, done);
        }
        if to.is_none() && self.peer.is_none() {
            return refuse(datagram, Error::NotConnected, done);
        }
        if self.queue.is_empty() {
            match self.transmit(metrics, &datagram, to) {
                Sent::Done => {
                    if let Some(done) = done {
                        done.complete(Ok(()));
                    }
                    return Ok(());
                }
                Sent::Failed(e) => return refuse(datagram, Error::io("sending a datagram", e), done),
                Sent::Blocked => self.blocked = true,
            }
        }
        let (limit, bound) = outbound.allowed(self.queue.weight(), self.config.max_outbound, 0);
        let pushed = self.queue.push(Outgoing { datagram, to, done }, limit);
        self.note_weight(outbound);
        pushed.or_else(|Outgoing { datagram, done, .. }| {
            metrics.datagrams_refused.add_shared(1);
            refuse(datagram, bound.full(limit), done)
        })
    }

    /// Passes one datagram to the kernel.
    pub(super) fn transmit(&mut self, metrics: &Metrics, datagram: &[u8], to: Option<SocketAddr>) -> Sent {
        let Some(socket) = &self.socket else { return Sent::Failed(ErrorKind::NotConnected.into()) };
        let (sent, report) = send_past_report(|| {
            metrics.writes.add(1);
            socket.send(datagram, to)
        });
        if let Some(e) = report {
            self.reported = Some(Error::io("sending an earlier datagram", e));
        }
        match sent {
            Ok(n) => {
                metrics.bytes_written.add(n as u64);
                metrics.datagrams_sent.add(1);
                Sent::Done
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                metrics.writes_blocked.add(1);
                Sent::Blocked
            }
            Err(e) => Sent::Failed(e),
        }
    }

    /// Reports the weight of the queue to the loop and to the handles.
    pub(super) fn note_weight(&mut self, outbound: &mut OutboundBudget) {
        outbound.recount(&mut self.counted, self.queue.weight());
        self.handle().set_pending(self.queue.weight());
    }

    pub(super) fn connect(&mut self, peer: SocketAddr) -> Result {
        self.socket.as_ref().filter(|_| !self.closing).ok_or(Error::Closed)?.connect(peer)?;
        self.replace_peer(Some(peer));
        Ok(())
    }

    pub(super) fn disconnect(&mut self) -> Result {
        let socket = self.socket.as_ref().filter(|_| !self.closing).ok_or(Error::Closed)?;
        if self.peer.is_some() {
            socket.disconnect()?;
            self.replace_peer(None);
        }
        Ok(())
    }

    fn replace_peer(&mut self, peer: Option<SocketAddr>) {
        if let Some(before) = std::mem::replace(&mut self.peer, peer) {
            self.queue.keep_for(before);
        }
    }

    /// Schedules a task. Beyond the limit the task is dropped and the handler notified later.
    pub(super) fn schedule(
        &mut self,
        services: &mut LoopServices,
        when: TaskTime,
        task: Box<dyn Any>,
    ) -> TaskKey {
        let limit = self.config.max_scheduled_tasks;
        self.tasks.arm(self.id.key, limit, services, when, task).unwrap_or_else(|| {
            self.task_refused = true;
            TaskKey::NONE
        })
    }

    /// Schedules a task that repeats.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closing, [`Error::Setting`] if `periodic` is out of
    /// range, or [`Error::Full`] if the limit of tasks is reached. `task` is dropped.
    pub(super) fn schedule_periodic(
        &mut self,
        services: &mut LoopServices,
        periodic: Periodic,
        task: Box<dyn Any>,
    ) -> Result<TaskKey> {
        let (limit, open) = (self.config.max_scheduled_tasks, self.is_open());
        self.tasks.arm_periodic(self.id.key, limit, services, periodic, open, task)
    }
}

/// Calls `send`, and once more if it fails with an error that may be a report about an earlier
/// datagram. The kernel has not processed this one then (udp(7), ICMP errors of a connected
/// socket). Returns the result, and the report.
///
/// If both calls fail with the same error, it is about this datagram. An example is a missing
/// route.
fn send_past_report(mut send: impl FnMut() -> io::Result<usize>) -> (io::Result<usize>, Option<io::Error>) {
    let mut send = || loop {
        match send() {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    };
    match send() {
        Err(first) if is_report(&first) => match send() {
            Err(e) if (e.kind(), e.raw_os_error()) == (first.kind(), first.raw_os_error()) => (Err(e), None),
            result => (result, Some(first)),
        },
        result => (result, None),
    }
}

/// Returns whether the error may be an ICMP report about an earlier datagram.
pub(super) fn is_report(e: &io::Error) -> bool {
    use ErrorKind::{
        ConnectionRefused, ConnectionReset, HostUnreachable, NetworkUnreachable, PermissionDenied,
    };
    matches!(
        e.kind(),
        ConnectionRefused | ConnectionReset | HostUnreachable | NetworkUnreachable | PermissionDenied
    ) || is_unnamed_report(e)
}

/// Returns whether the error is a report that has no [`ErrorKind`]: a bad header, a protocol, host
/// or route that does not exist, or a datagram that is longer than the MTU of its path.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn is_unnamed_report(e: &io::Error) -> bool {
    use rustix::io::Errno;
    const REPORTS: [Errno; 5] =
        [Errno::PROTO, Errno::NOPROTOOPT, Errno::HOSTDOWN, Errno::NONET, Errno::MSGSIZE];
    REPORTS.iter().any(|errno| Some(errno.raw_os_error()) == e.raw_os_error())
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn is_unnamed_report(_: &io::Error) -> bool {
    false
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    /// Sends with the given results, one after the other.
    fn send(results: &[Result<usize, ErrorKind>]) -> (Result<usize, ErrorKind>, Option<ErrorKind>, usize) {
        let mut calls = 0;
        let (sent, report) = send_past_report(|| {
            calls += 1;
            results[calls - 1].map_err(io::Error::from)
        });
        (sent.map_err(|e| e.kind()), report.map(|e| e.kind()), calls)
    }

    #[test]
    fn a_report_about_an_earlier_datagram_does_not_cost_the_next_one() {
        use ErrorKind::{
            ConnectionRefused, HostUnreachable, Interrupted, InvalidInput, NetworkUnreachable,
            PermissionDenied, WouldBlock,
        };
        for report in [ConnectionRefused, HostUnreachable, NetworkUnreachable, PermissionDenied] {
            assert_eq!(send(&[Err(report), Ok(3)]), (Ok(3), Some(report), 2));
            assert_eq!(
                send(&[Err(Interrupted), Err(report), Err(Interrupted), Ok(3)]),
                (Ok(3), Some(report), 4)
            );
            assert_eq!(send(&[Err(report), Err(WouldBlock)]), (Err(WouldBlock), Some(report), 2));
            assert_eq!(send(&[Err(report), Err(InvalidInput)]), (Err(InvalidInput), Some(report), 2));
            assert_eq!(send(&[Err(report), Err(report)]), (Err(report), None, 2), "its own error");
        }
        assert_eq!(send(&[Err(InvalidInput)]), (Err(InvalidInput), None, 1));
        assert_eq!(send(&[Ok(3)]), (Ok(3), None, 1));
    }

    /// The errors that `icmp_err_convert` and `icmpv6_err_convert` of Linux make of ICMP messages.
    #[cfg(target_os = "linux")]
    #[test]
    fn all_errors_that_linux_makes_of_icmp_messages_are_reports() {
        use rustix::io::Errno;
        for errno in [
            Errno::ACCESS,
            Errno::CONNREFUSED,
            Errno::HOSTDOWN,
            Errno::HOSTUNREACH,
            Errno::MSGSIZE,
            Errno::NETUNREACH,
            Errno::NONET,
            Errno::NOPROTOOPT,
            Errno::PROTO,
        ] {
            assert!(is_report(&errno.into()), "{errno:?}");
        }
        for errno in [Errno::AGAIN, Errno::BADF, Errno::INVAL, Errno::NOBUFS, Errno::NOMEM] {
            assert!(!is_report(&errno.into()), "{errno:?}");
        }
    }
}
