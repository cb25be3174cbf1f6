//! Compressors and decompressors.
//!
//! Invariants: the connections of a thread share one compressor for each level and window, and one
//! decompressor; both are reset before each message. The output of a decompressor never exceeds the
//! limit by more than one byte, so that a short message cannot fill the memory.

use crate::websocket::error::WebSocketError;
use flate2::{Compress, Compression as Level, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

/// The end of a flushed block, which is not sent.
const TAIL: [u8; 4] = [0, 0, 0xFF, 0xFF];

/// The largest buffer that a thread keeps.
const KEEP: usize = 64 * 1024;

thread_local! {
    static SHARED: RefCell<Shared> = const {
        RefCell::new(Shared { compressors: Vec::new(), decompressor: None, buffer: Vec::new() })
    };
}

#[cfg(test)]
thread_local! {
    /// The number of compressed messages.
    static COMPRESSIONS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// Returns the number of messages that this thread has compressed.
#[cfg(test)]
pub(in crate::websocket) fn compressions() -> u64 {
    COMPRESSIONS.get()
}

struct Shared {
    /// At most one for each level and window.
    compressors: Vec<(u8, u8, Compress)>,
    decompressor: Option<Decompress>,
    buffer: Vec<u8>,
}

pub(super) fn compressor(level: u8, window_bits: u8) -> Compress {
    Compress::new_with_window_bits(Level::new(u32::from(level)), false, window_bits)
}

pub(super) fn decompressor() -> Decompress {
    // A window of 15 bits decodes messages with smaller windows as well.
    Decompress::new_with_window_bits(false, 15)
}

/// Compresses `payload` with the compressor of this thread, or with an `own` one.
pub(super) fn compress<R>(
    own: Option<&mut Compress>,
    (level, window_bits): (u8, u8),
    payload: &[u8],
    then: impl FnOnce(&[u8]) -> R,
) -> R {
    SHARED.with_borrow_mut(|Shared { compressors, buffer, .. }| {
        let compressor = match own {
            Some(own) => own,
            None => {
                let is_it = |shared: &(u8, u8, Compress)| (shared.0, shared.1) == (level, window_bits);
                let at = compressors.iter().position(is_it).unwrap_or_else(|| {
                    compressors.push((level, window_bits, compressor(level, window_bits)));
                    compressors.len() - 1
                });
                let shared = &mut compressors[at].2;
                shared.reset();
                shared
            }
        };
        #[cfg(test)]
        COMPRESSIONS.set(COMPRESSIONS.get() + 1);
        buffer.clear();
        run_compressor(compressor, payload, buffer);
        let result = then(buffer);
        if buffer.capacity() > KEEP {
            *buffer = Vec::new();
        }
        result
    })
}

fn run_compressor(compressor: &mut Compress, payload: &[u8], output: &mut Vec<u8>) {
    output.reserve(payload.len() / 2 + 64);
    let begin = compressor.total_in();
    loop {
        let taken = (compressor.total_in() - begin) as usize;
        let before = output.len();
        let status = compressor.compress_vec(&payload[taken..], output, FlushCompress::Sync);
        // The flush is complete when the output has room left.
        let is_done =
            output.len() < output.capacity() && (compressor.total_in() - begin) as usize == payload.len();
        if is_done || status.is_err() {
            break;
        }
        if output.len() == output.capacity() || output.len() == before {
            output.reserve(output.capacity().max(64));
        }
    }
    if output.ends_with(&TAIL) {
        output.truncate(output.len() - TAIL.len());
    }
}

/// Decompresses a message with the decompressor of this thread, or with an `own` one.
pub(super) fn decompress<R>(
    own: Option<&mut Decompress>,
    data: &[u8],
    limit: usize,
    then: impl FnOnce(&mut Vec<u8>) -> R,
) -> Result<R, WebSocketError> {
    SHARED.with_borrow_mut(|Shared { decompressor: shared, buffer, .. }| {
        let decompressor = match own {
            Some(own) => own,
            None => {
                let shared = shared.get_or_insert_with(self::decompressor);
                shared.reset(false);
                shared
            }
        };
        buffer.clear();
        let result = run_decompressor(decompressor, data, buffer, limit).and_then(|()| {
            let len = buffer.len();
            run_decompressor(decompressor, &TAIL, buffer, limit)?;
            // The tail is the end of an empty block. In a message that was cut within a block, it
            // is taken for data.
            if buffer.len() == len { Ok(then(buffer)) } else { Err(WebSocketError::InvalidCompression) }
        });
        if buffer.capacity() > KEEP {
            *buffer = Vec::new();
        }
        result
    })
}

fn run_decompressor(
    decompressor: &mut Decompress,
    mut data: &[u8],
    output: &mut Vec<u8>,
    limit: usize,
) -> Result<(), WebSocketError> {
    loop {
        if output.len() == output.capacity() {
            let more = output.len().max(data.len()).max(256);
            // One byte beyond the limit shows that it is exceeded.
            output.reserve_exact(more.min((limit - output.len()).saturating_add(1)));
        }
        let (taken, written) = (decompressor.total_in(), output.len());
        let status = decompressor
            .decompress_vec(data, output, FlushDecompress::Sync)
            .map_err(|_| WebSocketError::InvalidCompression)?;
        data = &data[(decompressor.total_in() - taken) as usize..];
        if output.len() > limit {
            return Err(WebSocketError::MessageTooLong { limit });
        }
        let has_room = output.len() < output.capacity();
        match status {
            // A peer may end its stream within a message, and begin another one.
            Status::StreamEnd => {
                decompressor.reset(false);
                if data.is_empty() {
                    return Ok(());
                }
            }
            _ if data.is_empty() && has_room => return Ok(()),
            Status::BufError if has_room && output.len() == written => {
                return Err(WebSocketError::InvalidCompression);
            }
            _ => {}
        }
    }
}
