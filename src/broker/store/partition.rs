//! `Partitions`: how topics are spread. `Sequence`: the number of an event in a partition.

use super::topic_name::TopicName;
use crate::error::{Error, Result};
use std::fmt;

/// The number of partitions of a store: a power of two from 1 to 256. All nodes have the same one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Partitions(u16);

impl Partitions {
    /// Creates the number. The default is 64.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if it is not a power of two from 1 to 256.
    pub fn new(partitions: u16) -> Result<Self> {
        if !partitions.is_power_of_two() || partitions > 256 {
            return Err(Error::setting("partitions", partitions, "a power of two from 1 to 256"));
        }
        Ok(Partitions(partitions))
    }

    /// Returns the number.
    pub const fn get(self) -> u16 {
        self.0
    }

    /// Returns the partition of a topic: the 64-bit FNV-1a hash of its name, with its upper half
    /// folded into the lower one by exclusive or, modulo the number of partitions.
    ///
    /// ```
    /// use netwheel::broker::{TopicName, store::Partitions};
    ///
    /// // FNV-1a of "foobar" is 0x85944171f73967e8, and 0x85944171 ^ 0xf73967e8 is 0x72ad2699.
    /// let partition = Partitions::new(64)?.of(&TopicName::new("foobar")?);
    /// assert_eq!(partition.get(), 0x19);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn of(self, topic: &TopicName) -> Partition {
        let hash = fnv_1a(topic.as_str().as_bytes());
        let folded = (hash >> 32) ^ hash;
        // Below 256.
        Partition((folded % u64::from(self.0)) as u16)
    }

    /// Returns all partitions.
    pub fn all(self) -> impl Iterator<Item = Partition> {
        (0..self.0).map(Partition)
    }
}

impl Default for Partitions {
    fn default() -> Self {
        Partitions(64)
    }
}

/// A part of the topics: one channel of events, with one sequence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Partition(u16);

impl Partition {
    /// Creates a partition from its number.
    pub const fn new(number: u16) -> Self {
        Partition(number)
    }

    /// Returns the number, from 0.
    pub const fn get(self) -> u16 {
        self.0
    }
}

impl fmt::Display for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The number of an event in its partition, which tells followers whether they have missed events.
///
/// A store that may have lost the number begins another generation, such as a server of Redis that
/// has restarted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct Sequence {
    /// A random number. Numbers of different generations cannot be compared.
    pub generation: u64,
    /// The number of stored events in this generation, with this one.
    pub number: u64,
}

impl Sequence {
    /// Creates a sequence.
    pub const fn new(generation: u64, number: u64) -> Self {
        Sequence { generation, number }
    }
}

fn fnv_1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_fnv_1a() {
        // Test vectors of draft-eastlake-fnv.
        assert_eq!(fnv_1a(b""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv_1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv_1a(b"foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn topics_are_spread_evenly() {
        let partitions = Partitions::default();
        let mut topics = vec![0; partitions.get().into()];
        for room in 0..64_000 {
            let topic = TopicName::new(format!("room-{room}")).unwrap();
            topics[usize::from(partitions.of(&topic).get())] += 1;
        }
        assert!(topics.iter().all(|topics| (800..1200).contains(topics)), "{topics:?}");
    }

    #[test]
    fn the_number_is_checked() {
        assert!([1, 2, 64, 256].iter().all(|n| Partitions::new(*n).is_ok()));
        assert!([0, 3, 65, 512].iter().all(|n| Partitions::new(*n).is_err()));
        assert_eq!(Partitions::new(2).unwrap().all().count(), 2);
    }
}
