//! Frames cut from a stream by hand: 4 bytes of length, big-endian, then the payload.

use std::io::{Error, ErrorKind, Result};

/// Maximum payload of a frame.
const MAX_FRAME: usize = 1 << 20;

/// A partially received frame.
#[derive(Default)]
pub(crate) struct Partial(Vec<u8>);

impl Partial {
    /// Appends every frame that `new` completes to `out`, with its length, and keeps the remaining
    /// bytes.
    ///
    /// # Errors
    /// If a frame's length exceeds the maximum.
    pub(crate) fn take(&mut self, new: &[u8], out: &mut Vec<u8>) -> Result<()> {
        if self.0.is_empty() {
            let used = decode(new, out)?;
            self.0.extend_from_slice(&new[used..]);
        } else {
            self.0.extend_from_slice(new);
            let used = decode(&self.0, out)?;
            self.0.drain(..used);
        }
        Ok(())
    }
}

/// Appends the frames at the front of `bytes` one by one, like a server that handles each frame.
/// Returns the number of bytes used.
fn decode(bytes: &[u8], out: &mut Vec<u8>) -> Result<usize> {
    let mut at = 0;
    while let Some((length, payload)) = bytes[at..].split_first_chunk::<4>() {
        let length = u32::from_be_bytes(*length) as usize;
        if length > MAX_FRAME {
            return Err(Error::from(ErrorKind::InvalidData));
        }
        if payload.len() < length {
            break;
        }
        out.extend_from_slice(&bytes[at..at + 4 + length]);
        at += 4 + length;
    }
    Ok(at)
}
