//! Text messages and UTF-8.

use super::support::{CONTINUATION, Decoded, FIN, TEXT, client, decode, error_of, frame, server_codec};
use crate::websocket::{
    error::WebSocketError,
    message::{CloseCode, Message},
};

/// D-35
#[test]
fn a_text_that_is_not_utf_8_is_an_error_at_the_first_bad_byte() {
    let payload = b"good \xCE\xBA bad \xED\xA0 never read";
    let bad_at = payload.iter().position(|byte| *byte == 0xA0).unwrap();
    let bytes = client(TEXT, payload);
    let header = bytes.len() - payload.len();
    let cuts: Vec<usize> = (1..bytes.len()).collect();
    let (decoded, _) = Decoded::of(server_codec(), &bytes, &cuts);
    assert_eq!(decoded.error, Some((WebSocketError::InvalidUtf8, header + bad_at + 1)));
    assert_eq!(WebSocketError::InvalidUtf8.close_code(), CloseCode::INVALID_PAYLOAD);
    assert_eq!(error_of(server_codec(), &bytes), WebSocketError::InvalidUtf8);
}

#[test]
fn a_bad_fragment_is_an_error_before_the_message_ends() {
    let bytes = [frame(TEXT, true, b"good"), frame(CONTINUATION, true, b"bad \xFF")].concat();
    assert_eq!(error_of(server_codec(), &bytes), WebSocketError::InvalidUtf8);
}

#[test]
fn code_points_may_be_cut_between_fragments() {
    let text = "κόσμε \u{10FFFF} \u{20AC}";
    for cut in 0..=text.len() {
        let (one, two) = text.as_bytes().split_at(cut);
        let bytes = [frame(TEXT, true, one), frame(FIN | CONTINUATION, true, two)].concat();
        assert_eq!(decode(server_codec(), &bytes).messages, [Message::text(text)], "cut at {cut}");
    }
}

#[test]
fn a_text_that_ends_within_a_code_point_is_an_error() {
    for bytes in [
        client(TEXT, b"\xE2\x82"),
        [frame(TEXT, true, b"\xE2"), frame(FIN | CONTINUATION, true, b"\x82")].concat(),
        [frame(TEXT, true, b"\xE2\x82"), frame(FIN | CONTINUATION, true, b"")].concat(),
    ] {
        assert_eq!(error_of(server_codec(), &bytes), WebSocketError::InvalidUtf8);
    }
}

#[test]
fn binary_messages_may_contain_any_byte() {
    let all: Vec<u8> = (0..=255).collect();
    assert_eq!(decode(server_codec(), &client(2, &all)).messages, [Message::binary(all)]);
}
