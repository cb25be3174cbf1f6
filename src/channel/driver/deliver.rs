//! Delivery of bytes that were read, or that filters have opened.
//!
//! New bytes follow the bytes that the channel has kept ([`Front`]). Every way to the codec goes
//! through this module: a read, the plaintext of filters, and kept bytes whose delivery was
//! interrupted.
//!
//! Invariant: kept bytes are decoded before new ones, and each byte once.

use super::{loop_io::LoopIo, read::Read, transport::Transport, writing};
use crate::{
    buffer::{RECEIVE_SIZE, Received},
    channel::{
        core::{ChannelCore, links::Batch},
        undecoded::{InputMemory, Undecoded},
    },
};
use bytes::{Bytes, BytesMut};

/// The bytes that the channel has kept, while more are read.
///
/// A small number is put in front of the new bytes in the loop's buffer. A larger number grows in
/// memory of the channel, so that a long message is not copied again with every read.
#[derive(Default)]
pub(super) struct Front(Undecoded);

impl Front {
    #[inline]
    pub(super) fn take(core: &mut ChannelCore) -> Self {
        Front(core.state.inbound.take_undecoded())
    }

    /// Returns the bytes that the loop's buffer is to begin with.
    #[inline]
    pub(super) fn prefix(&self) -> &[u8] {
        if self.grows() { &[] } else { &self.0 }
    }

    #[inline]
    fn grows(&self) -> bool {
        self.0.len() > RECEIVE_SIZE / 2
    }

    /// Keeps the bytes, because no other ones have arrived.
    #[inline]
    pub(super) fn keep(self, core: &mut ChannelCore) {
        core.state.inbound.keep(self.0);
    }
}

/// Decodes the bytes of a read as this `batch`. They begin with the prefix of `front`, and are the
/// `last` ones for now.
// Inlined into the one read of a channel without filters, which is the hot path.
#[inline(always)]
pub(super) fn deliver<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    front: Front,
    received: Received,
    last: bool,
    batch: Batch,
) -> Read {
    if front.grows() {
        return deliver_grown(core, transport, io, front, received, &[], last, batch);
    }
    let completed = decode(core, transport, io, received.data, InputMemory::Lent, batch);
    io.receive.give_back();
    io.services.spare_box.give_back(front.0);
    Read::Bytes { last, completed }
}

/// Decodes the bytes of a read and those in `spilled` behind them, in memory of the channel.
#[inline(never)]
#[expect(clippy::too_many_arguments, reason = "those of `deliver`, and the spilled bytes")]
pub(super) fn deliver_grown<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    front: Front,
    received: Received,
    spilled: &[u8],
    last: bool,
    batch: Batch,
) -> Read {
    let mut all = if front.grows() { BytesMut::from(front.0.into_bytes()) } else { BytesMut::new() };
    all.extend_from_slice(&received.data);
    all.extend_from_slice(spilled);
    drop(received);
    io.receive.give_back();
    let memory = InputMemory::Own(all.len());
    let completed = decode(core, transport, io, all.freeze(), memory, batch);
    Read::Bytes { last, completed }
}

/// Resumes an interrupted delivery with the kept bytes and the pipeline's queued messages. Returns
/// whether any byte was consumed.
#[inline(never)]
pub(super) fn resume<T: Transport>(core: &mut ChannelCore, transport: &mut T, io: &mut LoopIo) -> bool {
    let input = core.state.inbound.take_undecoded().into_bytes();
    let before = input.len();
    decode(core, transport, io, input, InputMemory::Own(before), Batch::Part);
    core.state.inbound.undecoded().len() < before
}

/// Decodes `input`. Returns whether `read_complete` was called.
#[inline(always)]
fn decode<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    io: &mut LoopIo,
    input: Bytes,
    memory: InputMemory,
    batch: Batch,
) -> bool {
    let LoopIo { services, metrics, .. } = io;
    core.handle_input(services, input, memory, batch, |core, services| {
        writing::flush(core, transport, services, metrics);
    })
}
