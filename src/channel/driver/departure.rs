//! The departure of a peer while a stage pauses reading, for example until a response is written.
//!
//! Nothing is read during the pause, so the end of the stream would be noticed only after it, and
//! the work for a peer that has gone would go on. The poll reports a hang-up also if unread input
//! precedes it. So the driver looks at it during the pauses of stages that ask for this.
//!
//! Invariant: the memory of the input does not grow, because the transport is only peeked at.

use super::{loop_io::LoopIo, transport::Transport};
use crate::{channel::core::ChannelCore, error::Error};
use std::io::ErrorKind;

/// Closes a channel whose peer has gone, if each stage that pauses reading watches for that. With
/// half-close, the end of the stream does not mean that the peer has gone: only an error does.
#[cold]
pub(super) fn notice<T: Transport>(core: &mut ChannelCore, transport: &T, io: &mut LoopIo) {
    if !core.state.status.is_open() || !core.state.watches_for_end() {
        return;
    }
    // A peek returns an error only once.
    let peeked = match core.state.extras.take_read_error() {
        Some(error) => Err(error),
        None => transport.peek(),
    };
    match peeked {
        Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
        Err(e) => core.handle_io_error(&mut io.services, Error::io("reading", e)),
        Ok(_) if core.state.config.half_close => {}
        Ok(_) => {
            core.close_behind_peer();
            core.state.want_attention(&mut io.services);
        }
    }
}
