//! A count of the different states that loops and channels have been in.
//!
//! A state is a hash of the bits of a channel, of how much input and output its socket has, and of
//! the kind of the last fault. The hashes are kept as a set of bits, so the count is an estimate.

use super::seeds::mix;

/// The number of bits. Enough for a million states.
const BITS: u64 = 1 << 20;

/// A set of states.
#[derive(Debug, Clone, Default)]
pub(crate) struct States {
    /// Empty until the first state is seen.
    bits: Vec<u64>,
}

impl States {
    #[inline]
    pub(super) fn see(&mut self, state: u64) {
        if self.bits.is_empty() {
            self.bits = vec![0; (BITS / 64) as usize];
        }
        let bit = mix(state) % BITS;
        self.bits[(bit / 64) as usize] |= 1 << (bit % 64);
    }

    /// Adds the states of another set.
    pub(crate) fn merge(&mut self, other: &States) {
        if self.bits.is_empty() {
            self.bits.clone_from(&other.bits);
            return;
        }
        for (word, other) in self.bits.iter_mut().zip(&other.bits) {
            *word |= other;
        }
    }

    /// Returns about how many states are in the set. States with equal bits count once.
    pub(crate) fn count(&self) -> u64 {
        self.bits.iter().map(|word| u64::from(word.count_ones())).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::States;

    #[test]
    fn equal_states_count_once_also_in_two_sets() {
        let (mut a, mut b) = (States::default(), States::default());
        assert_eq!(a.count(), 0);
        for state in 0..1000 {
            a.see(state);
            a.see(state / 2);
            b.see(state + 500);
        }
        assert!((990..=1000).contains(&a.count()), "{}", a.count());
        let mut both = States::default();
        both.merge(&a);
        both.merge(&b);
        assert!((1480..=1500).contains(&both.count()), "{}", both.count());
    }
}
