//! This codec and tungstenite decode equal frames to equal messages.

use super::support::{FIN, client_codec, close_payload, decode, frame, limited_codec, settings};
use crate::websocket::message::{CloseCode, Message};
use proptest::prelude::*;
use std::io::{self, Cursor, Read, Write};
use tungstenite::{
    Message as Theirs,
    protocol::{Role, WebSocket, WebSocketConfig},
};

const LIMIT: usize = 300;

/// Bytes to read, and a sink for answers.
struct Input(Cursor<Vec<u8>>);

impl Read for Input {
    fn read(&mut self, to: &mut [u8]) -> io::Result<usize> {
        self.0.read(to)
    }
}

impl Write for Input {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Returns the messages that tungstenite reads, and whether it refuses the input after them.
fn theirs(bytes: &[u8], role: Role) -> (Vec<Message>, bool) {
    let config = WebSocketConfig::default().max_message_size(Some(LIMIT)).max_frame_size(Some(LIMIT));
    let mut socket = WebSocket::from_raw_socket(Input(Cursor::new(bytes.to_vec())), role, Some(config));
    let mut messages = Vec::new();
    loop {
        let message = match socket.read() {
            Ok(Theirs::Text(text)) => Message::text(text.as_str()),
            Ok(Theirs::Binary(data)) => Message::Binary(data),
            Ok(Theirs::Ping(data)) => Message::Ping(data),
            Ok(Theirs::Pong(data)) => Message::Pong(data),
            Ok(Theirs::Close(None)) => Message::Close(None),
            Ok(Theirs::Close(Some(frame))) => {
                if frame.reason.as_str() == "Protocol violation" {
                    // Stands for a code that must not be sent.
                    return (messages, true);
                }
                let code = CloseCode::new(frame.code.into());
                Message::close(code, frame.reason.as_str())
            }
            Ok(Theirs::Frame(_)) => unreachable!("only written"),
            Err(tungstenite::Error::Protocol(
                tungstenite::error::ProtocolError::ResetWithoutClosingHandshake,
            )) => return (messages, false),
            Err(_) => return (messages, true),
        };
        let is_last = matches!(message, Message::Close(_));
        messages.push(message);
        if is_last {
            return (messages, false);
        }
    }
}

fn any_frame(masked: bool) -> impl Strategy<Value = Vec<u8>> {
    let first = prop_oneof![
        3 => Just(FIN | 1), 2 => Just(1), 2 => Just(FIN | 2), 1 => Just(2),
        3 => Just(0), 4 => Just(FIN), 1 => Just(FIN | 9), 1 => Just(FIN | 10),
        1 => any::<u8>().prop_filter("a control frame with a close code", |first| first & 15 != 8),
    ];
    let payload = prop_oneof![
        6 => "\\PC{0,20}".prop_map(String::into_bytes),
        1 => prop::collection::vec(any::<u8>(), 0..5),
        // A code point that is cut, and its rest.
        1 => prop_oneof![Just(b"\xE2\x82".to_vec()), Just(b"\xAC".to_vec())],
        1 => (100..160_usize).prop_map(|len| vec![b'x'; len]),
    ];
    // It does not know the registered code 1014.
    let close = (prop_oneof![1000..1014_u16, 1015..1017_u16, 2990..3010_u16, 4990..5010_u16], "[a-z]{0,5}")
        .prop_map(|(code, text)| (FIN | 8, close_payload(code, &text)));
    prop_oneof![15 => (first, payload), 1 => close].prop_flat_map(move |(first, payload)| {
        prop::bool::weighted(0.01).prop_map(move |wrong| frame(first, masked != wrong, &payload))
    })
}

fn agree(bytes: &[u8], by_client: bool) -> Result<(), TestCaseError> {
    let (codec, role) = match by_client {
        true => (limited_codec(settings().max_message(LIMIT)), Role::Server),
        false => (client_codec(), Role::Client),
    };
    let ours = decode(codec, bytes);
    let (messages, refused) = theirs(bytes, role);
    prop_assert_eq!(&ours.messages, &messages);
    prop_assert_eq!(ours.error.is_some(), refused, "{:?}", ours.error);
    Ok(())
}

proptest! {
    #[test]
    fn frames_of_a_client_mean_the_same_to_tungstenite(
        frames in prop::collection::vec(any_frame(true), 0..12),
    ) {
        agree(&frames.concat(), true)?;
    }

    #[test]
    fn frames_of_a_server_mean_the_same_to_tungstenite(
        // Two long fragments at most, because the client has the default limit.
        frames in prop::collection::vec(any_frame(false), 0..2),
    ) {
        agree(&frames.concat(), false)?;
    }

    #[test]
    fn messages_that_we_write_are_read_by_tungstenite(
        messages in prop::collection::vec(prop_oneof![
            "\\PC{0,40}".prop_map(Message::text),
            prop::collection::vec(any::<u8>(), 0..LIMIT).prop_map(Message::binary),
            prop::collection::vec(any::<u8>(), 0..126).prop_map(|bytes| Message::Ping(bytes.into())),
        ].boxed(), 0..8),
        by_client: bool,
    ) {
        use crate::{pipeline::Codec, buffer::OutboundBuffer};
        let mut codec = if by_client { client_codec() } else { limited_codec(settings()) };
        let mut output = OutboundBuffer::new();
        for message in &messages {
            codec.encode(message.clone(), &mut output).unwrap();
        }
        let role = if by_client { Role::Server } else { Role::Client };
        let (read, refused) = theirs(&output.to_bytes(), role);
        prop_assert!(!refused);
        prop_assert_eq!(read, messages);
    }
}
