//! Accepting and making connections: from a socket to an active channel.
//!
//! Always holds: a turn accepts a bounded number of connections per listener; a listener that fails for want of
//! descriptors or memory pauses and tries again by a timer, since an edge-triggered poll will not tell again; what the
//! server's gate or its loops do not let in is closed at once, and has no pipeline; the pipeline of a connection is made
//! on its own loop, and a factory that fails costs that connection only. Runs on the loop's thread.

use super::{
    accept_retry::concerns_one_connection,
    io::Io,
    shared::{LifeState, LoopMail, LoopShared},
    sources::{Accepted, ChannelSlot, ChildSetup, Connecting, Listening, Peer, Slot},
    turn::Turn,
};
use crate::{
    Error, Result,
    admission::{MAX_FAREWELL, RejectReason, Rejection},
    channel::{
        AnyPipeline, ChannelCore, Due,
        driver::{ChannelDriver, Ready, Transport},
    },
    error::{caught, panic_message},
    id::{ChannelId, Key},
    log_throttle::{ABORTED, ACCEPT_ERRORS, DENIED, NOT_OPENED, TURNED_AWAY, TURNING_AWAY, log_throttled},
    metrics::Metrics,
    transport::Stream,
};
use log::Level;
use std::{
    io::{self, ErrorKind},
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

impl Turn {
    // ---- listeners -----------------------------------------------------------------------------------

    pub(super) fn listen(&mut self, mut listening: Listening) {
        if self.shared.state() >= LifeState::ShuttingDown {
            listening.shared.set_closed(|| Err(Error::ShutDown));
            return;
        }
        let key = match self.sources.next_key() {
            Ok(key) => key,
            Err(e) => {
                log::error!("{}: cannot listen on {}: {e}", self.shared.name, listening.address);
                listening.shared.set_closed(|| Err(Error::other(e.to_string())));
                return;
            }
        };
        if let Err(e) = self.io.selector.register(listening.listener.source(), key.token(), false) {
            log::error!("{}: cannot watch the listener on {}: {e}", self.shared.name, listening.address);
            listening.shared.set_closed(|| Err(Error::io("watching a listener", io::Error::from(e.kind()))));
            return;
        }
        let _ = listening.shared.key.set(key);
        self.sources.insert(Slot::Listener(Box::new(listening)));
    }

    pub(super) fn close_listener(&mut self, key: Key) {
        if !matches!(self.sources.get(key), Some(Slot::Listener(_))) {
            return;
        }
        let Some(Slot::Listener(mut listening)) = self.sources.remove(key) else { return };
        if let Err(e) = self.io.selector.deregister(listening.listener.source()) {
            log::debug!("{}: a listener leaving the poll: {e}", self.shared.name);
        }
        let Listening { listener, shared, .. } = *listening;
        drop(listener);
        shared.set_closed(|| Ok(()));
    }

    pub(super) fn set_accepting(&mut self, key: Key, accepting: bool) {
        if let Some(Slot::Listener(listening)) = self.sources.get(key) {
            listening.accepting = accepting;
            // Those who came meanwhile have been announced already: no event will say so again.
            self.accept(key);
        }
    }

    pub(super) fn accept(&mut self, key: Key) {
        let Some(Slot::Listener(listening)) = self.sources.get(key) else { return };
        for n in 0..listening.accepts_per_turn {
            if n > 0 && self.io.services.io_is_over() {
                break;
            }
            let Some(Slot::Listener(listening)) = self.sources.get(key) else { return };
            if listening.paused || !listening.accepting {
                return;
            }
            match listening.listener.accept() {
                Ok((stream, peer)) => {
                    listening.retry.succeeded();
                    match let_in(listening, &self.shared, stream, peer) {
                        Ok((child, accepted)) => self.hand_over(&child, accepted),
                        Err((stream, rejection)) => self.turn_away(key, stream, &rejection),
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(e) => {
                    self.shared.metrics.accept_errors.add(1);
                    if !concerns_one_connection(&e) {
                        self.pause_accepting(key, &e);
                        return;
                    }
                    let name = &self.shared.name;
                    log_throttled!(self.io.services, ABORTED, Level::Debug, "{name}: accepting: {e}");
                }
            }
        }
        let in_full = self.io.has_room();
        self.accept_later(key, in_full);
    }

    /// Schedules a listener for the next turn, because no event reports connections that are already waiting. Events are
    /// ignored until then, so that the listener gets no second share.
    fn accept_later(&mut self, key: Key, in_full: bool) {
        if let Some(Slot::Listener(listening)) = self.sources.get(key)
            && listening.accepting
            && !listening.paused
        {
            listening.paused = true;
            self.io.carry_over(key, in_full);
        }
    }

    /// Records an event that this turn has no time for. The source is handled in the next turn.
    #[cold]
    pub(super) fn defer_event(&mut self, token: usize, ready: Ready) {
        let Turn { sources, io, .. } = self;
        let Some((key, slot)) = sources.by_token(token) else { return };
        match slot {
            Slot::Channel(slot) => slot.driver.defer(io, ready),
            Slot::Listener(_) => self.accept_later(key, false),
            // The new channel needs the other readiness bits, which are not reported again.
            Slot::Connecting(_) if ready.is_readable() || ready.is_hang_up() => {
                self.finish_connect(key, ready);
            }
            Slot::Connecting(_) => io.carry_over(key, false),
            Slot::Datagram(slot) => slot.defer(io, ready),
            Slot::Lingering(_) => self.defer_lingering(key, ready),
            #[cfg(unix)]
            Slot::Foreign(slot) => slot.defer(key, io, ready),
        }
    }

    /// Accepting has failed, and would fail again: it is tried later, by a timer.
    fn pause_accepting(&mut self, key: Key, e: &io::Error) {
        let Some(Slot::Listener(listening)) = self.sources.get(key) else { return };
        let now = self.io.services.now;
        let rest = listening.retry.failed();
        listening.paused = true;
        let address = listening.address.clone();
        self.io.services.queue.insert(now.saturating_add(rest), Due::Source(key));
        let (name, rest) = (&self.shared.name, Duration::from_nanos(rest));
        log_throttled!(
            self.io.services,
            ACCEPT_ERRORS,
            Level::Warn,
            "{name}: accepting on {address}: {e}; trying again in {rest:?}"
        );
    }

    /// Closes a connection that was not let in; counts it first, and says so afterwards.
    fn turn_away(&mut self, key: Key, stream: Stream, rejection: &Rejection) {
        let Some(Slot::Listener(listening)) = self.sources.get(key) else { return };
        let metrics = &self.shared.metrics;
        let (counter, topic, level) = match rejection.reason {
            RejectReason::Denied(_) => (&metrics.rejected_filter, DENIED, Level::Info),
            _ => (&metrics.rejected_limit, TURNED_AWAY, Level::Warn),
        };
        counter.add(1);
        // These are the program's, and must not cost the listener.
        let mut farewell = None;
        let panicked = caught(|| farewell = listening.gate.settings().farewell_to(rejection));
        let too_long = farewell.as_ref().is_some_and(|bytes| bytes.len() > MAX_FAREWELL);
        if let Some(bytes) = farewell.filter(|_| !too_long) {
            say_farewell(stream, &bytes, &mut self.io);
        } else {
            drop(stream);
        }
        let panicked = caught(|| listening.gate.settings().tell(rejection)).or(panicked);
        let (name, address) = (&self.shared.name, &listening.address);
        log_throttled!(self.io.services, topic, level, "{name}: on {address}: {rejection}");
        let failed = match panicked {
            Some(message) => format!("being told of that panicked: {message}"),
            None if too_long => format!("a farewell of more than {MAX_FAREWELL} bytes is not sent"),
            None => return,
        };
        log_throttled!(self.io.services, TURNING_AWAY, Level::Error, "{name}: on {address}: {failed}");
    }

    /// Gives a connection to the loop that is to serve it.
    fn hand_over(&mut self, child: &LoopShared, accepted: Accepted) {
        self.shared.metrics.accepted.add(1);
        if child.id == self.shared.id {
            self.adopt(accepted);
        } else if let Err(refused) = child.submit(LoopMail::Adopt(Box::new(accepted)), 0) {
            let name = &self.shared.name;
            let reason = &refused.reason;
            log_throttled!(
                self.io.services,
                TURNED_AWAY,
                Level::Warn,
                "{name}: a connection is dropped: {reason}"
            );
        }
    }

    /// Something that a source itself has scheduled.
    pub(super) fn source_is_due(&mut self, key: Key) {
        match self.sources.get(key) {
            Some(Slot::Listener(listening)) => {
                listening.paused = false;
                self.accept(key);
            }
            Some(Slot::Connecting(connecting)) => {
                let after = Duration::from_nanos(connecting.timeout);
                connecting.deadline = None;
                self.fail_connect(key, Error::TimedOut { what: "connecting", after });
            }
            // Their timers are those of channels, or they have none.
            Some(Slot::Channel(_) | Slot::Lingering(_) | Slot::Datagram(_)) | None => {}
            #[cfg(unix)]
            Some(Slot::Foreign(_)) => {}
        }
    }

    // ---- accepted connections ------------------------------------------------------------------------

    pub(super) fn adopt(&mut self, accepted: Accepted) {
        let Accepted { assignment, mut stream, peer, local, setup } = accepted;
        if let Some(shutdown) = &mut self.shutdown {
            shutdown.note_refused_connection();
            let name = &self.shared.name;
            log_throttled!(
                self.io.services,
                TURNED_AWAY,
                Level::Debug,
                "{name}: shutting down: a connection from {peer:?} is closed"
            );
            return;
        }
        let opened = (|| -> Result<_> {
            stream.apply(&setup.options).map_err(|e| Error::io("setting a socket's options", e))?;
            let pipeline = make_pipeline(&setup, &Peer { address: peer, local_address: local })?;
            let key = self.sources.next_key()?;
            self.io
                .selector
                .register(stream.source(), key.token(), true)
                .map_err(|e| Error::io("watching a connection", e))?;
            Ok((key, pipeline))
        })();
        match opened {
            Ok((key, pipeline)) => {
                let core = self.core(key, &setup, pipeline, (local, peer));
                let (transport, assignment) = (Some(stream), Some(assignment));
                self.sources.insert(Slot::Channel(ChannelSlot {
                    driver: ChannelDriver { core, transport },
                    assignment,
                }));
                self.activate(key);
            }
            // Whatever it is, it may be so for each that comes: the kernel watches no more sockets, a factory fails.
            Err(e) => {
                drop(stream);
                let name = &self.shared.name;
                log_throttled!(
                    self.io.services,
                    NOT_OPENED,
                    Level::Warn,
                    "{name}: a connection from {peer:?} is closed: {e}"
                );
            }
        }
    }

    fn core(
        &mut self,
        key: Key,
        setup: &ChildSetup,
        pipeline: AnyPipeline,
        addresses: (Option<std::net::SocketAddr>, Option<std::net::SocketAddr>),
    ) -> ChannelCore {
        self.shared.metrics.channels.set(self.shared.metrics.channels.read() + 1);
        let id = ChannelId { event_loop: self.shared.id, key };
        ChannelCore::new(id, setup.config.clone(), pipeline, addresses, &mut self.io.services)
    }

    fn activate(&mut self, key: Key) {
        debug_assert!(
            self.shutdown.is_none(),
            "who comes after the beginning of a shutdown is told of it by nobody"
        );
        // A panic in here is to cost this channel, and not the listener that it came from.
        self.guarded_once(Some(key), |turn| {
            let Turn { sources, io, shared, .. } = turn;
            let Some(slot) = sources.channel(key) else { return };
            activate(slot, io, &shared.metrics);
        });
    }

    // ---- connections of our own ----------------------------------------------------------------------

    pub(super) fn connect(&mut self, mut connecting: Connecting) {
        if self.shared.state() >= LifeState::ShuttingDown {
            self.shared.metrics.connect_errors.add(1);
            connecting.refuse(Error::ShutDown);
            return;
        }
        let key = match self.sources.next_key() {
            Ok(key) => key,
            Err(e) => {
                self.shared.metrics.connect_errors.add(1);
                connecting.refuse(e);
                return;
            }
        };
        if let Err(e) = self.io.selector.register(connecting.stream.source(), key.token(), true) {
            self.shared.metrics.connect_errors.add(1);
            connecting.refuse(Error::io("watching a connection", e));
            return;
        }
        if connecting.timeout > 0 {
            let deadline = self.io.services.now.saturating_add(connecting.timeout);
            connecting.deadline = Some(self.io.services.queue.insert(deadline, Due::Source(key)));
        }
        let _ = connecting.attempt.0.set(key);
        self.sources.insert(Slot::Connecting(connecting));
    }

    /// Completes a connection that the poll has reported as `ready`. For a report of an earlier turn,
    /// `ready` is empty.
    pub(super) fn finish_connect(&mut self, key: Key, ready: Ready) {
        let Some(Slot::Connecting(connecting)) = self.sources.get(key) else { return };
        // Being writable is not success: the socket's error says, and the peer is there only then.
        let error = match connecting.stream.take_error() {
            Ok(Some(e)) | Err(e) => Some(e),
            Ok(None) => match connecting.stream.has_peer() {
                Ok(()) => None,
                Err(e) if e.kind() == ErrorKind::NotConnected && !ready.is_error() => {
                    return;
                }
                Err(e) => Some(e),
            },
        };
        if let Some(e) = error {
            self.fail_connect(key, Error::io("connecting", e));
            return;
        }
        if !connecting.done.is_wanted() {
            self.fail_connect(key, Error::Cancelled);
            return;
        }
        if let Some(deadline) = connecting.deadline.take() {
            self.io.services.cancel_timer(deadline);
        }
        let (setup, peer) = (connecting.setup.clone(), connecting.peer);
        let options = connecting.stream.apply(&setup.options);
        let local = connecting.stream.local_address();
        let pipeline = options
            .map_err(|e| Error::io("setting a socket's options", e))
            .and_then(|()| make_pipeline(&setup, &Peer { address: peer, local_address: local }));
        let pipeline = match pipeline {
            Ok(pipeline) => pipeline,
            Err(e) => {
                self.fail_connect(key, e);
                return;
            }
        };
        let mut core = self.core(key, &setup, pipeline, (local, peer));
        let shared = core.handle(&self.io.services);
        let slot = ChannelSlot { driver: ChannelDriver { core, transport: None }, assignment: None };
        let slot = Slot::Channel(slot);
        let Some(Slot::Connecting(connecting)) = self.sources.replace(key, slot) else { return };
        if let Some(slot) = self.sources.channel(key) {
            slot.driver.transport = Some(connecting.stream);
            slot.assignment = Some(connecting.assignment);
        }
        self.shared.metrics.connected.add(1);
        connecting.done.connected(shared);
        self.activate(key);
        let Turn { sources, io, shared, .. } = self;
        if let Some(slot) = sources.channel(key)
            && !ready.is_empty()
        {
            slot.handle_ready(io, &shared.metrics, ready);
        }
    }

    pub(super) fn fail_connect(&mut self, key: Key, error: Error) {
        if !matches!(self.sources.get(key), Some(Slot::Connecting(_))) {
            return;
        }
        let Some(Slot::Connecting(connecting)) = self.sources.remove(key) else { return };
        let Connecting { assignment, mut stream, done, deadline, .. } = connecting;
        if let Some(deadline) = deadline {
            self.io.services.cancel_timer(deadline);
        }
        if let Err(e) = self.io.selector.deregister(stream.source()) {
            log::debug!("{}: a connection leaving the poll: {e}", self.shared.name);
        }
        drop::<Stream>(stream);
        self.shared.metrics.connect_errors.add(1);
        drop(assignment);
        done.failed(error);
    }
}

/// Has the gate and a loop let a connection in; one that they do not comes back.
fn let_in(
    listening: &Listening,
    own: &Arc<LoopShared>,
    stream: Stream,
    peer: Option<SocketAddr>,
) -> Result<(Arc<LoopShared>, Accepted), (Stream, Rejection)> {
    let weight = listening.setup.config.weight;
    let place = || {
        let admitted = listening.gate.admit(peer.map(|peer| peer.ip()))?;
        let full = |limit| RejectReason::LoopFull { limit };
        let (child, assignment) = match &listening.children {
            Some(group) => {
                let (child, assignment) = group.assign(weight).map_err(full)?;
                (child.shared.clone(), assignment)
            }
            None => (own.clone(), own.load.assign(weight).ok_or_else(|| full(own.load.limit()))?),
        };
        Ok((child, assignment.with(admitted)))
    };
    let (child, assignment) = match place() {
        Ok(place) => place,
        Err(reason) => return Err((stream, Rejection::new(peer, reason))),
    };
    let local = listening.address.as_tcp().filter(|address| !address.ip().is_unspecified());
    let local = local.or_else(|| stream.local_address());
    let setup = listening.setup.clone();
    Ok((child, Accepted { stream, assignment, peer, local, setup }))
}

fn activate(slot: &mut ChannelSlot, io: &mut Io, metrics: &Metrics) {
    slot.activate(io, metrics);
}

/// Sends last words to a connection that is not let in, as far as the kernel takes them at once, and closes it.
fn say_farewell(mut stream: Stream, bytes: &[u8], io: &mut Io) {
    // What it does not take is lost: a peer that is not let in is not waited for.
    let _ = stream.write(bytes);
    let _ = stream.shutdown_write();
    // Unread bytes would have the kernel send a reset, which could overtake them.
    let _ = io.drain(&mut stream, false);
}

/// Calls a pipeline factory; a panic in it is an error.
fn make_pipeline(setup: &ChildSetup, peer: &Peer) -> Result<AnyPipeline> {
    match catch_unwind(AssertUnwindSafe(|| (setup.factory)(peer))) {
        Ok(result) => result,
        Err(panic) => Err(Error::Panicked(panic_message(panic))),
    }
}
