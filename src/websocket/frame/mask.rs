//! Masks of client frames.
//!
//! Invariants: an inbound payload is copied once, because the read buffer is immutable; the copy
//! and the XOR go over the same block while it is in the cache. Short payloads share a chunk of
//! this thread, which is reused when all messages in it have been dropped. An outbound mask is
//! never used twice and cannot be predicted (RFC 6455, section 10.3).

use crate::{buffer::OutboundBuffer, machine};
use bytes::{Bytes, BytesMut};
use std::cell::RefCell;

/// The masking key of a frame.
pub(super) type MaskKey = [u8; 4];

/// The size of the chunk that short payloads share.
const CHUNK: usize = 16 * 1024;

/// Payloads of this size and more have memory of their own.
const OWN_FROM: usize = 4 * 1024;

/// The number of bytes that are copied before they are masked.
const BLOCK: usize = 4 * 1024;

/// The number of random bytes that are requested from the system at once.
const RANDOM: usize = 256;

thread_local! {
    static SHARED: RefCell<BytesMut> = RefCell::new(BytesMut::new());
    static MASKS: RefCell<Masks> = const { RefCell::new(Masks { bytes: [0; RANDOM], used: RANDOM }) };
}

struct Masks {
    bytes: [u8; RANDOM],
    used: usize,
}

/// Applies `key` to `bytes`.
#[inline]
pub(super) fn apply(bytes: &mut [u8], key: MaskKey) {
    let [a, b, c, d] = key;
    let wide = [a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d];
    let (chunks, rest) = bytes.as_chunks_mut::<16>();
    for chunk in chunks {
        *chunk = (u128::from_ne_bytes(*chunk) ^ u128::from_ne_bytes(wide)).to_ne_bytes();
    }
    for (byte, mask) in rest.iter_mut().zip(wide) {
        *byte ^= mask;
    }
}

/// Returns the key for the bytes after the first `n` bytes.
pub(super) fn rotate(key: MaskKey, n: usize) -> MaskKey {
    let mut key = key;
    key.rotate_left(n % 4);
    key
}

/// Appends `payload` to `to` and applies `key` to it.
pub(super) fn unmask_into(to: &mut Vec<u8>, payload: &[u8], key: MaskKey) {
    for block in payload.chunks(BLOCK) {
        let at = to.len();
        to.extend_from_slice(block);
        apply(&mut to[at..], key);
    }
}

/// Returns `payload` with `key` applied.
#[inline]
pub(super) fn unmask(payload: &[u8], key: MaskKey) -> Bytes {
    if payload.is_empty() {
        return Bytes::new();
    }
    if payload.len() >= OWN_FROM {
        let mut own = Vec::with_capacity(payload.len());
        unmask_into(&mut own, payload, key);
        return own.into();
    }
    in_shared_chunk(payload, |copy| apply(copy, key))
}

/// Copies a short payload to the chunk of this thread, and changes the copy.
#[inline]
fn in_shared_chunk(payload: &[u8], change: impl FnOnce(&mut [u8])) -> Bytes {
    SHARED.with_borrow_mut(|chunk| {
        if chunk.capacity() < payload.len() {
            // Takes the whole chunk back if its messages were dropped.
            chunk.reserve(CHUNK);
        }
        chunk.extend_from_slice(payload);
        change(chunk);
        chunk.split().freeze()
    })
}

/// Copies a short payload to the chunk of this thread. A long one takes the buffer, unless that is
/// much longer than the payload.
#[cfg(feature = "deflate")]
pub(in crate::websocket) fn short_or_own(payload: &mut Vec<u8>) -> Bytes {
    if payload.len() < OWN_FROM {
        return in_shared_chunk(payload, |_| {});
    }
    if payload.capacity() > 2 * payload.len() {
        return Bytes::copy_from_slice(payload);
    }
    std::mem::take(payload).into()
}

/// Appends `payload` to `output` with `key` applied.
pub(super) fn put_masked(output: &mut OutboundBuffer, payload: &[u8], key: MaskKey) {
    let mut block = [0; 1024];
    for part in payload.chunks(block.len()) {
        let block = &mut block[..part.len()];
        block.copy_from_slice(part);
        apply(block, key);
        output.put_slice(block);
    }
}

/// Returns an unpredictable key.
pub(super) fn random_key() -> MaskKey {
    let mut key = MaskKey::default();
    // A reserve would be shared by all nodes of a simulation.
    if machine::fill_random(&mut key) {
        return key;
    }
    MASKS.with_borrow_mut(|masks| {
        if masks.used == RANDOM {
            random(&mut masks.bytes);
            masks.used = 0;
        }
        let key = masks.bytes[masks.used..].first_chunk().copied();
        masks.used += size_of::<MaskKey>();
        key.unwrap_or_default()
    })
}

/// Fills `bytes` with random bytes of the system, or of a simulated machine.
///
/// # Panics
/// If the system fails to provide random numbers. Supported systems only do so while they start.
pub(in crate::websocket) fn random(bytes: &mut [u8]) {
    if !machine::fill_random(bytes) {
        getrandom::fill(bytes).expect("the system provides random numbers");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn naive(payload: &[u8], key: MaskKey) -> Vec<u8> {
        payload.iter().zip(key.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect()
    }

    #[test]
    fn every_length_is_masked_like_byte_by_byte() {
        let key = [0x12, 0x34, 0x56, 0xF8];
        let payload: Vec<u8> = (0..3 * BLOCK).map(|n| n as u8).collect();
        for len in (0..70).chain([OWN_FROM - 1, OWN_FROM, OWN_FROM + 1, BLOCK + 3, 3 * BLOCK]) {
            let payload = &payload[..len];
            assert_eq!(unmask(payload, key), naive(payload, key), "{len} bytes");
            let mut output = OutboundBuffer::new();
            put_masked(&mut output, payload, key);
            assert_eq!(output.to_bytes(), naive(payload, key), "{len} bytes");
        }
    }

    #[test]
    fn a_payload_in_parts_is_masked_like_the_whole() {
        let key = [1, 2, 3, 4];
        let payload: Vec<u8> = (0..=100).collect();
        for cut in 0..100 {
            let mut parts = Vec::new();
            unmask_into(&mut parts, &payload[..cut], key);
            unmask_into(&mut parts, &payload[cut..], rotate(key, cut));
            assert_eq!(parts, naive(&payload, key));
        }
    }

    #[test]
    fn short_payloads_reuse_one_chunk() {
        let first = unmask(&[0; 64], [0; 4]);
        let place = first.as_ptr().addr();
        drop(first);
        for _ in 0..1000 {
            let at = unmask(&[0; 64], [0; 4]).as_ptr().addr();
            assert!(at.abs_diff(place) < CHUNK, "another chunk was allocated");
        }
    }

    #[test]
    fn keys_differ() {
        let keys: std::collections::BTreeSet<_> = (0..1000).map(|_| random_key()).collect();
        assert!(keys.len() > 990, "{} different keys", keys.len());
    }
}
