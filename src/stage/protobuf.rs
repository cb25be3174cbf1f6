//! Conversion between frames and protobuf messages.
//!
//! Invariants: one frame is one message. A frame that does not parse is one error, and later frames
//! are read as usual. The codec separates the frames.

use crate::{
    error::{PeerError, Result},
    pipeline::{Stage, StageContext},
};
use bytes::Bytes;
use prost::{DecodeError, Message};
use std::{fmt, marker::PhantomData};

/// The length of prost's explanation in characters. It has the path to the field, which the peer
/// can make long by nesting.
const MAX_EXPLANATION: usize = 160;

/// A [`Stage`] that reads frames as protobuf messages of type `In`, and writes messages of type
/// `Out` as frames.
///
/// The types implement [`prost::Message`]. Usually prost-build generates them from `.proto` files.
/// Behind [`Varint`](crate::codec::Varint) the stage speaks protobuf's delimited format, behind
/// [`LengthField`](crate::codec::LengthField) any other framing.
///
/// Fields that prost generates as [`Bytes`] share the memory of the frame.
///
/// Runs on the channel's loop and has no state. The codec's limit on frames bounds the size of a
/// message, and prost bounds its nesting (100 levels). A value may take more memory than its frame:
/// an empty message in a repeated field takes 2 bytes in the frame, and the size of its type in
/// memory.
///
/// # Errors
///
/// [`PeerError::Malformed`] for a frame that is not a message of type `In`. The error contains
/// prost's explanation, shortened, which names the field. Every message can be written, but the
/// codec refuses one that is too long.
///
/// ```
/// use netwheel::{Pipeline, codec::Varint, stage::Protobuf};
///
/// // prost implements the trait for `String` and `u64`: `google.protobuf.StringValue` and
/// // `UInt64Value`. A program uses types that prost-build generates.
/// let pipeline = Pipeline::codec(Varint::new().max_len(64 * 1024)) // bytes  <-> frames
///     .stage(Protobuf::<String, u64>::new());                       // frames <-> messages
/// # let _ = pipeline;
/// ```
#[doc(alias = "ProtobufDecoder")]
#[doc(alias = "ProtobufEncoder")]
pub struct Protobuf<In, Out> {
    types: PhantomData<fn(In) -> Out>,
}

impl<In, Out> Protobuf<In, Out> {
    /// Returns the stage, which has no settings.
    pub const fn new() -> Self {
        Protobuf { types: PhantomData }
    }
}

impl<In, Out> Default for Protobuf<In, Out> {
    fn default() -> Self {
        Self::new()
    }
}

impl<In, Out> Clone for Protobuf<In, Out> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<In, Out> Copy for Protobuf<In, Out> {}

impl<In, Out> fmt::Debug for Protobuf<In, Out> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Protobuf")
    }
}

impl<In, Out> Stage for Protobuf<In, Out>
where
    In: Message + Default + 'static,
    Out: Message + 'static,
{
    type ReadIn = Bytes;
    type ReadOut = In;
    type WriteIn = Out;
    type WriteOut = Bytes;

    fn read(&mut self, _ctx: &mut StageContext<'_, Self>, frame: Bytes) -> Result<Option<In>> {
        parse(frame).map(Some)
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Out) -> Result {
        ctx.write(message.encode_to_vec().into())
    }

    fn encoded_len_hint(message: &Out, _: impl Fn(&Bytes) -> Option<usize>) -> Option<usize> {
        Some(message.encoded_len())
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}

fn parse<T: Message + Default>(frame: Bytes) -> Result<T> {
    T::decode(frame).map_err(|e| PeerError::Malformed(explain(&e).into()).into())
}

/// Returns prost's explanation without its constant beginning. It begins with the innermost field
/// and ends with the reason, so a long one is cut in the middle.
#[cold]
fn explain(error: &DecodeError) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("failed to decode Protobuf message: ").unwrap_or(&text);
    let length = text.chars().count();
    if length <= MAX_EXPLANATION {
        return text.to_owned();
    }
    let half = MAX_EXPLANATION / 2;
    let (start, end) = (text.chars().take(half), text.chars().skip(length - half));
    start.chain(['…']).chain(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Error;
    use bytes::{Buf, BufMut, BytesMut};
    use prost::encoding::{self, DecodeContext, WireType};

    /// A message as prost-derive would implement it.
    #[derive(Debug, Clone, Default, PartialEq)]
    struct Tree {
        name: String,
        content: Bytes,
        child: Option<Box<Tree>>,
    }

    impl Message for Tree {
        fn encode_raw(&self, buffer: &mut impl BufMut) {
            encoding::string::encode(1, &self.name, buffer);
            encoding::bytes::encode(2, &self.content, buffer);
            if let Some(child) = &self.child {
                encoding::message::encode(3, &**child, buffer);
            }
        }

        fn merge_field(
            &mut self,
            tag: u32,
            wire_type: WireType,
            buffer: &mut impl Buf,
            context: DecodeContext,
        ) -> std::result::Result<(), DecodeError> {
            let (field, merged) = match tag {
                1 => ("name", encoding::string::merge(wire_type, &mut self.name, buffer, context)),
                2 => ("content", encoding::bytes::merge(wire_type, &mut self.content, buffer, context)),
                3 => {
                    let child = &mut **self.child.get_or_insert_default();
                    ("child", encoding::message::merge(wire_type, child, buffer, context))
                }
                _ => return encoding::skip_field(wire_type, tag, buffer, context),
            };
            merged.map_err(|mut error| {
                error.push("Tree", field);
                error
            })
        }

        fn encoded_len(&self) -> usize {
            encoding::string::encoded_len(1, &self.name)
                + encoding::bytes::encoded_len(2, &self.content)
                + self.child.as_ref().map_or(0, |child| encoding::message::encoded_len(3, &**child))
        }

        fn clear(&mut self) {
            *self = Tree::default();
        }
    }

    fn named(name: &str) -> Tree {
        Tree { name: name.into(), ..Tree::default() }
    }

    fn malformed(frame: impl Into<Bytes>) -> String {
        match parse::<Tree>(frame.into()) {
            Err(Error::Peer(PeerError::Malformed(text))) => text.to_string(),
            other => panic!("{other:?}"),
        }
    }

    /// A frame with this many trees inside each other.
    fn nested(levels: usize) -> Bytes {
        let mut tree = named("leaf");
        for _ in 1..levels {
            tree = Tree { child: Some(Box::new(tree)), ..Tree::default() };
        }
        tree.encode_to_vec().into()
    }

    #[test]
    fn a_message_survives_a_round_trip_and_shares_the_memory_of_its_frame() {
        let message = Tree { content: "some bytes".into(), child: Some(Box::new(named("c"))), ..named("p") };
        let frame = Bytes::from(message.encode_to_vec());
        let parsed: Tree = parse(frame.clone()).unwrap();
        assert_eq!(parsed, message);
        assert!(frame.as_ptr_range().contains(&parsed.content.as_ptr()));
        assert_eq!(parse::<Tree>(Bytes::new()).unwrap(), Tree::default());
    }

    #[test]
    fn the_error_of_a_malformed_frame_names_the_field() {
        assert_eq!(
            malformed(&b"\x08\x01"[..]),
            "Tree.name: invalid wire type: Varint (expected LengthDelimited)"
        );
        assert!(malformed(&b"\x0A\x05ab"[..]).starts_with("Tree.name: "));
        assert!(malformed(&b"\x0A\x01\xFF"[..]).contains("UTF-8"));
        assert_eq!(
            malformed(&b"\x1A\x02\x08\x01"[..]),
            "Tree.name: Tree.child: invalid wire type: Varint (expected LengthDelimited)"
        );
        assert!(!malformed(&b"\x00"[..]).is_empty());
    }

    #[test]
    fn nesting_is_limited_and_its_error_is_short() {
        assert!(parse::<Tree>(nested(100)).is_ok());
        for levels in [102, 10_000] {
            let text = malformed(nested_by_hand(levels));
            assert!(text.starts_with("Tree.child: ") && text.ends_with("recursion limit reached"), "{text}");
            assert_eq!(text.chars().count(), MAX_EXPLANATION + 1);
        }
    }

    /// Like [`nested`], without recursion.
    fn nested_by_hand(levels: usize) -> BytesMut {
        let mut reversed = Vec::new();
        for _ in 0..levels {
            let mut header = vec![0x1A];
            encoding::encode_varint(reversed.len() as u64, &mut header);
            header.reverse();
            reversed.extend(header);
        }
        reversed.reverse();
        reversed.as_slice().into()
    }

    #[test]
    fn an_announced_length_beyond_the_frame_is_refused() {
        for field in [0x0A, 0x12, 0x1A] {
            assert!(malformed(vec![field, 0xFF, 0xFF, 0xFF, 0xFF, 0x07]).starts_with("Tree."));
        }
    }

    #[test]
    fn the_stage_is_send_whatever_its_messages_are() {
        fn is_send<T: Send>(_: T) {}
        is_send(Protobuf::<std::rc::Rc<u8>, *const u8>::new());
    }
}
