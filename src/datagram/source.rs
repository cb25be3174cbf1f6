//! A datagram channel as a source of its loop.
//!
//! Invariants: `inactive` is the last call to the handler, and is made if and only if `active` was.
//! Runs on the loop's thread. `io` receives and sends, `callbacks` calls the handler.

use super::{
    DatagramInbox,
    config::DatagramConfig,
    handler::{DatagramCommand, DatagramEvent, DatagramLinks},
    queue::SendQueue,
    shared::DatagramGuard,
    state::DatagramState,
};
use crate::{
    channel::{ChannelTimer, DueTask, Tasks, driver::Ready},
    error::{Error, Result, drop_guarded, panic_message},
    event_loop::{AtShutdown, Io, LoopContext, NewSource, RegisterFn, STREAM_INTEREST, Source, Transition},
    id::ChannelId,
    metrics::Metrics,
    transport::UdpSocket,
};
use std::{
    io,
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// A datagram channel on its way to its loop.
pub(crate) struct NewDatagramChannel {
    pub(crate) socket: UdpSocket,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) config: DatagramConfig,
    /// Creates the handler, on the loop.
    pub(crate) handler: Box<dyn FnOnce() -> Box<dyn DatagramLinks> + Send>,
    pub(crate) shared: DatagramGuard,
    pub(crate) inbox: Arc<DatagramInbox>,
}

/// A datagram channel and its handler.
pub(super) struct DatagramSource {
    pub(super) state: DatagramState,
    pub(super) handler: Box<dyn DatagramLinks>,
    pub(super) inbox: Arc<DatagramInbox>,
    /// Whether `active` was called, and `inactive` was not.
    active: bool,
    /// Whether the channel is scheduled for the next turn without an event.
    pub(super) listed: bool,
    /// The last writability reported to the handler.
    pub(super) reported_writable: bool,
    /// The number of consecutive failed receives.
    pub(super) failures: u32,
}

impl NewDatagramChannel {
    /// Creates the handler, then registers the socket with the poll.
    fn try_to_open(self, ctx: &mut LoopContext<'_>) -> Result<DatagramSource> {
        let NewDatagramChannel { mut socket, peer, config, handler, shared, inbox } = self;
        let handler = catch_unwind(AssertUnwindSafe(handler));
        let handler = handler.map_err(|panic| Error::panicked(panic_message(panic)))?;
        let registered = ctx.io.selector.register(socket.source(), ctx.key.token(), STREAM_INTEREST);
        registered.map_err(|e| Error::io("watching a socket", e))?;
        inbox.opened(ctx.key);
        let state = DatagramState {
            id: ChannelId { event_loop: ctx.loop_id, key: ctx.key },
            socket: Some(socket),
            config,
            queue: SendQueue::default(),
            counted: 0,
            tasks: Tasks::default(),
            shared,
            peer,
            reported: None,
            task_refused: false,
            closing: false,
            blocked: false,
        };
        Ok(DatagramSource {
            state,
            handler,
            inbox,
            active: false,
            listed: false,
            reported_writable: true,
            failures: 0,
        })
    }
}

impl NewSource for NewDatagramChannel {
    fn open(self: Box<Self>, ctx: &mut LoopContext<'_>) -> Option<Box<dyn Source>> {
        match self.try_to_open(ctx) {
            Ok(source) => {
                let channels = &ctx.metrics.datagram_channels;
                channels.set(channels.read() + 1);
                Some(Box::new(source))
            }
            Err(e) => {
                log::warn!("{}: a datagram channel is closed: {e:#}", ctx.loop_name);
                None
            }
        }
    }

    fn refuse(self: Box<Self>, loop_name: &str, _metrics: &Metrics, error: Error) {
        log::warn!("{loop_name}: a datagram channel is closed: {error:#}");
    }
}

impl Source for DatagramSource {
    #[cfg(feature = "simulation")]
    fn counted_output(&self) -> Option<usize> {
        Some(self.state.counted)
    }

    #[cfg(feature = "simulation")]
    fn violation_asleep(&self) -> Option<&'static str> {
        let socket = self.state.socket.as_ref()?.simulated()?;
        if socket.unseen(0).input && !self.listed && !self.state.closing {
            return Some("a datagram channel has input, and no event is pending");
        }
        let is_sending = !self.state.blocked && !self.state.queue.is_empty();
        is_sending.then_some("a datagram channel has datagrams that nothing is going to send")
    }

    fn opened(&mut self, ctx: &mut LoopContext<'_>) {
        self.active = true;
        self.dispatch(ctx.io, ctx.metrics, DatagramEvent::Active);
    }

    /// Sends queued datagrams before it reads.
    fn ready(&mut self, ctx: &mut LoopContext<'_>, ready: Ready) -> Transition {
        if ready.is_writable() && std::mem::take(&mut self.state.blocked) {
            self.flush(ctx.io, ctx.metrics);
        }
        let readable = ready.is_readable() || ready.is_hang_up();
        // A listed channel is read later in this turn. Reading twice would exceed its share.
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
        // Reports errors of an earlier turn.
        self.finish_call(ctx.io, ctx.metrics);
        if !self.state.blocked {
            self.flush(ctx.io, ctx.metrics);
        }
        self.read(ctx.io, ctx.metrics);
        Transition::Stay
    }

    fn mail(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        if let Some(command) = self.inbox.take() {
            self.handle_command(ctx.io, ctx.metrics, command);
        }
        Transition::Stay
    }

    fn channel_timer(&mut self, ctx: &mut LoopContext<'_>, timer: ChannelTimer) -> Transition {
        let ChannelTimer::Task(slot) = timer else { return Transition::Stay };
        match self.state.tasks.take_due(slot) {
            // Tasks of datagram channels have no handles.
            Some(DueTask::Once(task, _)) if self.state.is_open() => {
                self.dispatch(ctx.io, ctx.metrics, DatagramEvent::Task(task));
            }
            Some(DueTask::Once(task, _)) => drop_guarded(task),
            Some(DueTask::Periodic(key, task)) => self.run_periodic_task(ctx.io, ctx.metrics, key, task),
            None => {}
        }
        Transition::Stay
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(self.state.socket.as_mut()?.source(), STREAM_INTEREST))
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        // Once the socket is closed, only the call of `inactive` remains.
        if self.state.socket.is_some() { AtShutdown::Drain } else { AtShutdown::Stay }
    }

    fn shut_down(&mut self, ctx: &mut LoopContext<'_>) {
        if self.state.is_open() {
            self.dispatch(ctx.io, ctx.metrics, DatagramEvent::Shutdown);
        }
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
        // A task that was scheduled in `inactive` could not run, because the handler is dropped.
        self.state.tasks.cancel_all(services, &Error::Closed);
    }
}

impl DatagramSource {
    fn handle_command(&mut self, io: &mut Io, metrics: &Metrics, command: DatagramCommand) {
        match command {
            DatagramCommand::Send { datagram, to, done } => {
                self.state.handle().dequeued(&datagram);
                match self.state.send(&mut io.services.outbound, metrics, datagram, to, done) {
                    Ok(()) => {}
                    Err((refused, Some(done))) => done.complete(Err(refused.into())),
                    // The sender raced with the close, which is not an error.
                    Err((refused, None)) if matches!(refused.error(), Error::Closed) => {}
                    Err((refused, None)) => self.report_error(&mut io.services, metrics, refused.into()),
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

    /// Closes the channel because of an error that it cannot recover from.
    pub(super) fn close_with(&mut self, io: &mut Io, metrics: &Metrics, error: Error) {
        if self.state.is_open() {
            self.report_error(&mut io.services, metrics, error);
        }
        self.close_socket(io, metrics);
    }
}
