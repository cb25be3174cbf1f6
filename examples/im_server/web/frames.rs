//! The chat protocol over WebSocket: one JSON object per text frame.

use crate::protocol::{Reason, Reply, Request};
use netwheel::{
    error::{EncodeError, PeerError},
    prelude::*,
    websocket::{CloseCode, Message},
};

/// Characters of an explanation that quotes the client's text.
const MAX_EXPLANATION: usize = 160;

/// Reads requests from text frames, and writes replies as text frames. A `bye` is followed by a
/// Close frame, so that the browser sees a clean end.
pub(crate) struct ChatFrames;

impl Stage for ChatFrames {
    type ReadIn = Message;
    type ReadOut = Request;
    type WriteIn = Reply;
    type WriteOut = Message;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Message) -> Result<Option<Request>> {
        match message {
            Message::Text(text) => match serde_json::from_str(&text) {
                Ok(request) => Ok(Some(request)),
                Err(error) => {
                    let why: String = error.to_string().chars().take(MAX_EXPLANATION).collect();
                    Err(PeerError::Malformed(why.into()).into())
                }
            },
            Message::Binary(_) => Err(PeerError::Malformed("a binary frame".into()).into()),
            _ => Ok(None),
        }
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, reply: Reply) -> Result {
        let text = serde_json::to_string(&reply)
            .map_err(|error| EncodeError::Unencodable(error.to_string().into()))?;
        ctx.write(Message::text(text))?;
        match reply {
            Reply::Bye { reason, retry_after_ms } => {
                let hint = retry_after_ms.map(|ms| format!("retry after {ms} ms"));
                ctx.write(Message::close(close_code(reason), hint.unwrap_or_default()))
            }
            _ => Ok(()),
        }
    }

    /// All clients get the same bytes, so a message to a room is encoded once.
    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}

fn close_code(reason: Reason) -> CloseCode {
    match reason {
        Reason::Shutdown | Reason::MaxAge => CloseCode::GOING_AWAY,
        Reason::ProtocolError => CloseCode::POLICY_VIOLATION,
        Reason::Overloaded => CloseCode::TRY_AGAIN_LATER,
        _ => CloseCode::NORMAL,
    }
}
