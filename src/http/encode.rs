//! The pieces of encoding that requests and responses share.

use super::{Headers, forbidden_trailer};
use crate::{
    buffer::OutboundBuffer,
    error::{EncodeError, Result},
};
use bytes::Bytes;

/// Returns the error for a message that cannot be encoded.
#[cold]
pub(super) fn unencodable(why: impl Into<String>) -> crate::error::Error {
    EncodeError::Unencodable(why.into().into()).into()
}

/// Appends a number in decimal.
pub(super) fn put_number(number: u64, output: &mut OutboundBuffer) {
    let mut digits = [0; 20];
    output.put_slice(in_digits(number, 10, &mut digits));
}

/// Appends the header `Content-Length`.
#[inline]
pub(super) fn put_length(length: u64, output: &mut OutboundBuffer) {
    const NAME: &[u8; 16] = b"Content-Length: ";
    let mut line = [b'\n'; 38];
    let (before, end) = line.split_at_mut(NAME.len() + 20);
    end[0] = b'\r';
    let digits = in_digits(length, 10, before).len();
    let start = 20 - digits;
    line[start..start + NAME.len()].copy_from_slice(NAME);
    output.put_slice(&line[start..]);
}

/// Writes `number` at the end of `digits`, and returns its digits.
fn in_digits(mut number: u64, base: u64, digits: &mut [u8]) -> &[u8] {
    let mut start = digits.len();
    loop {
        start -= 1;
        digits[start] = b"0123456789abcdef"[(number % base) as usize];
        number /= base;
        if number == 0 {
            return &digits[start..];
        }
    }
}

/// Appends a chunk. An empty one is skipped, because it would end the body.
pub(super) fn put_chunk(bytes: Bytes, output: &mut OutboundBuffer) {
    if bytes.is_empty() {
        return;
    }
    let mut digits = [0; 20];
    output.put_slice(in_digits(bytes.len() as u64, 16, &mut digits));
    output.put_slice(b"\r\n");
    output.put(bytes);
    output.put_slice(b"\r\n");
}

/// Appends the end of a chunked body, with its trailers.
///
/// # Errors
/// [`Error::Encode`](crate::Error::Encode) if a trailer is invalid, or is a header that is not
/// allowed as a trailer.
pub(super) fn put_last_chunk(trailers: &Headers, output: &mut OutboundBuffer) -> Result {
    if let Some(name) = trailers.invalid() {
        return Err(unencodable(format!("the trailer {name:?} is invalid")));
    }
    if !trailers.is_empty()
        && let Some(name) = forbidden_trailer(trailers)
    {
        return Err(unencodable(format!("the header {name:?} is not allowed as a trailer")));
    }
    output.put_slice(b"0\r\n");
    output.put_slice(trailers.lines());
    output.put_slice(b"\r\n");
    Ok(())
}
