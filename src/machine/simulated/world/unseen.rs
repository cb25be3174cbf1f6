//! Readiness of sockets that no event of a poll announces.

use super::{World, sockets::SocketKind, stream::StreamPhase};
use crate::machine::simulated::ids::SocketId;

/// The readiness of a socket without a pending event.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Unseen {
    /// Input, an end of the input, or a connection that waits.
    pub(crate) input: bool,
    /// Room for output.
    pub(crate) room: bool,
    /// A thread is suspended at a race point, perhaps before it sends mail about the socket.
    pub(crate) is_racing: bool,
}

impl World {
    /// Returns whether a watched socket has input or room without a pending event.
    pub(in crate::machine::simulated) fn unseen(&mut self, id: SocketId, state: u64) -> Unseen {
        let Some(socket) = self.sockets.get(id) else { return Unseen::default() };
        let (input, room, has_room) = match &socket.kind {
            SocketKind::Listener { backlog, .. } => (backlog.len(), false, true),
            SocketKind::Datagrams(datagrams) => (datagrams.input.len(), true, true),
            SocketKind::Stream(stream) => {
                let is_over = stream.input_ended || stream.phase == StreamPhase::Failed;
                let has_room = stream.has_room();
                (stream.input.len() + usize::from(is_over), has_room && !stream.wants_room, has_room)
            }
        };
        let is_announced = socket.watch.is_none_or(|watch| watch.is_listed) || socket.late_edges > 0;
        let fault = self.faults.last().map_or(0, |fault| fault as u64 + 1);
        let sizes = u64::from(input.checked_ilog2().unwrap_or(0)) << 8 | u64::from(has_room);
        self.states.see(state.rotate_left(32) ^ (sizes << 8 | fault));
        let is_racing = self.preempted > 0;
        Unseen { input: input > 0 && !is_announced, room: room && !is_announced, is_racing }
    }
}
