//! `JsonFormat`: messages as JSON.

use super::format::TopicFormat;
use crate::broker::store::Position;
use crate::error::{Error, Result};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, marker::PhantomData};

/// Messages as JSON, for any type of serde.
///
/// ```
/// use netwheel::broker::JsonFormat;
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Clone, Serialize, Deserialize)]
/// struct Said { text: String, #[serde(default)] offset: u64 }
///
/// // The position is not part of the stored message.
/// let format = JsonFormat::new().with_position(|said: &mut Said, position| said.offset = position.offset);
/// # drop(format);
/// ```
pub struct JsonFormat<M> {
    with_position: Option<fn(&mut M, Position)>,
    message: PhantomData<fn(M) -> M>,
}

impl<M> JsonFormat<M> {
    /// Creates a format that ignores positions.
    pub fn new() -> Self {
        JsonFormat { with_position: None, message: PhantomData }
    }

    /// Calls `set` with each message that was stored and with its position.
    pub fn with_position(mut self, set: fn(&mut M, Position)) -> Self {
        self.with_position = Some(set);
        self
    }
}

impl<M: Serialize + DeserializeOwned + 'static> TopicFormat<M> for JsonFormat<M> {
    fn encode(&self, message: &M) -> Result<Bytes> {
        serde_json::to_vec(message).map(Bytes::from).map_err(Error::other)
    }

    fn decode(&self, payload: Bytes, position: Option<Position>) -> Result<M> {
        let mut message = serde_json::from_slice(&payload).map_err(Error::other)?;
        if let (Some(set), Some(position)) = (self.with_position, position) {
            set(&mut message, position);
        }
        Ok(message)
    }
}

impl<M> Default for JsonFormat<M> {
    fn default() -> Self {
        Self::new()
    }
}

impl<M> fmt::Debug for JsonFormat<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JsonFormat")
    }
}
