//! `NodeId` and `NodeLease`: which nodes are alive.

use crate::error::{Error, Result};
use std::{fmt, sync::Arc, time::Duration};

/// A node: a name that an operator gives, and a number that differs in each life of the node.
///
/// A node whose lease has ended begins another life under the same name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId {
    name: Arc<str>,
    incarnation: u64,
}

impl NodeId {
    /// The greatest length of a name, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Creates an id.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the name is not 1 to 64 ASCII letters, digits, `-`, `_` or `.`.
    pub fn new(name: impl AsRef<str>, incarnation: u64) -> Result<Self> {
        let name = name.as_ref();
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if name.is_empty() || name.len() > Self::MAX_LEN || !name.bytes().all(is_allowed) {
            let allowed = "1 to 64 ASCII letters, digits, `-`, `_` or `.`";
            return Err(Error::setting("node", name.escape_debug(), allowed));
        }
        Ok(NodeId { name: name.into(), incarnation })
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the number of this life of the node.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Returns the id of another life of the node.
    pub(in crate::broker) fn with_incarnation(&self, incarnation: u64) -> Self {
        NodeId { name: self.name.clone(), incarnation }
    }

    /// Parses the text that `Display` writes. `None` for other texts.
    pub fn parse(text: &str) -> Option<Self> {
        let (name, incarnation) = text.split_once(':')?;
        NodeId::new(name, incarnation.parse().ok()?).ok()
    }
}

impl fmt::Display for NodeId {
    /// Writes `name:incarnation`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.name, self.incarnation)
    }
}

/// A request for the lease of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeLease {
    /// The node.
    pub node: NodeId,
    /// How long the lease lives without another renewal, counted from when the store receives the
    /// request.
    pub duration: Duration,
    /// What the node asks for.
    pub kind: LeaseKind,
}

/// What a node asks for. See [`NodeLease`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum LeaseKind {
    /// The first lease of a node that has just started. It ends the lease of another incarnation of
    /// the same name, which may have crashed.
    Begin,
    /// The lease of another incarnation, after that of an earlier one has ended. Fails while an
    /// incarnation of the same name that is not this one has a lease.
    BeginAgain,
    /// A longer time for a lease that has not ended.
    Renew,
}

impl NodeLease {
    /// Creates a request that begins the first lease of a node.
    pub fn begin(node: NodeId, duration: Duration) -> Self {
        NodeLease { node, duration, kind: LeaseKind::Begin }
    }

    /// Creates a request that begins a lease after that of an earlier incarnation has ended.
    pub fn begin_again(node: NodeId, duration: Duration) -> Self {
        NodeLease { node, duration, kind: LeaseKind::BeginAgain }
    }

    /// Creates a request that renews a lease.
    pub fn renew(node: NodeId, duration: Duration) -> Self {
        NodeLease { node, duration, kind: LeaseKind::Renew }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_checked_and_parsed() {
        let node = NodeId::new("eu-1.a_b", u64::MAX).unwrap();
        assert_eq!(NodeId::parse(&node.to_string()), Some(node));
        let longer = "x".repeat(65);
        assert!(["", "a:b", "ä", " ", &longer].iter().all(|name| NodeId::new(name, 1).is_err()));
        assert!(["", "a", "a:", "a:-1", ":1", "a:b:1"].iter().all(|text| NodeId::parse(text).is_none()));
    }
}
