//! Writing to a transport, in bounded bursts.
//!
//! A contiguous buffer takes a plain write, one of several slices a gathering write of up to 64
//! slices. Output that is written outside of a read is sent at the end of the turn. So one write
//! sends the output of all tasks and broadcasts of a turn. When a blocked transport becomes
//! writable, one write is tried, and the remainder follows at the end of the turn too.
//!
//! Invariants: a burst ends when everything is sent or the transport accepts no more. It also ends
//! when its share of the turn is used up, which puts the channel into the attention list. After
//! `WouldBlock` no write is tried until an event reports that the transport is writable.

use super::{ChannelDriver, loop_io::LoopIo, seal, transport::Transport};
use crate::{
    buffer::OutboundBuffer,
    channel::{LoopServices, Pending, Readiness, core::ChannelCore, shaping::Direction},
    error::Error,
    metrics::Metrics,
};
use std::io::{self, ErrorKind, IoSlice};

/// The largest number of slices of one write; 64 of at least 4 KiB are more than a socket buffer
/// usually holds.
const SLICES: usize = 64;

impl<T: Transport> ChannelDriver<T> {
    /// Sends pending bytes, within the share of this turn.
    pub(crate) fn flush(&mut self, io: &mut LoopIo) {
        if let Some(transport) = &mut self.transport {
            flush(&mut self.core, transport, &mut io.services, &io.metrics);
        }
    }

    /// Tries one write. The remaining bytes are sent at the end of the turn.
    #[inline(always)]
    pub(super) fn write_once(&mut self, io: &mut LoopIo) {
        if let Some(transport) = &mut self.transport {
            let core = &mut self.core;
            if core.state.extras.are_used() {
                send(core, transport, &mut io.services, &io.metrics, 1);
            } else {
                // Inlined into the burst of reads, which is the hot path.
                send_burst::<T, false>(core, transport, &mut io.services, &io.metrics, 1);
            }
        }
    }
}

/// Sends pending bytes, within the share of this turn.
pub(super) fn flush<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    services: &mut LoopServices,
    metrics: &Metrics,
) {
    let most_writes = core.state.config.writes_per_turn;
    send(core, transport, services, metrics, most_writes);
}

/// Sends pending bytes, with at most `most_writes` writes.
#[inline(never)]
fn send<T: Transport>(
    core: &mut ChannelCore,
    transport: &mut T,
    services: &mut LoopServices,
    metrics: &Metrics,
    most_writes: usize,
) {
    if core.state.extras.has_filters() {
        send_burst::<T, true>(core, transport, services, metrics, most_writes);
    } else {
        send_burst::<T, false>(core, transport, services, metrics, most_writes);
    }
}

/// Like [`send`], for a channel that is known to be `FILTERED` or not.
#[inline(always)]
fn send_burst<T: Transport, const FILTERED: bool>(
    core: &mut ChannelCore,
    transport: &mut T,
    services: &mut LoopServices,
    metrics: &Metrics,
    most_writes: usize,
) {
    let mut left = most_writes;
    loop {
        let state = &core.state;
        if (state.status.has(Readiness::WRITE_BLOCKED) || state.status.closes_at_once())
            || state.is_held_up(Direction::Write)
        {
            break;
        }
        let pending = if FILTERED { seal::seal(core, services) } else { state.outbound.pending_bytes() };
        let state = &mut core.state;
        if pending == 0 || left == 0 {
            state.give_allowance_back(Direction::Write);
            if pending > 0 {
                state.want_attention(services);
            }
            break;
        }
        let most = state.allowance(services, Direction::Write, pending);
        if most == 0 {
            break;
        }
        let result = if FILTERED {
            seal::write(core, transport, most)
        } else {
            let Some(out) = state.outbound.buffer() else { break };
            if out.is_contiguous() {
                let front = out.front();
                transport.write(&front[..front.len().min(most)])
            } else {
                write_slices(transport, out, most)
            }
        };
        left -= 1;
        metrics.writes.add(1);
        match result {
            Ok(n) if n > 0 => {
                if FILTERED {
                    seal::written(core, services, metrics, n);
                } else {
                    metrics.bytes_written.add(n as u64);
                    core.handle_written(services, n);
                }
                // The usual case ends here: the next round would find that nothing is left.
                let has_sealed = FILTERED && core.state.extras.has_sealed();
                if core.state.outbound.pending_bytes() == 0 && !has_sealed {
                    core.state.give_allowance_back(Direction::Write);
                    break;
                }
                if !FILTERED && core.state.extras.has_filters() {
                    // A callback of this burst has started a filter. Sealed bytes are sent at the
                    // end of the turn, and later messages wait for the handshake.
                    core.state.give_allowance_back(Direction::Write);
                    core.state.want_attention(services);
                    break;
                }
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => {
                metrics.writes_blocked.add(1);
                core.state.status.set(Readiness::WRITE_BLOCKED);
                core.state.give_allowance_back(Direction::Write);
                break;
            }
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            failed => {
                let e = failed.err().unwrap_or_else(|| ErrorKind::WriteZero.into());
                core.handle_io_error(services, Error::io("writing", e));
                break;
            }
        }
    }
    // A callback of this burst that requested a flush has had it. The rest gets its share in the
    // next turn. Otherwise a writer that refills the buffer each time would delay all other
    // channels.
    core.state.status.unset(Pending::FLUSH);
}

/// Writes several slices. Not inlined, so that a write of one slice does not pay for the stack.
#[inline(never)]
fn write_slices<T: Transport>(transport: &mut T, out: &OutboundBuffer, most: usize) -> io::Result<usize> {
    let mut slices = [IoSlice::new(&[]); SLICES];
    let n = out.slices(&mut slices, most);
    transport.write_vectored(&slices[..n])
}
