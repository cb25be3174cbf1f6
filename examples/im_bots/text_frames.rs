//! Text frames of a WebSocket connection as the frames of another stage.

use bytes::Bytes;
use netwheel::{
    error::EncodeError,
    prelude::*,
    websocket::{Message, Utf8Bytes},
};

/// Passes on the bytes of text frames, and writes bytes as text frames.
pub(crate) struct TextFrames;

impl Stage for TextFrames {
    type ReadIn = Message;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Message;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Message) -> Result<Option<Bytes>> {
        match message {
            Message::Text(text) => Ok(Some(text.into_bytes())),
            _ => Ok(None),
        }
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, text: Bytes) -> Result {
        let text = Utf8Bytes::try_from(text);
        ctx.write(Message::Text(text.map_err(|e| EncodeError::Unencodable(e.to_string().into()))?))
    }
}
