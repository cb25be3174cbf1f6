//! A datagram channel on its loop: reading, sending, calling the handler, the end.
//!
//! Always holds: a turn reads a bounded number of datagrams and sends a bounded number of those that wait; what is left is
//! remembered, since an edge-triggered poll will not tell again; a callback is never called from within another; an error
//! in one is told to the handler, a panic closes the channel; `inactive` is the last call and is made if and only if
//! `active` was. Runs on the loop's thread.

use super::{
    config::DatagramConfig,
    context::DatagramScope,
    handle::{DatagramGuard, DatagramMail},
    handler::{DatagramEvent, DatagramLinks},
    queue::{Outgoing, SendQueue},
    state::{DatagramState, Sent, is_report},
};
use crate::{
    Error, Result,
    channel::{LoopServices, Timers, driver::Ready},
    error::{drop_guarded, panic_message},
    event_loop::{Ended, Io},
    id::{ChannelId, Key},
    log_throttle::{BROKEN, CHANNEL_ERRORS, PANICS, STUCK, log_throttled},
    metrics::Metrics,
    resource::CHANNEL_TASKS,
    transport::UdpSocket,
};
use log::Level;
use std::{
    io::ErrorKind,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// Receives that fail one after the other, and not because of an earlier datagram, before the channel is given up: a socket
/// that does nothing but fail would keep its loop busy for ever.
const MAX_FAILURES: u32 = 16;

/// A datagram channel on its way to its loop.
pub(crate) struct Opening {
    pub(crate) socket: UdpSocket,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) config: DatagramConfig,
    /// Makes the handler, on the loop.
    pub(crate) handler: Box<dyn FnOnce() -> Box<dyn DatagramLinks> + Send>,
    pub(crate) shared: DatagramGuard,
}

pub(crate) struct DatagramSlot {
    pub(crate) state: DatagramState,
    handler: Box<dyn DatagramLinks>,
    active: bool,
    /// It is to be looked at in the next turn without an event.
    listed: bool,
    /// What the handler was told last.
    told_writable: bool,
    failures: u32,
}

impl DatagramSlot {
    /// Makes the handler; a panic in that is an error.
    pub(crate) fn new(id: ChannelId, opening: Opening) -> Result<Self> {
        let Opening { socket, peer, config, handler, shared } = opening;
        let handler = catch_unwind(AssertUnwindSafe(handler));
        let handler = handler.map_err(|panic| Error::Panicked(panic_message(panic)))?;
        let state = DatagramState {
            id,
            socket: Some(socket),
            config,
            queue: SendQueue::default(),
            counted: 0,
            timers: Timers::default(),
            shared,
            peer,
            reported: None,
            task_refused: false,
            closing: false,
            blocked: false,
        };
        Ok(DatagramSlot { state, handler, active: false, listed: false, told_writable: true, failures: 0 })
    }

    pub(crate) fn key(&self) -> Key {
        self.state.id.key
    }

    /// Whether nobody has closed it.
    pub(crate) fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// What the poll watches, while it is open.
    pub(crate) fn source(&mut self) -> Option<&mut dyn mio::event::Source> {
        self.state.socket.as_mut().map(UdpSocket::source)
    }

    // ---- what the loop calls -------------------------------------------------------------------------

    pub(crate) fn handle_active(&mut self, io: &mut Io, metrics: &Metrics) {
        self.active = true;
        self.event(io, metrics, DatagramEvent::Active);
    }

    /// An event from the poll: first what may be sent, then what may be read.
    pub(crate) fn handle_ready(&mut self, io: &mut Io, metrics: &Metrics, ready: Ready) {
        if ready.is_writable() && std::mem::take(&mut self.state.blocked) {
            self.flush(io, metrics);
        }
        let readable = ready.is_readable() || ready.is_hang_up();
        // One that is listed is read in this turn anyway: twice would be more than its share.
        if readable && !self.listed {
            self.read(io, metrics);
        }
    }

    /// Records an event that this turn has no time for.
    pub(crate) fn defer(&mut self, io: &mut Io, ready: Ready) {
        if ready.is_writable() {
            self.state.blocked = false;
        }
        self.list(io, false);
    }

    /// It was listed in an earlier turn.
    pub(crate) fn proceed(&mut self, io: &mut Io, metrics: &Metrics) {
        self.listed = false;
        // What was reported and not told yet.
        self.settle(io, metrics);
        if !self.state.blocked {
            self.flush(io, metrics);
        }
        self.read(io, metrics);
    }

    pub(crate) fn handle_mail(&mut self, io: &mut Io, metrics: &Metrics, mail: DatagramMail) {
        match mail {
            DatagramMail::Send { datagram, to, done } => {
                self.state.handle().dequeued(&datagram);
                match self.state.send(&mut io.services.outbound, metrics, datagram, to, done) {
                    Ok(()) => {}
                    Err((refused, Some(done))) => done.complete(Err(refused.reason)),
                    // Whoever sent it raced with the close; it is nobody's error.
                    Err((refused, None)) if matches!(refused.reason, Error::Closed) => {}
                    Err((refused, None)) => self.fail(&mut io.services, metrics, refused.reason),
                }
                self.settle(io, metrics);
            }
            DatagramMail::Run(task) if self.state.is_open() => {
                self.event(io, metrics, DatagramEvent::Run(task))
            }
            DatagramMail::Run(task) => drop_guarded(task),
            DatagramMail::Close => self.close(io, metrics),
        }
    }

    /// A scheduled task is due.
    pub(crate) fn handle_task(&mut self, io: &mut Io, metrics: &Metrics, slot: u32) {
        let Some(task) = self.state.timers.take_due(slot) else { return };
        if self.state.is_open() {
            self.event(io, metrics, DatagramEvent::Task(task));
        } else {
            drop_guarded(task);
        }
    }

    /// The loop is shutting down; how many tasks were cancelled.
    pub(crate) fn handle_shutdown(&mut self, io: &mut Io, metrics: &Metrics) -> usize {
        let cancelled = self.state.timers.cancel_all(&mut io.services);
        self.event(io, metrics, DatagramEvent::Shutdown);
        cancelled
    }

    /// The last call: tells the handler that it is over.
    pub(crate) fn handle_inactive(&mut self, services: &mut LoopServices, metrics: &Metrics) {
        if std::mem::take(&mut self.active)
            && let Err(error) = self.tell(services, metrics, DatagramEvent::Inactive)
        {
            self.log_failure(services, "in inactive", &error);
        }
        // One that is armed in `inactive` has nobody to run for.
        self.state.timers.cancel_all(services);
    }

    /// Something went wrong that the channel cannot survive.
    pub(crate) fn fail_for_good(&mut self, io: &mut Io, metrics: &Metrics, error: Error) {
        if self.state.is_open() {
            self.fail(&mut io.services, metrics, error);
        }
        self.close(io, metrics);
    }

    /// Closes the socket, after giving the kernel of what waits as much as it takes at once. The handler hears of it later
    /// in the turn, never from here.
    pub(crate) fn close(&mut self, io: &mut Io, metrics: &Metrics) {
        while let Some(Outgoing { datagram, to, .. }) = self.state.queue.front() {
            let (datagram, to) = (datagram.clone(), *to);
            match self.state.transmit(metrics, &datagram, to) {
                Sent::Blocked => break,
                Sent::Done => self.answer(Ok(())),
                Sent::Failed(e) => {
                    metrics.datagrams_refused.add_shared(1);
                    self.answer(Err(Error::io("sending a datagram", e)));
                }
            }
        }
        let Some(mut socket) = self.state.socket.take() else { return };
        self.state.closing = true;
        if let Err(e) = io.selector.deregister(socket.source()) {
            let (services, id) = (&io.services, self.state.id);
            log_throttled!(services, BROKEN, Level::Debug, "datagram channel {id}: leaving the poll: {e}");
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
            metrics.bytes_unsent.add(unsent as u64);
        }
        self.state.note_weight(&mut io.services.outbound);
        self.state.timers.cancel_all(&mut io.services);
        io.inactive.push(Ended::closed(self.key()));
    }

    // ---- sockets -------------------------------------------------------------------------------------

    fn read(&mut self, io: &mut Io, metrics: &Metrics) {
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
                    self.event(io, metrics, DatagramEvent::Read(datagram, from));
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
                            "datagram channel {id}: {error}, again and again; closing"
                        );
                        return self.fail_for_good(io, metrics, error);
                    }
                    self.fail(&mut io.services, metrics, error);
                    self.settle(io, metrics);
                }
            }
        }
        self.list(io, in_full);
    }

    /// Sends what waits, until it is gone, the kernel takes no more, or the budget of this turn is spent.
    fn flush(&mut self, io: &mut Io, metrics: &Metrics) {
        for _ in 0..self.state.config.datagrams_per_turn {
            let Some(Outgoing { datagram, to, .. }) = self.state.queue.front() else { break };
            let (datagram, to) = (datagram.clone(), *to);
            match self.state.transmit(metrics, &datagram, to) {
                Sent::Blocked => {
                    self.state.blocked = true;
                    break;
                }
                Sent::Done => self.answer(Ok(())),
                Sent::Failed(e) => {
                    let error = Error::io("sending a datagram", e);
                    match self.state.queue.pop() {
                        Some(Outgoing { done: Some(done), .. }) => done.complete(Err(error)),
                        _ => self.fail(&mut io.services, metrics, error),
                    }
                    if !self.state.is_open() {
                        break;
                    }
                }
            }
        }
        self.state.note_weight(&mut io.services.outbound);
        if !self.state.queue.is_empty() && !self.state.blocked {
            self.list(io, false);
        }
        self.settle(io, metrics);
    }

    /// The first that waits is done with.
    fn answer(&mut self, result: Result) {
        if let Some(Outgoing { done: Some(done), .. }) = self.state.queue.pop() {
            done.complete(result);
        }
    }

    /// Has it looked at in the next turn without an event.
    fn list(&mut self, io: &mut Io, in_full: bool) {
        if self.state.is_open() && !self.listed {
            self.listed = true;
            io.carry_over(self.key(), in_full);
        }
    }

    // ---- the handler ---------------------------------------------------------------------------------

    fn event(&mut self, io: &mut Io, metrics: &Metrics, event: DatagramEvent) {
        self.call(&mut io.services, metrics, event);
        self.settle(io, metrics);
    }

    fn call(&mut self, services: &mut LoopServices, metrics: &Metrics, event: DatagramEvent) {
        if let Err(error) = self.tell(services, metrics, event) {
            let panicked = matches!(error, Error::Panicked(_));
            if panicked {
                log_throttled!(
                    services,
                    PANICS,
                    Level::Error,
                    "datagram channel {} ({}): {error}; closing it",
                    self.state.id,
                    (self.handler.handler_type())()
                );
            }
            self.fail(services, metrics, error);
            self.state.closing |= panicked;
        }
    }

    /// Calls the handler; while that lasts, the loop is seen to be in this channel. A panic becomes an error.
    fn tell(&mut self, services: &mut LoopServices, metrics: &Metrics, event: DatagramEvent) -> Result {
        let DatagramSlot { state, handler, .. } = self;
        services.activity.enter_channel(state.id.key, handler.handler_type());
        let called = catch_unwind(AssertUnwindSafe(|| {
            handler.call(DatagramScope { state, services: &mut *services, metrics }, event)
        }));
        services.activity.leave();
        called.unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic))))
    }

    /// Tells the handler of an error; one that fails itself is logged, and closes the channel.
    #[cold]
    fn fail(&mut self, services: &mut LoopServices, metrics: &Metrics, error: Error) {
        services.tally.channel_errors += 1;
        if let Err(error) = self.tell(services, metrics, DatagramEvent::Error(error)) {
            self.log_failure(services, "in error", &error);
            self.state.closing = true;
        }
    }

    fn log_failure(&self, services: &mut LoopServices, place: &str, error: &Error) {
        services.tally.channel_errors += 1;
        let handler = (self.handler.handler_type())();
        let id = self.state.id;
        log_throttled!(
            services,
            CHANNEL_ERRORS,
            Level::Warn,
            "datagram channel {id} ({handler}): {place}: {error}"
        );
    }

    /// After a callback: tells what it has brought about, and closes the channel if it is to be closed.
    fn settle(&mut self, io: &mut Io, metrics: &Metrics) {
        if self.state.socket.is_none() {
            return;
        }
        if std::mem::take(&mut self.state.task_refused) {
            let limit = self.state.config.max_scheduled_tasks;
            self.fail(&mut io.services, metrics, Error::Full { what: CHANNEL_TASKS, limit });
        }
        if let Some(error) = self.state.reported.take() {
            self.fail(&mut io.services, metrics, error);
        }
        while self.state.is_open() && self.told_writable != self.state.queue.is_empty() {
            self.told_writable = !self.told_writable;
            self.call(&mut io.services, metrics, DatagramEvent::Writability(self.told_writable));
        }
        if self.state.closing {
            return self.close(io, metrics);
        }
        // What the handler did when it was told is told in the next turn: it may go on like that for ever.
        if self.state.reported.is_some() || self.state.task_refused {
            self.list(io, false);
        }
    }
}
