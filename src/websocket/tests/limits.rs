//! Limits on the memory and time of a peer.

use super::support::{
    BINARY, CONTINUATION, Decoded, FIN, PING, TEXT, client, decode, error_of, frame, limited_codec, settings,
};
use crate::{
    pipeline::Codec,
    settings::tests::check_limits_page,
    websocket::{
        error::WebSocketError,
        frame::WebSocketCodec,
        handshake::WebSocketServer,
        message::{CloseCode, Message},
        settings::WebSocketSettings,
    },
};
use bytes::Bytes;
use std::time::Duration;

fn limited(max_message: usize) -> WebSocketCodec {
    limited_codec(settings().max_message(max_message))
}

#[test]
fn a_length_beyond_the_limit_is_an_error_at_the_header() {
    let header = |len: u64| [&b"\x82\xff"[..], &len.to_be_bytes()].concat();
    assert_eq!(error_of(limited(1000), &header(1 << 63)), WebSocketError::InvalidLength);
    assert_eq!(error_of(limited(1000), &header(u64::MAX)), WebSocketError::InvalidLength);
    let error = error_of(limited(1000), &header((1 << 63) - 1));
    assert_eq!(error, WebSocketError::MessageTooLong { limit: 1000 });
    assert_eq!(error.close_code(), CloseCode::TOO_BIG);
    // The mask has not arrived yet.
    let error = error_of(limited(1000), &[0x82, 0xFE, 3, 233]);
    assert_eq!(error, WebSocketError::MessageTooLong { limit: 1000 });
    let exact = decode(limited(1000), &client(BINARY, [7; 1000]));
    assert_eq!((exact.messages.len(), exact.error), (1, None));
}

#[test]
fn an_announced_length_takes_no_memory() {
    let mut codec = limited(1 << 30);
    let mut input = Bytes::from([&b"\x82\xff"[..], &(1_u64 << 30).to_be_bytes(), b"mask", b"some"].concat());
    assert!(codec.decode(&mut input).unwrap().is_none());
    let capacity = codec.assembled_capacity().expect("a message has begun");
    assert!(capacity <= 8, "{capacity} bytes for 4");
}

#[test]
fn a_long_message_in_small_reads_is_copied_a_few_times_only() {
    let len = 1 << 20;
    let whole = client(BINARY, vec![1; len]);
    let mut codec = limited(len);
    let (mut grown, mut before) = (0, 0);
    for part in whole.chunks(1000) {
        let message = codec.decode(&mut Bytes::copy_from_slice(part)).unwrap();
        let capacity = codec.assembled_capacity().unwrap_or(0);
        assert!(capacity <= len);
        grown += usize::from(capacity != before);
        before = capacity;
        if let Some(message) = message {
            assert_eq!(message, Message::binary(vec![1; len]));
        }
    }
    assert!(codec.assembled_capacity().is_none());
    assert!(grown < 20, "the memory grew {grown} times");
}

#[test]
fn fragments_without_end_reach_the_limit_of_the_message() {
    let fragment = frame(CONTINUATION, true, &[b'x'; 100]);
    let bytes = [frame(TEXT, true, b""), fragment.repeat(11)].concat();
    let decoded = decode(limited(1000), &bytes);
    assert_eq!(decoded.error.map(|(error, _)| error), Some(WebSocketError::MessageTooLong { limit: 1000 }));
}

#[test]
fn empty_fragments_without_end_reach_the_limit_of_fragments() {
    let bytes = [frame(TEXT, true, b""), frame(CONTINUATION, true, b"").repeat(1024)].concat();
    let error = error_of(limited(1000), &bytes);
    assert_eq!(error, WebSocketError::TooManyFragments { limit: 1024 });
    assert_eq!(error.close_code(), CloseCode::TOO_BIG);
    // Exactly as many are a message, and control frames between them do not count.
    let mut bytes = frame(TEXT, true, b"");
    for _ in 0..1022 {
        bytes.extend(frame(CONTINUATION, true, b""));
        bytes.extend(client(PING, ""));
    }
    bytes.extend(frame(FIN | CONTINUATION, true, b"end"));
    assert_eq!(decode(limited(1000), &bytes).messages.last(), Some(&Message::text("end")));
}

#[test]
fn a_control_frame_is_no_part_of_the_message_around_it() {
    let mut bytes = frame(TEXT, true, b"1234");
    bytes.extend(client(PING, [0; 125]));
    bytes.extend(frame(FIN | CONTINUATION, true, b""));
    let decoded = decode(limited(4), &bytes);
    assert_eq!((decoded.messages.len(), decoded.error), (2, None));
}

#[test]
fn decoding_is_linear_in_the_bytes() {
    // Byte by byte, one call each: no byte is kept in the input but those of headers.
    let bytes =
        [client(TEXT, [b'x'; 3000]), frame(BINARY, true, &[0; 500]), client(CONTINUATION, [1; 500])].concat();
    let cuts: Vec<usize> = (1..bytes.len()).collect();
    let (decoded, calls) = Decoded::of(limited(1 << 20), &bytes, &cuts);
    assert_eq!((decoded.messages.len(), decoded.error), (2, None));
    assert!(calls <= bytes.len(), "{calls} calls for {} bytes", bytes.len());
}

#[test]
fn settings_out_of_range_are_refused() {
    let settings = WebSocketSettings::new;
    for (settings, text) in [
        (settings().max_message(0), "max_message is 0; it must be 1 byte or more"),
        (settings().max_fragments(0), "max_fragments is 0; it must be 1 or more"),
        (settings().close_timeout(Duration::ZERO), "close_timeout is 0 s; it must be above 0 s"),
        (
            settings().ping_interval(Duration::from_micros(999)),
            "ping_interval is 999µs; it must be 0 s, or 1 ms and more",
        ),
    ] {
        assert_eq!(WebSocketServer::with(settings).unwrap_err().to_string(), text);
    }
}

#[test]
fn the_documentation_states_the_defaults() {
    for row in WebSocketSettings::rows() {
        row.check_words();
        if row.name != "close_at_shutdown" {
            let name = format!("WebSocketSettings::{}", row.name);
            check_limits_page("Limits of WebSocket", &name, row.text);
        }
    }
}
