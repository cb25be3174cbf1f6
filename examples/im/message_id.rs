//! The id that a client gives to its own message.

use serde::{
    Deserialize, Deserializer, Serialize, Serializer,
    de::{Error, Unexpected, Visitor},
};
use serde_json::value::RawValue;
use std::fmt;

/// A client's own id for a message, a string or a number. It is returned only to that client.
///
/// Stored as the JSON text that the client sent, because a number can be written in several ways
/// (`1e2` and `100`), and not every number fits in 64 bits.
#[derive(Clone)]
pub(crate) struct MessageId(Box<RawValue>);

impl MessageId {
    /// Returns `None` if the value is neither a string nor a number.
    pub(crate) fn from_json(value: Box<RawValue>) -> Option<Self> {
        value
            .get()
            .starts_with(|c: char| c == '"' || c == '-' || c.is_ascii_digit())
            .then_some(MessageId(value))
    }

    /// Returns the number, if the id is a number that fits in 64 bits.
    #[allow(dead_code, reason = "the server does not look into ids")]
    pub(crate) fn as_u64(&self) -> Option<u64> {
        self.0.get().parse().ok()
    }

    /// Returns the JSON text.
    #[allow(dead_code, reason = "only the server stores ids")]
    pub(crate) fn as_json(&self) -> &str {
        self.0.get()
    }

    #[allow(dead_code, reason = "only the server stores ids")]
    pub(crate) fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Returns the length of the JSON text in bytes.
    #[allow(dead_code, reason = "only the server counts")]
    pub(crate) fn len(&self) -> usize {
        self.0.get().len()
    }
}

impl From<u64> for MessageId {
    fn from(number: u64) -> Self {
        let text = number.to_string();
        MessageId(RawValue::from_string(text).expect("a number is JSON"))
    }
}

impl PartialEq for MessageId {
    /// Compares the JSON text.
    fn eq(&self, other: &Self) -> bool {
        self.0.get() == other.0.get()
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MessageId({})", self.0.get())
    }
}

impl Serialize for MessageId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for MessageId {
    /// Used by clients, whose own ids are short. Does not read a `RawValue`: a tagged enum buffers
    /// its fields, and a `RawValue` cannot be read from that buffer.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyId)
    }
}

struct AnyId;

impl Visitor<'_> for AnyId {
    type Value = MessageId;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string or a number")
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<MessageId, E> {
        Ok(number.into())
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<MessageId, E> {
        id_of(&number)
    }

    fn visit_f64<E: Error>(self, number: f64) -> Result<MessageId, E> {
        id_of(&number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<MessageId, E> {
        id_of(&text)
    }
}

fn id_of<T: Serialize, E: Error>(value: &T) -> Result<MessageId, E> {
    let raw = serde_json::value::to_raw_value(value).map_err(E::custom)?;
    MessageId::from_json(raw).ok_or_else(|| E::invalid_type(Unexpected::Other("null"), &AnyId))
}
