//! Searches for single bytes in short lines.
//!
//! A line of a head is a few words long, and calling a vectorised search costs more than looking at
//! them. So the first [`SHORT`] bytes are compared word by word, and memchr searches the rest.

use memchr::{memchr, memchr2};

/// The number of bytes that are compared here.
const SHORT: usize = 32;

const ONES: u64 = u64::from_ne_bytes([1; 8]);
const HIGH: u64 = ONES << 7;

/// The first byte value above CR and LF.
const ABOVE_CR: u64 = b'\r' as u64 + 1;

/// Returns the place of the first `byte`.
#[inline]
pub(super) fn find(byte: u8, bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < SHORT
        && let Some(word) = word(bytes, at)
    {
        let other = word ^ (ONES * u64::from(byte));
        // The high bit of each byte that is zero, up to the first one.
        let found = other.wrapping_sub(ONES) & !other & HIGH;
        if found != 0 {
            return Some(at + first(found));
        }
        at += 8;
    }
    memchr(byte, &bytes[at..]).map(|found| at + found)
}

/// Returns the place of the first CR or LF.
#[inline]
pub(super) fn find_line_end(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at < SHORT
        && let Some(word) = word(bytes, at)
    {
        // The high bit of each byte that is at most CR, up to the first one.
        let found = word.wrapping_sub(ONES * ABOVE_CR) & !word & HIGH;
        if found != 0 {
            at += first(found);
            if matches!(bytes[at], b'\r' | b'\n') {
                return Some(at);
            }
            // Another control character, such as a tab.
            break;
        }
        at += 8;
    }
    memchr2(b'\r', b'\n', &bytes[at..]).map(|found| at + found)
}

/// Returns eight bytes from `at` on, the first one in the lowest bits.
#[inline]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|word| u64::from_le_bytes(*word))
}

/// Returns the first byte whose high bit is set.
#[inline]
fn first(high: u64) -> usize {
    (high.trailing_zeros() / 8) as usize
}

#[cfg(test)]
mod tests {
    use super::{find, find_line_end};
    use proptest::prelude::*;

    proptest! {
        /// Bytes around the needles, and above ASCII.
        #[test]
        fn the_first_place_is_found(
            bytes in prop::collection::vec(
                prop_oneof![4 => 0x20u8..0x7F, 1 => 0x08u8..0x10, 1 => 0x38u8..0x3C, 1 => 0x7Eu8..], 0..80),
        ) {
            for wanted in [b':', b'\r', 0x80, 0xFF] {
                prop_assert_eq!(find(wanted, &bytes), bytes.iter().position(|byte| *byte == wanted));
            }
            let line_end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            prop_assert_eq!(find_line_end(&bytes), line_end);
        }
    }
}
