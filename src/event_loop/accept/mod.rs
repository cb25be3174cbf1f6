//! Listeners: from an accepted socket to a connection that its loop serves.
//!
//! Two parties decide about each connection, before a pipeline is created. The server's `Gate`
//! applies the filter and the limits per server and per address. The group then chooses a loop that
//! has room. A connection that either refuses is counted and closed, after a farewell if the
//! program has one. The farewell is one write to the bare socket and the end of the stream.
//! Received bytes are then read and dropped, because unread bytes cause a reset, which could
//! overtake the farewell.
//!
//! With `listener_per_loop` each loop has a listening socket on the address (`SO_REUSEPORT`) and
//! serves its own connections. One listener and a chooser are the default, because distribution by
//! the kernel's hash has three disadvantages. It ignores the load, it lets a second process bind
//! unnoticed, and connections in the backlog of a listener that ends are reset. All listeners of a
//! server share one gate. The server is closed when the last listener has ended.
//!
//! The loop that would serve a connection may be overloaded. Then the connection is reset. Up to
//! 1024 of them are reset in a turn beside the accepted ones, so that later connections do not wait
//! behind them in the backlog.
//!
//! Invariants: a turn accepts at most `accepts_per_turn` connections per listener. A listener with
//! further connections is carried over to the next turn. If a connection cannot be registered or
//! set up, or its pipeline cannot be created, only that connection is closed. The log reports such
//! failures with a rate limit, because they may affect every connection. Runs on the loop's thread.
//!
//! Modules: `rejection` (connections that are not admitted), `retry` (when to accept again after an
//! error), `listener_shared` (the state shared with the server's handle), `connecting` (outgoing
//! connections that are not established yet).

mod connecting;
mod listener_shared;
mod rejection;
mod retry;

pub(crate) use connecting::{Attempt, Connecting};
pub(crate) use listener_shared::{ListenerGuard, ListenerShared, ServerClosed, ServerShared};
pub(in crate::event_loop) use rejection::count_rejection;
pub(crate) use retry::AcceptRetry;

use super::{
    LISTENER_INTEREST,
    connection::{ChildSetup, Connection},
    load::Assignment,
    mail::LoopMail,
    shared::LoopShared,
    source::{AtShutdown, LoopContext, NewSource, RegisterFn, Source, Transition},
    source_inbox::SourceCommand,
};
use crate::{
    admission::{Gate, RejectReason, Rejection},
    channel::{Due, driver::Ready},
    error::{Error, Result},
    log_throttle::{ABORTED, ACCEPT_ERRORS, TURNED_AWAY, log_throttled},
    metrics::Metrics,
    timer::QueueKey,
    transport::{Address, Listener, Stream},
};
use log::Level;
use retry::concerns_one_connection;
use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    sync::Arc,
    time::Duration,
};

/// The pause of a listener after a panic in the loop's own code, in nanoseconds.
const REST_AFTER_PANIC: u64 = 1_000_000_000;

/// The maximum number of connections that a listener resets in a turn because of overload. Accepted
/// connections are not included.
const SHED_PER_TURN: usize = 1024;

/// The loops that serve the connections of a listener.
pub(crate) trait ChildLoops: Send + Sync {
    /// Chooses the loop of the next connection, and counts the connection there.
    ///
    /// # Errors
    /// The limit of connections per loop if all loops have reached it.
    fn assign(&self, weight: u32) -> Result<(Arc<LoopShared>, Assignment), usize>;
}

/// A command to a listener.
pub(crate) enum ListenerCommand {
    Close,
    /// Turns accepting on or off.
    SetAccepting(bool),
}

impl SourceCommand for ListenerCommand {}

/// A listener, both before and after its loop has received it.
pub(crate) struct ListenerSource {
    pub(crate) listener: Listener,
    pub(crate) address: Address,
    /// The loops that serve the connections; `None` for the loop that accepts them.
    pub(crate) children: Option<Arc<dyn ChildLoops>>,
    pub(crate) setup: Arc<ChildSetup>,
    pub(crate) gate: Arc<Gate>,
    /// The limit of connections that are accepted in one turn.
    pub(crate) accepts_per_turn: usize,
    pub(crate) shared: ListenerGuard,
    /// Whether the program has enabled accepting.
    pub(crate) accepting: bool,
    pub(crate) progress: AcceptProgress,
}

/// The progress of a listener in this turn, and its state after errors.
#[derive(Default)]
pub(crate) struct AcceptProgress {
    /// The calls of `accept` in this turn.
    calls: usize,
    /// The connections of this turn that were refused because a loop is overloaded. They are not
    /// in `calls`, so that the backlog drains quickly.
    shed: usize,
    /// Whether the listener is paused: until its retry timer expires after an error, or until the
    /// next turn after its share of this one.
    paused: bool,
    /// The timer that ends a pause after an error.
    timer: Option<QueueKey>,
    retry: AcceptRetry,
}

impl ListenerSource {
    /// Accepts until no connection is waiting, or the share of this turn is used up.
    fn begin_accepting(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        (self.progress.calls, self.progress.shed) = (0, 0);
        self.accept(ctx)
    }

    fn accept(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        while self.progress.calls < self.accepts_per_turn && self.progress.shed < SHED_PER_TURN {
            if self.progress.calls + self.progress.shed > 0 && ctx.io.services.io_is_over() {
                break;
            }
            if self.progress.paused || !self.accepting {
                return Transition::Stay;
            }
            self.progress.calls += 1;
            match self.listener.accept() {
                Ok((stream, peer)) => {
                    self.progress.retry.succeeded();
                    match self.admit(ctx, stream, peer) {
                        Ok((None, connection)) => {
                            ctx.metrics.accepted.add(1);
                            *ctx.accepted = Some(connection);
                            return Transition::Adopt;
                        }
                        Ok((Some(child), connection)) => hand_over(ctx, &child, connection),
                        Err((stream, rejection)) => {
                            if matches!(rejection.reason, RejectReason::Overloaded(_)) {
                                self.progress.calls -= 1;
                                self.progress.shed += 1;
                            }
                            self.turn_away(ctx, stream, &rejection);
                        }
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Transition::Stay,
                Err(e) => {
                    ctx.metrics.accept_errors.add(1);
                    if !concerns_one_connection(&e) {
                        self.pause(ctx, &e);
                        return Transition::Stay;
                    }
                    let name = ctx.loop_name;
                    log_throttled!(
                        ctx.io.services,
                        ABORTED,
                        Level::Debug,
                        "{name}: accepting a connection failed: {e:#}"
                    );
                }
            }
        }
        let in_full = ctx.io.has_room();
        self.accept_later(ctx, in_full);
        Transition::Stay
    }

    /// Schedules the listener for the next turn, because no event reports connections that are
    /// already waiting. Events are ignored until then, so that the listener gets only one share per
    /// turn.
    fn accept_later(&mut self, ctx: &mut LoopContext<'_>, in_full: bool) {
        if self.accepting && !self.progress.paused {
            self.progress.paused = true;
            ctx.io.carry_over(ctx.key, in_full);
        }
    }

    /// Pauses until a timer expires, because accepting has failed and would fail again.
    fn pause(&mut self, ctx: &mut LoopContext<'_>, e: &io::Error) {
        let rest = self.progress.retry.failed();
        self.pause_for(ctx, rest);
        let (name, address, rest) = (ctx.loop_name, &self.address, Duration::from_nanos(rest));
        log_throttled!(
            ctx.io.services,
            ACCEPT_ERRORS,
            Level::Warn,
            "{name}: accepting on {address} failed: {e:#}; retrying in {rest:?}"
        );
    }

    fn pause_for(&mut self, ctx: &mut LoopContext<'_>, rest: u64) {
        self.cancel_timer(ctx);
        self.progress.paused = true;
        let deadline = ctx.io.services.now.saturating_add(rest);
        self.progress.timer = Some(ctx.io.services.queue.insert(deadline, Due::Source(ctx.key)));
    }

    fn cancel_timer(&mut self, ctx: &mut LoopContext<'_>) {
        if let Some(timer) = self.progress.timer.take() {
            drop(ctx.io.services.cancel_timer(timer));
        }
    }

    /// Asks the gate and a loop to admit a connection. Returns it with its loop, which is `None`
    /// for the loop of the listener. Returns the socket if the connection is rejected.
    #[expect(clippy::type_complexity, reason = "the two results of one decision")]
    #[inline(always)]
    fn admit(
        &self,
        ctx: &LoopContext<'_>,
        stream: Stream,
        peer: Option<SocketAddr>,
    ) -> Result<(Option<Arc<LoopShared>>, Connection), (Stream, Rejection)> {
        let (child, assignment) = match self.assign(ctx, peer) {
            Ok(assigned) => assigned,
            Err(reason) => return Err((stream, Rejection::new(peer, reason))),
        };
        let local = self.address.as_tcp().filter(|address| !address.ip().is_unspecified());
        let local = local.or_else(|| stream.local_address());
        let setup = self.setup.clone();
        Ok((child, Connection { stream, assignment, peer, local, setup }))
    }

    #[inline(always)]
    fn assign(
        &self,
        ctx: &LoopContext<'_>,
        peer: Option<SocketAddr>,
    ) -> Result<(Option<Arc<LoopShared>>, Assignment), RejectReason> {
        let weight = self.setup.config.weight;
        let address = peer.map(|peer| peer.ip());
        // A load balancer's own address is neither filtered nor counted: the address that it
        // announces is.
        let announces = |address| self.setup.filters.as_ref().is_some_and(|f| f.announces_for(address));
        let admitted = self.gate.admit(address.filter(|address| !announces(*address)))?;
        let has_farewell = self.gate.settings().has_farewell();
        let full = |limit| RejectReason::LoopFull { limit };
        let (child, assignment) = match &self.children {
            Some(children) => {
                let (child, assignment) = children.assign(weight).map_err(full)?;
                if let Some(limits) = &child.limits {
                    limits.admit_connection(has_farewell).map_err(RejectReason::Overloaded)?;
                }
                (Some(child).filter(|child| child.id != ctx.loop_id), assignment)
            }
            None => {
                let assignment = ctx.load.assign(weight).ok_or_else(|| full(ctx.load.limit()))?;
                if let Some(limits) = &ctx.io.services.limits {
                    limits.admit_connection(has_farewell).map_err(RejectReason::Overloaded)?;
                }
                (None, assignment)
            }
        };
        Ok((child, assignment.with(admitted)))
    }
}

/// Sends a connection to the loop that will serve it. Resets the connection if the queue of that
/// loop is full or closed.
fn hand_over(ctx: &LoopContext<'_>, child: &LoopShared, connection: Connection) {
    ctx.metrics.accepted.add(1);
    if let Err(refused) = child.submit_with(0, Box::new(connection), LoopMail::Adopt) {
        ctx.metrics.rejected_by_loop.add(1);
        let (name, (connection, reason)) = (ctx.loop_name, refused.into_parts());
        connection.reset_on_close(name);
        log_throttled!(
            ctx.io.services,
            TURNED_AWAY,
            Level::Warn,
            "{name}: a connection is dropped: {reason:#}"
        );
    }
}

impl NewSource for ListenerSource {
    fn open(mut self: Box<Self>, ctx: &mut LoopContext<'_>) -> Option<Box<dyn Source>> {
        if let Err(e) = ctx.io.selector.register(self.listener.source(), ctx.key.token(), LISTENER_INTEREST) {
            log::error!("{}: cannot watch the listener on {}: {e:#}", ctx.loop_name, self.address);
            self.shared.set_closed(Err(Error::io("watching a listener", e)));
            return None;
        }
        self.shared.inbox.opened(ctx.key);
        Some(self)
    }

    fn refuse(self: Box<Self>, loop_name: &str, _metrics: &Metrics, error: Error) {
        if !matches!(error, Error::ShutDown) {
            log::error!("{loop_name}: cannot listen on {}: {error:#}", self.address);
        }
        self.shared.set_closed(Err(error));
    }
}

impl Source for ListenerSource {
    #[cfg(feature = "simulation")]
    fn violation_asleep(&self) -> Option<&'static str> {
        let socket = self.listener.simulated()?;
        if self.progress.paused {
            return self.progress.timer.is_none().then_some("a listener pauses without a timer");
        }
        (self.accepting && socket.unseen(0).input)
            .then_some("a connection waits to be accepted, and no event is pending")
    }

    fn ready(&mut self, ctx: &mut LoopContext<'_>, _ready: Ready) -> Transition {
        self.begin_accepting(ctx)
    }

    fn defer(&mut self, ctx: &mut LoopContext<'_>, _ready: Ready) -> Transition {
        self.accept_later(ctx, false);
        Transition::Stay
    }

    fn proceed(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.progress.paused = false;
        self.begin_accepting(ctx)
    }

    fn resume(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.accept(ctx)
    }

    fn mail(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        match self.shared.inbox.take() {
            None => Transition::Stay,
            Some(ListenerCommand::Close) => Transition::End(Ok(())),
            Some(ListenerCommand::SetAccepting(accepting)) => {
                self.accepting = accepting;
                // Connections that arrived in the meantime have been reported already. No event
                // reports them again.
                self.begin_accepting(ctx)
            }
        }
    }

    fn timer(&mut self, ctx: &mut LoopContext<'_>) -> Transition {
        self.progress.timer = None;
        self.proceed(ctx)
    }

    fn watched(&mut self, register: &mut RegisterFn<'_>) -> Option<io::Result<()>> {
        Some(register(self.listener.source(), LISTENER_INTEREST))
    }

    fn begin_shutdown(&mut self) -> AtShutdown {
        AtShutdown::End(Ok(()))
    }

    fn close(&mut self, _ctx: &mut LoopContext<'_>) -> (Transition, bool) {
        (Transition::End(Ok(())), false)
    }

    fn fail(&mut self, ctx: &mut LoopContext<'_>, error: Error) -> Transition {
        log::error!("{}: the listener on {} has failed: {error:#}", ctx.loop_name, self.address);
        Transition::End(Err(error))
    }

    /// Keeps the server accepting, after a pause that prevents a busy loop.
    fn retry_after_panic(&mut self, ctx: &mut LoopContext<'_>) -> bool {
        self.pause_for(ctx, REST_AFTER_PANIC);
        true
    }

    fn end(mut self: Box<Self>, ctx: &mut LoopContext<'_>, result: Result) {
        if let Err(e) = ctx.io.selector.deregister(self.listener.source()) {
            log::debug!("{}: deregistering a listener: {e:#}", ctx.loop_name);
        }
        self.cancel_timer(ctx);
        let ListenerSource { listener, shared, .. } = *self;
        drop(listener);
        shared.set_closed(result);
    }
}
