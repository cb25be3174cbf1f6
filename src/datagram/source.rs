//! A datagram channel on its loop: reading, sending, calling the handler, the end.
//!
//! Always holds: a turn reads a bounded number of datagrams and sends a bounded number of those that wait; what is left is
//! remembered, since an edge-triggered poll will not tell again; a callback is never called from within another; an error
//! in one is told to the handler, a panic closes the channel; `inactive` is the last call and is made if and only if
//! `active` was. Runs on the loop's thread.

use super::{
    config::DatagramConfig,
    handle::{DatagramCommand, DatagramMail},
    handler::{DatagramEvent, DatagramLinks},
    queue::{Outgoing, SendQueue},
    scope::DatagramScope,
    shared::DatagramGuard,
    state::{DatagramState, Sent, is_report},
};
use crate::{
    Error, Result,
    channel::{LoopServices, Timers, driver::Ready},
    error::{drop_guarded, panic_message},
    event_loop::{
        AtShutdown, Ended, Io, LoopContext, NewSource, RegisterFn, STREAM_INTEREST, Source, SourceMail,
        Transition,
    },
    id::ChannelId,
    log_throttle::{BROKEN, CHANNEL_ERRORS, PANICS, STUCK, log_throttled},
    metrics::Metrics,
    resource::CHANNEL_TASKS,
    transport::UdpSocket,
};
use log::Level;
use std::{
    io::{self, ErrorKind},
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

struct DatagramSource {
    state: DatagramState,
    handler: Box<dyn DatagramLinks>,
    active: bool,
    /// It is to be looked at in the next turn without an event.
    listed: bool,
    /// What the handler was told last.
    told_writable: bool,
    failures: u32,
}

impl Opening {
    /// Makes the handler, then has the poll watch the socket.
    fn try_to_open(self, ctx: &mut LoopContext<'_>) -> Result<DatagramSource> {
        let Opening { mut socket, peer, config, handler, shared } = self;
        let handler = catch_unwind(AssertUnwindSafe(handler));
        let handler = handler.map_err(|panic| Error::Panicked(panic_message(panic)))?;
        let registered = ctx.io.selector.register(socket.source(), ctx.key.token(), STREAM_INTEREST);
        registered.map_err(|e| Error::io("watching a socket", e))?;
        let _ = shared.0.key.set(ctx.key);
        let state = DatagramState {
            id: ChannelId { event_loop: ctx.loop_id, key: ctx.key },
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
        Ok(DatagramSource { state, handler, active: false, listed: false, told_writable: true, failures: 0 })
    }
}

impl NewSource for Opening {
    fn open(self: Box<Self>, ctx: &mut LoopContext<'_>) -> Option<Box<dyn Source>> {
        match self.try_to_open(ctx) {
            Ok(source) => {
                let channels = &ctx.metrics.datagram_channels;
                channels.set(channels.read() + 1);
                Some(Box::new(source))
            }
            Err(e) => {
                log::warn!("{}: a datagram channel is closed: {e}", ctx.loop_name);
                None
            }
        }
    }

    fn refuse(self: Box<Self>, loop_name: &str, _metrics: &Metrics, error: Error) {
        log::warn!("{loop_name}: a datagram channel is closed: {error}");
    }
}

impl Source for DatagramSource {
    fn opened(&mut self, ctx: &mut LoopContext<'_>) {
        self.active = true;
        self.dispatch(ctx.io, ctx.metrics, DatagramEvent::Active);
    }

    /// An event from the poll: first what may be sent, then what may be read.
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        if ready.is_writable() && std::mem::take(&mut self.state.blocked) {
            self.flush(ctx.io, ctx.metrics);
        }
        let readable = ready.is_readable() || ready.is_hang_up();
        // One that is listed is read in this turn anyway: twice would be more than its share.
        if readable && !self.listed {
            self.read(ctx.io, ctx.metrics);
        }
        Transition::Stay
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        if ready.is_writable() {
            self.state.blocked = false;
        }
        self.carry_over(ctx.io, false);
        Transition::Stay
    }

    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.listed = false;
        // What was reported and not told yet.
        self.finish_call(ctx.io, ctx.metrics);
        if !self.state.blocked {
            self.flush(ctx.io, ctx.metrics);
        }
        self.read(ctx.io, ctx.metrics);
        Transition::Stay
    }

    fn mail(&mut self, ctx: &mut LoopContext<'_>, mail: Box<dyn SourceMail>) -> Transition {
        if let Some(mail) = mail.downcast::<DatagramMail>() {
            self.handle_command(ctx.io, ctx.metrics, mail.command);
        }
        Transition::Stay
    }

    fn task(&mut self, ctx: &mut LoopContext<'_>, slot: u32) {
        let Some(task) = self.state.timers.take_due(slot) else { return };
        if self.state.is_open() {
            self.dispatch(ctx.io, ctx.metrics, DatagramEvent::Task(task));
        } else {
            drop_guarded(task);
        }
    }

    fn wheel_timer(&mut self, ctx: &mut LoopContext<'_>, slot: u32) {
        self.task(ctx, slot);
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(self.state.socket.as_mut()?.source(), STREAM_INTEREST))
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        // After the socket is closed, only the call of `inactive` is left.
        if self.state.socket.is_some() { AtShutdown::Drain } else { AtShutdown::Stay }
    }

    fn shut_down(&mut self, ctx: &mut LoopContext<'_>) -> usize {
        if !self.state.is_open() {
            return 0;
        }
        let cancelled = self.state.timers.cancel_all(&mut ctx.io.services);
        self.dispatch(ctx.io, ctx.metrics, DatagramEvent::Shutdown);
        cancelled
    }

    fn close(&mut self, ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        let forced = self.state.is_open();
        self.close_socket(ctx.io, ctx.metrics);
        (Transition::Stay, forced)
    }

    fn fail(&mut self, ctx: &mut LoopContext<'_>, error: Error) -> Transition {
        self.close_with(ctx.io, ctx.metrics, error);
        Transition::Stay
    }

    fn close_silently(&mut self, ctx: &mut LoopContext<'_>) {
        self.close_socket(ctx.io, ctx.metrics);
    }

    fn inactive(&mut self, ctx: &mut LoopContext<'_>) {
        let services = &mut ctx.io.services;
        if std::mem::take(&mut self.active)
            && let Err(error) = self.invoke(services, ctx.metrics, DatagramEvent::Inactive)
        {
            self.log_failure(services, "in inactive", &error);
        }
        // One that is armed in `inactive` has nobody to run for.
        self.state.timers.cancel_all(services);
    }
}

impl DatagramSource {
    fn handle_command(&mut self, io: &mut Io, metrics: &Metrics, command: DatagramCommand) {
        match command {
            DatagramCommand::Send { datagram, to, done } => {
                self.state.handle().dequeued(&datagram);
                match self.state.send(&mut io.services.outbound, metrics, datagram, to, done) {
                    Ok(()) => {}
                    Err((refused, Some(done))) => done.complete(Err(refused.reason)),
                    // Whoever sent it raced with the close; it is nobody's error.
                    Err((refused, None)) if matches!(refused.reason, Error::Closed) => {}
                    Err((refused, None)) => self.report_error(&mut io.services, metrics, refused.reason),
                }
                self.finish_call(io, metrics);
            }
            DatagramCommand::Run(task) if self.state.is_open() => {
                self.dispatch(io, metrics, DatagramEvent::Run(task))
            }
            DatagramCommand::Run(task) => drop_guarded(task),
            DatagramCommand::Close => self.close_socket(io, metrics),
        }
    }

    /// Something went wrong that the channel cannot survive.
    fn close_with(&mut self, io: &mut Io, metrics: &Metrics, error: Error) {
        if self.state.is_open() {
            self.report_error(&mut io.services, metrics, error);
        }
        self.close_socket(io, metrics);
    }

    /// Closes the socket, after giving the kernel of what waits as much as it takes at once. The handler hears of it later
    /// in the turn, never from here.
    fn close_socket(&mut self, io: &mut Io, metrics: &Metrics) {
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
        io.inactive.push(Ended::closed(self.state.id.key));
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
                            "datagram channel {id}: {error}, again and again; closing"
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

    /// The first that waits is done with.
    fn complete_front(&mut self, result: Result) {
        if let Some(Outgoing { done: Some(done), .. }) = self.state.queue.pop() {
            done.complete(result);
        }
    }

    /// Has it looked at in the next turn without an event.
    fn carry_over(&mut self, io: &mut Io, in_full: bool) {
        if self.state.is_open() && !self.listed {
            self.listed = true;
            io.list(self.state.id.key, in_full);
        }
    }

    // ---- the handler ---------------------------------------------------------------------------------

    fn dispatch(&mut self, io: &mut Io, metrics: &Metrics, event: DatagramEvent) {
        self.call_handler(&mut io.services, metrics, event);
        self.finish_call(io, metrics);
    }

    fn call_handler(&mut self, services: &mut LoopServices, metrics: &Metrics, event: DatagramEvent) {
        if let Err(error) = self.invoke(services, metrics, event) {
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
            self.report_error(services, metrics, error);
            self.state.closing |= panicked;
        }
    }

    /// Calls the handler; while that lasts, the loop is seen to be in this channel. A panic becomes an error.
    fn invoke(&mut self, services: &mut LoopServices, metrics: &Metrics, event: DatagramEvent) -> Result {
        let DatagramSource { state, handler, .. } = self;
        services.activity.enter_channel(state.id.key, handler.handler_type());
        let called = catch_unwind(AssertUnwindSafe(|| {
            handler.call(DatagramScope { state, services: &mut *services, metrics }, event)
        }));
        services.activity.leave();
        called.unwrap_or_else(|panic| Err(Error::Panicked(panic_message(panic))))
    }

    /// Tells the handler of an error; one that fails itself is logged, and closes the channel.
    #[cold]
    fn report_error(&mut self, services: &mut LoopServices, metrics: &Metrics, error: Error) {
        services.tally.channel_errors += 1;
        if let Err(error) = self.invoke(services, metrics, DatagramEvent::Error(error)) {
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
    fn finish_call(&mut self, io: &mut Io, metrics: &Metrics) {
        if self.state.socket.is_none() {
            return;
        }
        if std::mem::take(&mut self.state.task_refused) {
            let limit = self.state.config.max_scheduled_tasks;
            self.report_error(&mut io.services, metrics, Error::Full { what: CHANNEL_TASKS, limit });
        }
        if let Some(error) = self.state.reported.take() {
            self.report_error(&mut io.services, metrics, error);
        }
        while self.state.is_open() && self.told_writable != self.state.queue.is_empty() {
            self.told_writable = !self.told_writable;
            self.call_handler(&mut io.services, metrics, DatagramEvent::Writability(self.told_writable));
        }
        if self.state.closing {
            return self.close_socket(io, metrics);
        }
        // What the handler did when it was told is told in the next turn: it may go on like that for ever.
        if self.state.reported.is_some() || self.state.task_refused {
            self.carry_over(io, false);
        }
    }
}
