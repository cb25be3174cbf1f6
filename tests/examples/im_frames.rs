//! The chat over WebSocket: a client that breaks the protocol gets the reason in a Close frame.

use crate::im::{
    SETTINGS,
    hub::{Hub, MAX_UNACKED_BYTES},
    new_hub,
    session::Session,
    web::ChatFrames,
};
use netwheel::{
    http::{HttpServer, Part, Request, Response},
    prelude::*,
    testing::EmbeddedChannel,
    websocket::{WebSocketServer, WebSocketSettings},
};
use std::sync::Arc;

const UPGRADE: &str = "GET /ws HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
const MAX_MESSAGE: usize = 1000;

/// Turns each connection into one of the chat.
struct Site {
    hub: Arc<Hub>,
    websocket: WebSocketServer,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let (response, links) = self.websocket.accept(&request).unwrap().into_parts();
        ctx.write(response.into())?;
        ctx.replace_pipeline(links.stage(ChatFrames).handler(Session::new(self.hub.clone(), SETTINGS)))
    }
}

/// Returns a frame of a client, with a mask of zeros.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first, 0x80 | u8::try_from(payload.len()).unwrap(), 0, 0, 0, 0];
    frame.extend_from_slice(payload);
    frame
}

/// Returns the code of the Close frame that ends the server's output.
#[track_caller]
fn close_code(input: &[u8]) -> u16 {
    let websocket = WebSocketServer::with(WebSocketSettings::new().max_message(MAX_MESSAGE)).unwrap();
    let site = Site { hub: new_hub(MAX_UNACKED_BYTES), websocket };
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(site));
    channel.write_inbound(UPGRADE.as_bytes()).unwrap();
    assert!(channel.read_outbound().starts_with(b"HTTP/1.1 101 "));
    channel.write_inbound(input).unwrap();
    assert!(channel.is_closed());
    let mut output = &channel.read_outbound()[..];
    loop {
        let [first, length, ..] = output else { panic!("no Close frame") };
        assert!(*length < 126, "a short frame");
        let (frame, rest) = output[2..].split_at(usize::from(*length));
        if *first == 0x88 {
            assert!(rest.is_empty(), "nothing follows a Close frame");
            return u16::from_be_bytes([frame[0], frame[1]]);
        }
        output = rest;
    }
}

#[test]
fn a_client_that_breaks_the_protocol_gets_a_close_frame_with_the_reason() {
    assert_eq!(close_code(&masked(0x81, b"\xFF")), 1007, "text that is not UTF-8");
    assert_eq!(close_code(b"\x81\x01x"), 1002, "a frame without a mask");
    assert_eq!(close_code(&masked(0x83, b"x")), 1002, "a reserved opcode");
    assert_eq!(close_code(&masked(0x09, b"x")), 1002, "a fragmented ping");
    let long = [&[0x81, 0xFE, 0xFF, 0xFF, 0, 0, 0, 0][..], &[b'x'; MAX_MESSAGE + 1]].concat();
    assert_eq!(close_code(&long), 1009, "a message that is too long");
}

#[test]
fn a_refused_login_gets_a_close_frame_with_a_hint() {
    let site = Site { hub: new_hub(MAX_UNACKED_BYTES), websocket: WebSocketServer::new() };
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(site));
    channel.write_inbound(UPGRADE.as_bytes()).unwrap();
    assert!(channel.read_outbound().starts_with(b"HTTP/1.1 101 "));
    channel.set_overloaded(true);
    channel.write_inbound(&masked(0x81, br#"{"type":"login","user":"ann"}"#)).unwrap();
    let output = channel.read_outbound();
    let text = String::from_utf8_lossy(&output[2..2 + usize::from(output[1])]).into_owned();
    let (_, hint) = text.split_once(r#""reason":"overloaded","retry_after_ms":"#).expect(&text);
    let hint: u64 = hint.trim_end_matches('}').parse().expect(&text);
    assert!((100..300).contains(&hint), "{hint}");
    let close = &output[2 + text.len()..];
    assert_eq!((close[0], u16::from_be_bytes([close[2], close[3]])), (0x88, 1013));
    assert_eq!(&close[4..], format!("retry after {hint} ms").as_bytes());
}
