//! Conversion between frames and serde types, as JSON.
//!
//! Invariants: one frame is one JSON value. A frame that does not parse is one error, and later
//! frames are read as usual. The codec separates the frames.

use crate::{
    error::{EncodeError, PeerError, Result},
    pipeline::{Stage, StageContext},
};
use bytes::Bytes;
use serde::{Serialize, de::DeserializeOwned};
use std::{fmt, io, marker::PhantomData};

/// The length of serde's explanation in characters. It quotes the input, which the peer chooses.
const MAX_EXPLANATION: usize = 160;

/// A [`Stage`] that reads frames as JSON values of type `In`, and writes values of type `Out` as
/// frames.
///
/// A frame is [`Bytes`] by default, as behind [`Line`](crate::codec::Line). On WebSocket
/// connections it is a `websocket::Message`: `Json::<Request, Reply, Message>::new()`. Values are
/// written as text messages there, and read from text and binary messages. Other messages are
/// dropped. The connection still closes in order, with the code 1007 if a message is not a value of
/// type `In`.
///
/// ```text
///   frames in                        messages           messages out          frames out
///   {"Login":{"user":"ann"}}    ►    Request::Login     Reply::Welcome   ►    "Welcome"
///   {"Login":                   ►    PeerError::Malformed("EOF while parsing a value at line 1 column 9")
/// ```
///
/// White space around the value is allowed, a second value is not. Output is on one line, because
/// JSON escapes newlines, so it works with [`Line`](crate::codec::Line) and with
/// [`LengthField`](crate::codec::LengthField).
///
/// Runs on the channel's loop and has no state. The codec's limit on frames bounds the size of a
/// value, and `serde_json` bounds its nesting (128 levels).
///
/// # Errors
///
/// - [`PeerError::Malformed`] for a frame that is not a value of type `In`. The error contains
///   serde's explanation, shortened and without control characters, and the line and column,
///   counted from 1.
/// - [`EncodeError::Unencodable`] for a message that serde cannot serialise, which is returned to
///   the writer: for example a map whose keys are not strings.
///
/// ```
/// use netwheel::{Pipeline, codec::LengthField, stage::Json};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Deserialize)]
/// enum Request {
///     Login { user: String },
/// }
///
/// #[derive(Serialize)]
/// enum Reply {
///     Welcome,
/// }
///
/// let pipeline = Pipeline::codec(LengthField::u32().max_len(64 * 1024)) // bytes  <-> frames
///     .stage(Json::<Request, Reply>::new());        // frames <-> messages
/// # let _ = pipeline;
/// # let _ = |user| (Request::Login { user }, Reply::Welcome);
/// ```
pub struct Json<In, Out, Frame = Bytes> {
    types: PhantomData<fn(In, Frame) -> Out>,
}

/// A message of a protocol that can carry a JSON value.
pub(crate) trait JsonFrame: 'static {
    /// Returns the bytes of the value. `None` if the message carries none.
    fn json(&self) -> Option<&[u8]>;

    fn from_json(text: String) -> Self;
}

impl JsonFrame for Bytes {
    fn json(&self) -> Option<&[u8]> {
        Some(self)
    }

    fn from_json(text: String) -> Self {
        text.into()
    }
}

impl<In, Out, Frame> Json<In, Out, Frame> {
    /// Returns the stage, which has no settings.
    pub const fn new() -> Self {
        Json { types: PhantomData }
    }
}

impl<In, Out, Frame> Default for Json<In, Out, Frame> {
    fn default() -> Self {
        Self::new()
    }
}

impl<In, Out, Frame> Clone for Json<In, Out, Frame> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<In, Out, Frame> Copy for Json<In, Out, Frame> {}

impl<In, Out, Frame> fmt::Debug for Json<In, Out, Frame> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Json")
    }
}

impl<In, Out, Frame> Stage for Json<In, Out, Frame>
where
    In: DeserializeOwned + 'static,
    Out: Serialize + 'static,
    Frame: JsonFrame,
{
    type ReadIn = Frame;
    type ReadOut = In;
    type WriteIn = Out;
    type WriteOut = Frame;

    fn read(&mut self, _ctx: &mut StageContext<'_, Self>, frame: Frame) -> Result<Option<In>> {
        frame.json().map(parse).transpose()
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Out) -> Result {
        ctx.write(Frame::from_json(serialise(&message)?))
    }

    fn encoded_len_hint(message: &Out, _: impl Fn(&Frame) -> Option<usize>) -> Option<usize> {
        json_len(message)
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}

/// Returns the length of the message as JSON. Serialises it without storing the output.
fn json_len<T: Serialize>(message: &T) -> Option<usize> {
    #[derive(Default)]
    struct Count(usize);

    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    let mut count = Count::default();
    serde_json::to_writer(&mut count, message).ok().map(|()| count.0)
}

fn parse<T: DeserializeOwned>(frame: &[u8]) -> Result<T> {
    serde_json::from_slice(frame).map_err(|e| PeerError::Malformed(explain(&e).into()).into())
}

fn serialise<T: Serialize>(message: &T) -> Result<String> {
    match serde_json::to_string(message) {
        Ok(text) => Ok(text),
        Err(e) => Err(EncodeError::Unencodable(format!("not possible as JSON: {e}").into()).into()),
    }
}

/// Returns serde's explanation in a form for log lines.
#[cold]
fn explain(error: &serde_json::Error) -> String {
    let place = format!(" at line {} column {}", error.line(), error.column());
    let text = error.to_string();
    let text = text.strip_suffix(&place).unwrap_or(&text);
    let mut chars = text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c });
    let mut short: String = chars.by_ref().take(MAX_EXPLANATION).collect();
    if chars.next().is_some() {
        short.push('…');
    }
    short + &place
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use serde::Deserialize;
    use std::collections::BTreeMap;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Message {
        Say { text: String },
        Ping,
    }

    fn malformed(frame: &[u8]) -> String {
        match parse::<Message>(frame) {
            Err(Error::Peer(PeerError::Malformed(text))) => text.to_string(),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_message_survives_a_round_trip() {
        for message in [Message::Ping, Message::Say { text: "two\nlines \u{1F980}".into() }] {
            let frame = serialise(&message).unwrap();
            assert!(!frame.contains('\n'), "{frame:?}");
            assert_eq!(parse::<Message>(frame.as_bytes()).unwrap(), message);
        }
        assert_eq!(parse::<Message>(b" \"Ping\"\r\n").unwrap(), Message::Ping);
    }

    #[test]
    fn the_error_of_a_malformed_frame_has_its_position() {
        assert_eq!(malformed(b""), "EOF while parsing a value at line 1 column 0");
        assert_eq!(malformed(b"\"Ping\"\n x"), "trailing characters at line 2 column 2");
        assert!(malformed(b"\xFF").ends_with(" at line 1 column 1"));
        assert!(malformed(&[b'['; 1 << 20]).ends_with(" at line 1 column 1"), "no deep recursion");
    }

    #[test]
    fn a_malformed_frame_is_not_echoed_at_length() {
        let frame = format!("\"{}\"", "ü".repeat(100_000));
        let text = malformed(frame.as_bytes());
        assert!(text.len() < 500, "{} bytes", text.len());
        assert!(text.contains('…') && text.contains(" at line 1 column "), "{text}");
        assert!(!malformed(br#""two\nlines\u001b[31m""#).contains(char::is_control));
    }

    #[test]
    fn a_message_that_json_cannot_express_is_an_encode_error() {
        let keys_are_no_strings = BTreeMap::from([((1, 2), 3)]);
        match serialise(&keys_are_no_strings) {
            Err(Error::Encode(EncodeError::Unencodable(text))) => assert!(text.contains("key"), "{text}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_stage_is_send_whatever_its_messages_are() {
        fn is_send<T: Send>(_: T) {}
        is_send(Json::<std::rc::Rc<u8>, *const u8>::new());
    }
}
