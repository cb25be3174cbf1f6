//! Readiness, as epoll(7) reports it in edge-triggered mode.
//!
//! A socket that changes puts itself on the list of the poll that watches it. A poll reports the
//! present state of the sockets on its list, and takes them off. So edges merge, and a socket whose
//! state has changed back is not reported.

use super::{World, queue::TimedAction};
use crate::machine::simulated::{
    Machine, Shared,
    fault::Fault,
    ids::{PollId, SocketId},
    run::ReadyEvent,
};
use mio::{Interest, Token};
use std::{io, sync::Arc};

/// The poll of a simulated loop.
pub(crate) struct SimulatedPoll {
    shared: Arc<Shared>,
    pub(crate) id: PollId,
}

/// Wakes the loop of a [`SimulatedPoll`].
pub(crate) struct SimulatedWaker {
    shared: Arc<Shared>,
    poll: PollId,
}

/// The state of a poll.
#[derive(Default)]
struct PollState {
    /// Counts the polls that had this place before.
    life: u32,
    /// The loop that uses the poll, once it runs.
    owner: Option<usize>,
    ready: Vec<SocketId>,
    woken: bool,
}

/// All polls.
#[derive(Default)]
pub(super) struct Polls {
    places: Vec<PollState>,
    free: Vec<usize>,
}

impl Polls {
    fn open(&mut self) -> PollId {
        let place = self.free.pop().unwrap_or_else(|| {
            self.places.push(PollState::default());
            self.places.len() - 1
        });
        PollId { place, life: self.places[place].life }
    }

    fn get(&mut self, id: PollId) -> Option<&mut PollState> {
        self.places.get_mut(id.place).filter(|state| state.life == id.life)
    }

    fn is_open(&self, id: PollId) -> bool {
        self.places.get(id.place).is_some_and(|state| state.life == id.life)
    }

    fn close(&mut self, id: PollId) {
        let Some(state) = self.get(id) else { return };
        *state = PollState { life: id.life.wrapping_add(1), ..PollState::default() };
        self.free.push(id.place);
    }
}

/// A watched socket.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PollWatch {
    pub(super) poll: PollId,
    pub(super) token: usize,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// Whether the socket is on the list of the poll.
    pub(super) is_listed: bool,
}

impl SimulatedPoll {
    pub(crate) fn new(machine: &Machine) -> (Self, SimulatedWaker) {
        let shared = machine.shared().clone();
        let id = shared.lock().open_poll();
        let waker = SimulatedWaker { shared: shared.clone(), poll: id };
        (SimulatedPoll { shared, id }, waker)
    }

    /// Calls `register` with the poll as the target of simulated sockets. Nothing else is
    /// registered: whatever works with descriptors is refused earlier.
    pub(crate) fn register(&self, register: impl FnOnce(&mio::Registry) -> io::Result<()>) -> io::Result<()> {
        {
            let mut world = self.shared.lock();
            if world.fails(Fault::RegistrationFails) {
                return Err(io::ErrorKind::StorageFull.into());
            }
            world.registering = Some(self.id);
        }
        register(self.shared.registry())
    }

    pub(crate) fn registry(&self) -> &mio::Registry {
        self.shared.registry()
    }
}

impl Drop for SimulatedPoll {
    /// Wakes of a closed poll are ignored.
    fn drop(&mut self) {
        self.shared.lock().polls.close(self.id);
    }
}

impl SimulatedWaker {
    pub(crate) fn wake(&self) -> io::Result<()> {
        let mut world = self.shared.lock();
        if world.fails(Fault::WakeFails) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        if let Some(state) = world.polls.get(self.poll) {
            state.woken = true;
            world.poll_changed(self.poll);
        }
        Ok(())
    }
}

impl World {
    pub(crate) fn open_poll(&mut self) -> PollId {
        self.polls.open()
    }

    /// Returns whether a poll watches the socket.
    pub(crate) fn is_watched(&self, socket: SocketId) -> bool {
        let watch = self.sockets.get(socket).and_then(|socket| socket.watch);
        watch.is_some_and(|watch| self.polls.is_open(watch.poll))
    }

    /// Watches a socket, in place of an earlier registration. Reports its present readiness.
    pub(crate) fn watch(&mut self, socket: SocketId, token: Token, interest: Interest) -> io::Result<()> {
        let poll = self.registering.take().ok_or(io::ErrorKind::Unsupported)?;
        self.unwatch(socket);
        let watch = PollWatch {
            poll,
            token: token.0,
            readable: interest.is_readable(),
            writable: interest.is_writable(),
            is_listed: false,
        };
        self.sockets.get_mut(socket).ok_or(io::ErrorKind::NotFound)?.watch = Some(watch);
        self.edge(socket);
        Ok(())
    }

    pub(crate) fn unwatch(&mut self, id: SocketId) {
        let Some(watch) = self.sockets.get_mut(id).and_then(|socket| socket.watch.take()) else { return };
        if watch.is_listed
            && let Some(state) = self.polls.get(watch.poll)
        {
            state.ready.retain(|listed| *listed != id);
        }
    }

    /// Puts a socket that has changed on the list of its poll.
    pub(crate) fn edge(&mut self, id: SocketId) {
        let Some(socket) = self.sockets.get_mut(id) else { return };
        let Some(watch) = &mut socket.watch else { return };
        if watch.is_listed {
            return;
        }
        watch.is_listed = true;
        let poll = watch.poll;
        if let Some(state) = self.polls.get(poll) {
            state.ready.push(id);
            self.poll_changed(poll);
        }
    }

    /// Lets the loop of a poll run if it sleeps.
    pub(crate) fn poll_changed(&mut self, poll: PollId) {
        let Some(owner) = self.polls.get(poll).and_then(|state| state.owner) else { return };
        self.schedule_loop(owner, self.now());
    }

    /// Takes the events of a poll. Returns them, and whether the waker was called.
    pub(crate) fn take_events(&mut self, poll: PollId, events: &mut Vec<ReadyEvent>) -> bool {
        events.clear();
        let Some(state) = self.polls.get(poll) else { return false };
        let is_woken = std::mem::take(&mut state.woken);
        let mut ready = std::mem::take(&mut state.ready);
        if ready.len() > 1 && self.fails(Fault::EventsShuffled) {
            self.shuffle(&mut ready);
        }
        let limit = if ready.len() > 1 && self.fails(Fault::OneEvent) { 1 } else { 1024 };
        let rest = ready.split_off(ready.len().min(limit));
        for id in ready.drain(..) {
            let Some(socket) = self.sockets.get_mut(id) else { continue };
            let Some(watch) = socket.watch.as_mut().filter(|watch| watch.poll == poll) else { continue };
            watch.is_listed = false;
            let watch = *watch;
            let event = self.readiness(id, watch);
            if let Some(stream) = self.sockets.stream(id) {
                // A poll that finds a full buffer reports the room when there is some.
                stream.wants_room |= stream.lacks_room();
            }
            if event.readable || event.writable || event.read_closed || event.hang_up || event.error {
                events.push(event);
            }
        }
        let has_rest = !rest.is_empty();
        if let Some(state) = self.polls.get(poll) {
            // Keeps the allocation of the list.
            state.ready = if has_rest { rest } else { ready };
        }
        if has_rest {
            self.poll_changed(poll);
        }
        is_woken
    }

    /// Lets a loop use a poll.
    pub(crate) fn own_poll(&mut self, poll: PollId, owner: usize) {
        let Some(state) = self.polls.get(poll) else { return };
        state.owner = Some(owner);
        if !state.ready.is_empty() || state.woken {
            self.poll_changed(poll);
        }
    }

    /// Schedules an edge of a socket for later.
    pub(crate) fn edge_later(&mut self, socket: SocketId, after: u64) {
        if let Some(state) = self.sockets.get_mut(socket) {
            state.late_edges += 1;
            self.schedule(self.now().saturating_add(after), TimedAction::Edge(socket));
        }
    }

    /// Handles an edge that was scheduled.
    pub(super) fn late_edge(&mut self, id: SocketId) {
        if let Some(socket) = self.sockets.get_mut(id) {
            socket.late_edges = socket.late_edges.saturating_sub(1);
            self.edge(id);
        }
    }
}
