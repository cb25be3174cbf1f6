//! Reproducible pseudo-random bytes.

use bytes::Bytes;

/// A small generator (xorshift64*) that yields the same numbers in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.max(1))
    }

    /// Returns the number of cases of a test with random input: 10,000, or the value of
    /// `NETWHEEL_RANDOM_CASES`.
    pub(crate) fn cases() -> usize {
        std::env::var("NETWHEEL_RANDOM_CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(10_000)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    /// Returns a number between `from` and `to`, both inclusive.
    pub(crate) fn between(&mut self, from: usize, to: usize) -> usize {
        from + (self.number() % (to - from + 1) as u64) as usize
    }

    pub(crate) fn bytes(&mut self, n: usize) -> Bytes {
        let mut bytes = Vec::with_capacity(n + 8);
        while bytes.len() < n {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(n);
        bytes.into()
    }

    /// Splits `bytes` into chunks of `from` to `to` bytes. The last may be shorter.
    pub(crate) fn chunks(&mut self, bytes: &Bytes, from: usize, to: usize) -> Vec<Bytes> {
        let mut rest = bytes.clone();
        let mut chunks = Vec::new();
        while !rest.is_empty() {
            let n = self.between(from, to).min(rest.len());
            chunks.push(rest.split_to(n));
        }
        chunks
    }
}
