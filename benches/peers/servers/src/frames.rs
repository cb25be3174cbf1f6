//! Frames cut from a stream by hand: 4 bytes of length, big-endian, then the payload.

use std::io::{Error, ErrorKind, Result};

/// No frame has a longer payload.
const MAX_FRAME: usize = 1 << 20;

/// A frame that has come only in part.
#[derive(Default)]
pub(crate) struct Partial(Vec<u8>);

impl Partial {
    /// Appends every frame that `new` completes to `out`, with its length, and keeps the rest.
    ///
    /// # Errors
    /// If a frame says that it is too long.
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

/// Appends the frames at the front of `bytes` one by one, as a server that looks at each would; the bytes used.
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
