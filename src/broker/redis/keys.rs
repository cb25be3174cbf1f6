//! `Keys`: the names of keys and channels.
//!
//! Everything of a partition has the hash tag `{prefix:number}`, and so one slot of Redis Cluster.

use bytes::{Bytes, BytesMut};

/// Makes names with a prefix.
#[derive(Debug, Clone)]
pub(super) struct Keys {
    prefix: String,
}

/// Names in a partition.
#[derive(Debug, Clone)]
pub(super) struct PartitionKeys {
    /// The hash tag and a colon.
    tag: Bytes,
}

impl Keys {
    pub(super) fn new(prefix: &str) -> Self {
        Keys { prefix: prefix.to_owned() }
    }

    pub(super) fn partition(&self, number: u16) -> PartitionKeys {
        PartitionKeys { tag: format!("{{{}:{number}}}:", self.prefix).into() }
    }

    /// Returns the name of a key that belongs to no partition.
    pub(super) fn shared(&self, name: &str) -> Bytes {
        format!("{{{}}}:{name}", self.prefix).into()
    }
}

impl PartitionKeys {
    fn with(&self, parts: &[&[u8]]) -> Bytes {
        let length = self.tag.len() + parts.iter().map(|part| part.len()).sum::<usize>();
        let mut name = BytesMut::with_capacity(length);
        name.extend_from_slice(&self.tag);
        parts.iter().for_each(|part| name.extend_from_slice(part));
        name.freeze()
    }

    /// Returns the channel of events.
    pub(super) fn channel(&self) -> Bytes {
        self.with(&[b"events"])
    }

    pub(super) fn sequence(&self) -> Bytes {
        self.with(&[b"sequence"])
    }

    /// Returns the sorted set of nodes whose leases have ended.
    pub(super) fn ended(&self) -> Bytes {
        self.with(&[b"ended"])
    }

    pub(super) fn metadata(&self, topic: &[u8]) -> Bytes {
        self.with(&[b"topic:", topic])
    }

    pub(super) fn stream(&self, topic: &[u8]) -> Bytes {
        self.with(&[b"stream:", topic])
    }

    pub(super) fn map(&self, topic: &[u8]) -> Bytes {
        self.with(&[b"map:", topic])
    }

    /// Returns the set of nodes that own entries.
    pub(super) fn owners(&self) -> Bytes {
        self.with(&[b"owners"])
    }

    /// Returns the sorted set of entries that a node owns.
    pub(super) fn owned(&self, node: &[u8]) -> Bytes {
        self.with(&[b"owned:", node])
    }

    /// Returns the key that remembers the id of a message. The length separates topic and id.
    pub(super) fn message_id(&self, topic: &[u8], id: &[u8]) -> Bytes {
        let length = topic.len().to_string();
        self.with(&[b"id:", length.as_bytes(), b":", topic, id])
    }

    /// Returns the begin of the keys of metadata, of maps, and of the entries of nodes.
    pub(super) fn begins(&self) -> [Bytes; 3] {
        [self.metadata(b""), self.map(b""), self.owned(b"")]
    }
}
