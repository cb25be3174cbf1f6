//! `Values`: a set of small numbers.

/// A set of numbers below 64: the values of a field, or days of a month.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Values(u64);

impl Values {
    pub(super) fn insert(&mut self, value: u8) {
        debug_assert!(value < 64);
        self.0 |= 1 << value;
    }

    pub(super) fn contains(self, value: u8) -> bool {
        self.0 >> value & 1 == 1
    }

    pub(super) fn union(self, other: Values) -> Values {
        Values(self.0 | other.0)
    }

    pub(super) fn intersection(self, other: Values) -> Values {
        Values(self.0 & other.0)
    }

    pub(super) fn len(self) -> u32 {
        self.0.count_ones()
    }

    /// Returns the smallest value, or 0 if the set is empty.
    pub(super) fn first(self) -> u8 {
        self.at_or_after(0).unwrap_or(0)
    }

    /// Returns the smallest value that is `from` or more. `from` is at most 63.
    pub(super) fn at_or_after(self, from: u8) -> Option<u8> {
        let above = self.0 >> from;
        (above != 0).then(|| from + above.trailing_zeros() as u8)
    }

    /// Returns the values in ascending order.
    pub(super) fn iter(self) -> impl Iterator<Item = u8> {
        std::iter::successors(self.at_or_after(0), move |&value| self.at_or_after(value + 1))
    }
}

impl FromIterator<u8> for Values {
    fn from_iter<I: IntoIterator<Item = u8>>(values: I) -> Self {
        let mut set = Values::default();
        values.into_iter().for_each(|value| set.insert(value));
        set
    }
}
