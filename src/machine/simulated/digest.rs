//! A hash of the bytes of one direction of a connection.
//!
//! Invariant: the value depends on the bytes, and not on how they were split into calls. So equal
//! streams have equal digests, however they were written and read.

use super::seeds::mix;

const FACTOR: u64 = 0x517c_c1b7_2722_0a95;

#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Digest {
    state: u64,
    /// Up to seven bytes that do not fill a word yet.
    partial: u64,
    count: u64,
}

impl Digest {
    /// Returns the digest of one piece.
    pub(super) fn of(bytes: &[u8]) -> u64 {
        let mut digest = Self::default();
        digest.update(bytes);
        digest.value()
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        let filled = (self.count % 8) as usize;
        self.count += bytes.len() as u64;
        let mut bytes = bytes;
        if filled > 0 {
            let (head, rest) = bytes.split_at(bytes.len().min(8 - filled));
            self.partial |= word(head) << (8 * filled);
            if filled + head.len() < 8 {
                return;
            }
            self.add(self.partial);
            bytes = rest;
        }
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.add(u64::from_le_bytes(*word));
        }
        self.partial = word(rest);
    }

    fn add(&mut self, word: u64) {
        self.state = (self.state.rotate_left(5) ^ word).wrapping_mul(FACTOR);
    }

    /// Returns the number of bytes.
    pub(super) fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn value(&self) -> u64 {
        mix(self.state.rotate_left(5) ^ self.partial ^ self.count.wrapping_mul(FACTOR))
    }
}

/// Returns up to eight bytes as a number.
fn word(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

#[cfg(test)]
mod tests {
    use super::Digest;

    #[test]
    fn a_digest_does_not_depend_on_the_split() {
        let bytes: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(7) + 1).collect();
        let whole = Digest::of(&bytes);
        for a in 0..=bytes.len() {
            for b in a..=bytes.len() {
                let mut digest = Digest::default();
                for part in [&bytes[..a], &bytes[a..b], &bytes[b..]] {
                    digest.update(part);
                }
                assert_eq!(digest.value(), whole, "split at {a} and {b}");
                assert_eq!(digest.count(), 40);
            }
        }
    }

    #[test]
    fn a_digest_depends_on_each_byte_and_on_the_length() {
        let bytes = [3; 21];
        for at in 0..bytes.len() {
            let mut other = bytes;
            other[at] ^= 1;
            assert_ne!(Digest::of(&other), Digest::of(&bytes), "byte {at}");
            assert_ne!(Digest::of(&bytes[..at]), Digest::of(&bytes), "length {at}");
        }
        assert_ne!(Digest::of(&[0]), Digest::of(&[0, 0]));
    }
}
