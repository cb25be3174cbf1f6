//! `MessageId`: the id by which a repeated message is recognised.

use crate::error::{Error, Result};
use std::sync::Arc;

/// The id of a message: a sender, and the sender's own id of the message.
///
/// A client that does not know whether its message was stored sends it again with the same id.
/// Within the [window](super::Publication::window), the message is stored once. Senders have ids of
/// their own, so a client cannot suppress the messages of another one. Sender and id have at most
/// 64 bytes each.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MessageId(Arc<[u8]>);

impl MessageId {
    /// The greatest length of the sender, and of the id, in bytes.
    pub const MAX_LEN: usize = 64;

    /// Creates an id.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the sender or the id is too long.
    pub fn new(sender: impl AsRef<[u8]>, id: impl AsRef<[u8]>) -> Result<Self> {
        let (sender, id) = (sender.as_ref(), id.as_ref());
        for (setting, value) in [("message sender", sender), ("message id", id)] {
            if value.len() > Self::MAX_LEN {
                return Err(Error::setting(
                    setting,
                    format_args!("{} bytes long", value.len()),
                    "at most 64 bytes",
                ));
            }
        }
        // The length comes first, so that different pairs have different bytes. It is at most 64.
        let bytes = [&[sender.len() as u8], sender, id].concat();
        Ok(MessageId(bytes.into()))
    }

    /// Returns both parts in one text of bytes, which no other id has. At most 129 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_pairs_have_different_bytes() {
        let id = |sender: &str, id: &str| MessageId::new(sender, id).unwrap();
        assert_ne!(id("ann", "1"), id("an", "n1"));
        assert_ne!(id("", "ann1"), id("ann1", ""));
        assert_eq!(id("ann", "1").as_bytes(), b"\x03ann1");
        assert!(MessageId::new("x".repeat(65), "").is_err() && MessageId::new("", "x".repeat(65)).is_err());
        assert_eq!(id(&"x".repeat(64), &"x".repeat(64)).as_bytes().len(), 129);
    }
}
