//! Frames, and codecs and channels to feed them to.

use crate::{
    channel::ChannelOptions,
    error::{Error, Result},
    http::{HttpServer, Part, Request},
    pipeline::{Codec, Context, Handler},
    testing::EmbeddedChannel,
    websocket::{
        WebSocketClient,
        compression::Compression,
        error::WebSocketError,
        frame::WebSocketCodec,
        handshake::WebSocketServer,
        message::{CloseCode, Message},
        role::Role,
        settings::WebSocketSettings,
    },
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc, time::Duration};

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;
pub(super) const FIN: u8 = 0x80;

const KEY: [u8; 4] = [0x37, 0xFA, 0x21, 0x3D];

/// Returns a frame with this first byte.
pub(super) fn frame(first: u8, masked: bool, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    let bit = if masked { 0x80 } else { 0 };
    match payload.len() {
        len @ 0..=125 => frame.push(bit | len as u8),
        len @ 126..=0xFFFF => {
            frame.push(bit | 126);
            frame.extend((len as u16).to_be_bytes());
        }
        len => {
            frame.push(bit | 127);
            frame.extend((len as u64).to_be_bytes());
        }
    }
    if masked {
        frame.extend(KEY);
        frame.extend(payload.iter().zip(KEY.iter().cycle()).map(|(byte, key)| byte ^ key));
    } else {
        frame.extend(payload);
    }
    frame
}

/// Returns an unfragmented frame of a client.
pub(super) fn client(opcode: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | opcode, true, payload.as_ref())
}

/// Returns an unfragmented frame of a server.
pub(super) fn server(opcode: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(FIN | opcode, false, payload.as_ref())
}

/// Returns the payload of a Close frame.
pub(super) fn close_payload(code: u16, reason: &str) -> Vec<u8> {
    [&code.to_be_bytes()[..], reason.as_bytes()].concat()
}

pub(super) fn settings() -> WebSocketSettings {
    WebSocketSettings::new().ping_interval(Duration::ZERO)
}

pub(super) fn server_codec() -> WebSocketCodec {
    limited_codec(settings())
}

pub(super) fn limited_codec(settings: WebSocketSettings) -> WebSocketCodec {
    WebSocketCodec::new(settings.into(), Role::Server, Compression::OFF)
}

pub(super) fn client_codec() -> WebSocketCodec {
    WebSocketCodec::new(settings().into(), Role::Client, Compression::OFF)
}

/// What a codec has decoded: its messages, the error, and how many bytes it had been given then.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Decoded {
    pub(super) messages: Vec<Message>,
    pub(super) error: Option<(WebSocketError, usize)>,
}

impl Decoded {
    /// Feeds `bytes` to a codec, cut at these positions. Returns also the number of calls.
    pub(super) fn of(mut codec: WebSocketCodec, bytes: &[u8], cuts: &[usize]) -> (Self, usize) {
        let mut decoded = Decoded { messages: Vec::new(), error: None };
        let (mut kept, mut from, mut calls) = (Vec::new(), 0, 0);
        for to in cuts.iter().copied().chain([bytes.len()]) {
            kept.extend_from_slice(&bytes[from..to]);
            let mut input = Bytes::from(std::mem::take(&mut kept));
            while !input.is_empty() {
                calls += 1;
                match codec.decode(&mut input) {
                    Ok(Some(message)) => decoded.messages.push(message),
                    Ok(None) => break,
                    Err(error) => {
                        assert!(decoded.error.is_none(), "a second error: {error}");
                        decoded.error = Some((websocket_error(&error), to));
                    }
                }
            }
            kept = input.to_vec();
            from = to;
        }
        (decoded, calls)
    }
}

pub(super) fn websocket_error(error: &Error) -> WebSocketError {
    WebSocketError::of(error).unwrap_or_else(|| panic!("another error: {error:#}")).clone()
}

/// Returns the messages of one input.
pub(super) fn decode(codec: WebSocketCodec, bytes: &[u8]) -> Decoded {
    Decoded::of(codec, bytes, &[]).0
}

/// Returns the error of an input.
pub(super) fn error_of(codec: WebSocketCodec, bytes: &[u8]) -> WebSocketError {
    decode(codec, bytes).error.expect("the input is invalid").0
}

/// What a handler has received.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) messages: Vec<Message>,
    pub(super) errors: Vec<Error>,
}

/// Echoes data, and records everything.
#[derive(Default)]
pub(super) struct Echo(Rc<RefCell<Seen>>);

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        self.0.borrow_mut().messages.push(message.clone());
        if message.is_control() { Ok(()) } else { ctx.write(message) }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.borrow_mut().errors.push(error);
        ctx.close();
        Ok(())
    }
}

pub(super) type Channel = (EmbeddedChannel<Message>, Rc<RefCell<Seen>>);

pub(super) fn server_channel(settings: WebSocketSettings) -> Channel {
    server_channel_with(settings, ChannelOptions::new())
}

pub(super) fn server_channel_with(settings: WebSocketSettings, options: ChannelOptions) -> Channel {
    let seen = Rc::default();
    let pipeline = WebSocketServer::with(settings).unwrap().pipeline().handler(Echo(Rc::clone(&seen)));
    (EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap(), seen)
}

pub(super) fn client_channel(settings: WebSocketSettings) -> Channel {
    let seen = Rc::default();
    let pipeline =
        WebSocketClient::new("localhost").with(settings).unwrap().connected().handler(Echo(Rc::clone(&seen)));
    (EmbeddedChannel::new(pipeline), seen)
}

/// Returns the messages that a channel has sent, which are unmasked if a server has sent them.
pub(super) fn sent(channel: &mut EmbeddedChannel<Message>, by_server: bool) -> Vec<Message> {
    let codec = if by_server { client_codec() } else { server_codec() };
    let decoded = decode(codec, &channel.read_outbound());
    assert_eq!(decoded.error, None);
    decoded.messages
}

/// Returns the code of a Close frame.
pub(super) fn code_of(message: &Message) -> CloseCode {
    match message {
        Message::Close(Some(frame)) => frame.code,
        other => panic!("no Close frame with a code: {other:?}"),
    }
}

/// Returns a request as a server reads it.
pub(super) fn as_read(request: &Request) -> Request {
    let mut text = format!("{} {} HTTP/1.1\r\nHost: example.org\r\n", request.method(), request.target());
    for (name, value) in request.headers().iter() {
        text += &format!("{name}: {}\r\n", std::str::from_utf8(value).unwrap());
    }
    let read = Rc::new(RefCell::new(None));
    let found = Rc::clone(&read);
    let pipeline = HttpServer::new().pipeline().on_read(move |_, part| {
        if let Part::Head(request) = part {
            *found.borrow_mut() = Some(request);
        }
        Ok(())
    });
    EmbeddedChannel::new(pipeline).write_inbound(format!("{text}\r\n").as_bytes()).unwrap();
    read.take().expect("a request")
}
