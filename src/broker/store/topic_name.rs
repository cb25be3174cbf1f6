//! `TopicName`: the name of a topic.

use crate::error::{Error, Result};
use std::{borrow::Borrow, fmt, sync::Arc};

/// The name of a topic: 1 to 200 bytes of UTF-8 without control characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TopicName(Arc<str>);

impl TopicName {
    /// The greatest length, in bytes.
    pub const MAX_LEN: usize = 200;

    /// Creates a name.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if it is empty, too long, or has control characters.
    pub fn new(name: impl AsRef<str>) -> Result<Self> {
        let name = name.as_ref();
        if name.is_empty() || name.len() > Self::MAX_LEN || name.chars().any(char::is_control) {
            let allowed = "1 to 200 bytes without control characters";
            return Err(Error::setting("topic", name.escape_debug(), allowed));
        }
        Ok(TopicName(name.into()))
    }

    /// Returns the name as a text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Borrow<str> for TopicName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked() {
        let longest = "x".repeat(TopicName::MAX_LEN);
        assert!(["a", "{b}", "Küche", "a b", &longest].iter().all(|name| TopicName::new(name).is_ok()));
        let longer = "x".repeat(TopicName::MAX_LEN + 1);
        assert!(["", "a\n", "\0", &longer].iter().all(|name| TopicName::new(name).is_err()));
    }
}
