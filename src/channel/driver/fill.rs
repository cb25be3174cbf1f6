//! One read of the transport.

use super::{
    deliver::{Front, deliver},
    loop_io::LoopIo,
    read::{Read, batch},
    transport::Transport,
};
use crate::{
    channel::{Readiness, core::ChannelCore, shaping::Direction},
    metrics::Metrics,
};
use std::io::{self, ErrorKind};

/// Reads at most `size` bytes, once, and delivers their messages.
// Inlined into the one burst of reads, which is the hot path.
#[inline(always)]
pub(super) fn read_once<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    size: usize,
) -> Read {
    if core.state.inbound.undecoded().is_empty() {
        read_behind(Front::default(), core, transport, io, size)
    } else {
        read_behind_kept(core, transport, io, size)
    }
}

/// Reads once, behind bytes that the channel has kept.
#[inline(never)]
fn read_behind_kept<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    size: usize,
) -> Read {
    read_behind(Front::take(core), core, transport, io, size)
}

#[inline(always)]
fn read_behind<T: Transport>(
    front: Front,
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    size: usize,
) -> Read {
    let LoopIo { receive, metrics, .. } = io;
    let result = receive.read(front.prefix(), |room| {
        let limit = room.len().min(size);
        fill(transport, metrics, &mut room[..limit])
    });
    match result {
        Ok(received) if received.read > 0 => {
            let last =
                note_bytes(core, io, &received.data, received.read, received.full || received.read == size);
            deliver(core, transport, io, front, received, last, batch(last))
        }
        Ok(received) => {
            front.keep(core);
            drop(received);
            io.receive.give_back();
            Read::End
        }
        Err(e) => {
            front.keep(core);
            Read::failed(e)
        }
    }
}

/// Reads into `room`, and again if a signal has interrupted the read.
#[inline]
pub(super) fn fill(transport: &mut impl Transport, metrics: &Metrics, room: &mut [u8]) -> io::Result<usize> {
    loop {
        let result = transport.read(room);
        metrics.reads.add(1);
        match result {
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

/// Accounts for a read of the last `n` bytes of `data`, which may have been cut because the room
/// was `full`. Returns whether they are the last ones for now.
#[inline]
pub(super) fn note_bytes(core: &mut ChannelCore, io: &mut LoopIo, data: &[u8], n: usize, full: bool) -> bool {
    // A short read has emptied the transport, unless it ended at urgent data. Later bytes cause
    // another event. After the peer has hung up there may be no later event.
    const MORE: Readiness = Readiness::HANG_UP.with(Readiness::URGENT);
    let last = !(full || core.state.status.has(MORE));
    io.metrics.bytes_read.add(n as u64);
    io.turn_bytes += n;
    core.state.note_read(data, n, io.services.now);
    core.state.note_moved(Direction::Read, n);
    last
}
