//! Frames and their headers.

use super::support::{
    BINARY, CLOSE, CONTINUATION, FIN, PING, TEXT, client, client_codec, decode, error_of, frame, server,
    server_codec,
};
use crate::{
    buffer::OutboundBuffer,
    pipeline::Codec,
    websocket::{
        error::WebSocketError,
        frame::WebSocketCodec,
        message::{CloseCode, Message},
    },
};
use bytes::Bytes;

fn encode(mut codec: WebSocketCodec, message: Message) -> Bytes {
    let mut output = OutboundBuffer::new();
    codec.encode(message, &mut output).unwrap();
    output.to_bytes()
}

#[test]
fn the_examples_of_the_rfc_are_decoded() {
    // RFC 6455, section 5.7.
    let hello = [Message::text("Hello")];
    assert_eq!(decode(client_codec(), b"\x81\x05Hello").messages, hello);
    let masked = b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58";
    assert_eq!(decode(server_codec(), masked).messages, hello);
    assert_eq!(decode(client_codec(), b"\x01\x03Hel\x80\x02lo").messages, hello);
    assert_eq!(decode(client_codec(), b"\x89\x05Hello").messages, [Message::Ping("Hello".into())]);
    for len in [256, 65_536] {
        let message = Message::binary(vec![7; len]);
        assert_eq!(decode(client_codec(), &server(BINARY, vec![7; len])).messages, [message]);
    }
}

#[test]
fn every_length_form_arrives_as_it_was_written() {
    for len in [0, 1, 125, 126, 127, 4095, 4096, 65_535, 65_536, 100_000] {
        let message = Message::binary(vec![len as u8; len]);
        let bytes = encode(server_codec(), message.clone());
        assert_eq!(bytes, server(BINARY, vec![len as u8; len]), "{len} bytes");
        assert_eq!(decode(client_codec(), &bytes).messages, std::slice::from_ref(&message), "{len} bytes");
        let bytes = encode(client_codec(), message.clone());
        assert_eq!(decode(server_codec(), &bytes).messages, [message], "{len} bytes");
    }
}

#[test]
fn an_unmasked_frame_of_a_client_and_a_masked_one_of_a_server_are_protocol_errors() {
    let error = error_of(server_codec(), &server(TEXT, "hi"));
    assert_eq!((error.clone(), error.close_code()), (WebSocketError::Unmasked, CloseCode::PROTOCOL_ERROR));
    let error = error_of(client_codec(), &client(TEXT, "hi"));
    assert_eq!((error.clone(), error.close_code()), (WebSocketError::Masked, CloseCode::PROTOCOL_ERROR));
}

/// D-35
#[test]
fn reserved_bits_and_opcodes_are_protocol_errors() {
    for rsv in [0x10, 0x20, 0x40, 0x70] {
        for opcode in [CONTINUATION, TEXT, BINARY, CLOSE, PING] {
            let error = error_of(server_codec(), &frame(FIN | rsv | opcode, true, b""));
            assert_eq!(error, WebSocketError::ReservedBits);
        }
    }
    for opcode in [3, 7, 11, 15] {
        let error = error_of(server_codec(), &client(opcode, ""));
        assert_eq!(error, WebSocketError::UnknownOpcode(opcode));
        assert_eq!(error.close_code(), CloseCode::PROTOCOL_ERROR);
    }
}

#[test]
fn a_length_that_is_not_minimal_is_a_protocol_error() {
    let short = |len: u16| [&b"\x82\x7e"[..], &len.to_be_bytes()].concat();
    let long = |len: u64| [&b"\x82\x7f"[..], &len.to_be_bytes()].concat();
    for frame in [short(0), short(125), long(0), long(125), long(126), long(65_535)] {
        assert_eq!(error_of(client_codec(), &frame), WebSocketError::NonMinimalLength, "{frame:x?}");
    }
    for frame in [short(126), long(65_536)] {
        assert_eq!(decode(client_codec(), &frame).error, None, "{frame:x?}");
    }
}

#[test]
fn a_message_in_fragments_is_one_message() {
    let mut bytes = frame(TEXT, true, b"to ");
    bytes.extend(frame(CONTINUATION, true, b""));
    bytes.extend(client(PING, "between"));
    bytes.extend(frame(CONTINUATION, true, b"be "));
    bytes.extend(frame(FIN | CONTINUATION, true, b"or not"));
    bytes.extend(client(BINARY, "next"));
    let messages = decode(server_codec(), &bytes).messages;
    let expected = [Message::Ping("between".into()), Message::text("to be or not"), Message::binary("next")];
    assert_eq!(messages, expected);
}

#[test]
fn fragments_out_of_order_are_protocol_errors() {
    for first in [CONTINUATION, FIN | CONTINUATION] {
        let error = error_of(server_codec(), &frame(first, true, b"x"));
        assert_eq!(error, WebSocketError::UnexpectedContinuation);
    }
    for second in [TEXT, BINARY] {
        let bytes = [frame(TEXT, true, b"x"), client(second, "y")].concat();
        assert_eq!(error_of(server_codec(), &bytes), WebSocketError::UnfinishedMessage);
    }
    // After a whole message too.
    let bytes = [client(TEXT, "x"), client(CONTINUATION, "y")].concat();
    assert_eq!(error_of(server_codec(), &bytes), WebSocketError::UnexpectedContinuation);
}

#[test]
fn nothing_is_decoded_behind_an_error_or_a_close_frame() {
    let bytes = [client(TEXT, "x"), client(3, ""), client(TEXT, "y")].concat();
    assert_eq!(decode(server_codec(), &bytes).messages, [Message::text("x")]);
    let bytes = [client(CLOSE, ""), client(TEXT, "y"), vec![0xFF; 99]].concat();
    let decoded = decode(server_codec(), &bytes);
    assert_eq!((decoded.messages, decoded.error), (vec![Message::Close(None)], None));
}

#[test]
fn each_frame_of_a_client_has_another_mask() {
    let mut codec = client_codec();
    let mut keys = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let mut output = OutboundBuffer::new();
        codec.encode(Message::text(""), &mut output).unwrap();
        keys.insert(output.to_bytes().slice(2..6));
    }
    assert!(keys.len() > 95, "{} different masks", keys.len());
}
