//! An own codec and its tests, from the guide's chapters about codecs and about testing.

use bytes::{Buf, Bytes};
use netwheel::{buffer::OutboundBuffer, error::PeerError, prelude::*, testing::EmbeddedChannel};
use proptest::{collection::vec, prelude::*, sample::Index};
use std::sync::mpsc;

#[derive(Debug, Clone, PartialEq)]
enum Message {
    /// The byte 0.
    Ping,
    /// The byte 1, a length of two bytes, and the text.
    Text(Bytes),
}

/// The longest text that is accepted.
const MAX_TEXT: usize = 4096;

struct Wire;

impl Codec for Wire {
    type Read = Message;
    type Write = Message;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Message>> {
        match input[0] {
            0 => {
                input.advance(1);
                Ok(Some(Message::Ping))
            }
            1 if input.len() < 3 => Ok(None),
            1 => {
                let length = usize::from(u16::from_be_bytes([input[1], input[2]]));
                if length > MAX_TEXT {
                    return Err(PeerError::too_long("text", length as u64, MAX_TEXT).into());
                }
                if input.len() < 3 + length {
                    return Ok(None);
                }
                input.advance(3);
                Ok(Some(Message::Text(input.split_to(length))))
            }
            _ => Err(PeerError::Corrupted("an unknown kind of message").into()),
        }
    }

    fn encode(&mut self, message: Message, output: &mut OutboundBuffer) -> Result {
        match message {
            Message::Ping => output.put_u8(0),
            Message::Text(text) => {
                output.put_u8(1);
                output.put_u16(u16::try_from(text.len()).map_err(Error::other)?);
                output.put(text);
            }
        }
        Ok(())
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0) // the bytes depend on the message only
    }
}

/// Returns the messages that the codec decodes from bytes that arrive in these parts.
fn decode<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Vec<Message> {
    let (sender, messages) = mpsc::channel();
    let pipeline =
        Pipeline::codec(Wire).on_read(move |_ctx, message| sender.send(message).map_err(Error::other));
    let mut channel = EmbeddedChannel::new(pipeline);
    for part in parts {
        channel.write_inbound(part).expect("the channel is open");
    }
    messages.try_iter().collect()
}

#[test]
fn messages_do_not_depend_on_how_the_bytes_are_split() {
    let bytes = b"\0\x01\0\x05hello\0\x01\0\0";
    let text = |text: &'static str| Message::Text(text.into());
    let expected = [Message::Ping, text("hello"), Message::Ping, text("")];

    for at in 0..=bytes.len() {
        let (first, second) = bytes.split_at(at);
        assert_eq!(decode([first, second]), expected, "split at {at}");
    }
    assert_eq!(decode(bytes.chunks(1)), expected, "one byte at a time");
}

#[test]
fn an_invalid_message_closes_the_channel() {
    for invalid in [&b"\x02"[..], b"\x01\x10\x01"] {
        let mut channel = EmbeddedChannel::new(Pipeline::codec(Wire).on_read(|_ctx, _message| Ok(())));
        channel.write_inbound(invalid).expect("the channel is open");
        assert!(channel.is_closed(), "after {invalid:?}");
    }
}

fn message() -> impl Strategy<Value = Message> {
    let text = vec(any::<u8>(), 0..300).prop_map(|text| Message::Text(text.into()));
    prop_oneof![Just(Message::Ping), text]
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(messages in vec(message(), 0..20), cuts in vec(any::<Index>(), 0..10)) {
        let mut output = OutboundBuffer::new();
        for message in &messages {
            Wire.encode(message.clone(), &mut output)?;
        }
        let bytes = output.to_bytes();

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let parts = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]);
        prop_assert_eq!(decode(parts), messages);
    }

    #[test]
    fn no_input_panics(bytes in vec(prop_oneof![0..3u8, any::<u8>()], 0..100)) {
        let mut input = Bytes::from(bytes);
        let mut left = input.len();
        while !input.is_empty() && let Ok(Some(_)) = Wire.decode(&mut input) {
            prop_assert!(input.len() < left, "a message takes at least one byte");
            left = input.len();
        }
    }
}
