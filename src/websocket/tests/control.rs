//! Control frames and the close handshake.

use super::support::{
    CLOSE, PING, PONG, TEXT, client, client_channel, client_codec, close_payload, code_of, decode, error_of,
    frame, sent, server, server_channel, server_channel_with, server_codec, settings, websocket_error,
};
use crate::{
    buffer::OutboundBuffer,
    channel::{ChannelOptions, CloseCause, Overflow},
    error::{EncodeError, Error},
    pipeline::Codec,
    testing::EmbeddedChannel,
    websocket::{
        WebSocketClient,
        error::WebSocketError,
        handshake::WebSocketServer,
        message::{CloseCode, CloseFrame, Message},
    },
};
use std::time::Duration;

#[test]
fn a_fragmented_or_long_control_frame_is_a_protocol_error() {
    for opcode in [CLOSE, PING, PONG] {
        assert_eq!(error_of(server_codec(), &frame(opcode, true, b"")), WebSocketError::FragmentedControl);
        let long = client(opcode, [0; 126]);
        assert_eq!(error_of(server_codec(), &long), WebSocketError::ControlTooLong);
        assert_eq!(error_of(server_codec(), &long[..2]), WebSocketError::ControlTooLong, "at the header");
    }
    assert_eq!(decode(server_codec(), &client(PING, [0; 125])).messages.len(), 1);
}

#[test]
fn a_close_frame_with_an_invalid_code_is_a_protocol_error() {
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65_535] {
        let error = error_of(server_codec(), &client(CLOSE, close_payload(code, "")));
        assert_eq!(error, WebSocketError::InvalidCloseCode(CloseCode::new(code)));
        assert_eq!(error.close_code(), CloseCode::PROTOCOL_ERROR);
    }
    for code in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 3999, 4000, 4999] {
        let decoded = decode(server_codec(), &client(CLOSE, close_payload(code, "why")));
        assert_eq!(decoded.messages, [Message::close(CloseCode::new(code), "why")]);
    }
}

#[test]
fn a_close_frame_of_one_byte_or_with_a_bad_reason_is_an_error() {
    assert_eq!(error_of(server_codec(), &client(CLOSE, [3])), WebSocketError::InvalidClosePayload);
    let bad = client(CLOSE, b"\x03\xe8bad \xFF");
    assert_eq!(error_of(server_codec(), &bad), WebSocketError::InvalidUtf8);
    assert_eq!(decode(server_codec(), &client(CLOSE, "")).messages, [Message::Close(None)]);
}

#[test]
fn control_frames_that_the_protocol_forbids_are_not_written() {
    let mut output = OutboundBuffer::new();
    let mut encode = |message| server_codec().encode(message, &mut output).unwrap_err();
    for code in [999, 1005, 1006, 1015, 2000] {
        let error = encode(Message::close(CloseCode::new(code), ""));
        assert!(matches!(error, Error::Encode(EncodeError::Unencodable(_))), "{error}");
    }
    for message in [
        Message::Ping(vec![0; 126].into()),
        Message::Pong(vec![0; 126].into()),
        Message::close(CloseCode::NORMAL, "x".repeat(124)),
    ] {
        let error = encode(message);
        assert!(matches!(error, Error::Encode(EncodeError::TooLong { .. })), "{error}");
    }
}

/// D-35
#[test]
fn a_close_frame_is_echoed_once_and_nothing_follows_it() {
    let (mut channel, seen) = server_channel(settings());
    let goodbye = client(CLOSE, close_payload(4001, "bye"));
    channel
        .write_inbound(&[client(TEXT, "x"), goodbye.clone(), client(TEXT, "y"), goodbye].concat())
        .unwrap();
    let echo = Message::Close(Some(CloseFrame { code: CloseCode::new(4001), reason: "".into() }));
    assert_eq!(sent(&mut channel, true), [Message::text("x"), echo]);
    assert!(channel.is_closed(), "the server ends the connection");
    let expected = [Message::text("x"), Message::close(CloseCode::new(4001), "bye")];
    assert_eq!(seen.borrow().messages, expected);
}

#[test]
fn our_second_close_is_a_no_op_and_messages_behind_the_first_are_refused() {
    let (mut channel, seen) = server_channel(settings());
    let handle = channel.channel();
    handle.write(Message::close(CloseCode::NORMAL, "")).unwrap();
    handle.write(Message::close(CloseCode::GOING_AWAY, "")).unwrap();
    handle.write(Message::Ping("x".into())).unwrap();
    let queued = handle.write_tracked(Message::text("late")).unwrap();
    channel.run_pending();
    assert_eq!(sent(&mut channel, true), [Message::close(CloseCode::NORMAL, "")]);
    assert!(matches!(queued.take(), Some(Err(Error::Closed))));
    for handle in [handle, channel.channel()] {
        let refused = handle.write(Message::text("late")).unwrap_err();
        assert!(matches!(refused.error(), Error::Closed));
    }
    assert!(channel.is_open(), "the peer has not answered");
    // Pings and data of the peer are ignored by now.
    channel.write_inbound(&[client(PING, "x"), client(TEXT, "x")].concat()).unwrap();
    assert!(channel.read_outbound().is_empty() && seen.borrow().messages.is_empty());
    channel.write_inbound(&client(CLOSE, close_payload(1000, ""))).unwrap();
    assert!(channel.read_outbound().is_empty(), "the answer is not answered");
    assert!(channel.is_closed());
    assert_eq!(seen.borrow().messages, [Message::close(CloseCode::NORMAL, "")]);
}

#[test]
fn a_peer_that_never_answers_close_is_disconnected() {
    let (mut channel, _) = server_channel(settings().close_timeout(Duration::from_secs(5)));
    channel.channel().write(Message::Close(None)).unwrap();
    channel.run_pending();
    assert_eq!(sent(&mut channel, true), [Message::Close(None)]);
    channel.advance(Duration::from_millis(4900));
    assert!(channel.is_open());
    channel.write_inbound(&client(TEXT, "still here")).unwrap();
    channel.advance(Duration::from_millis(300));
    assert_eq!(cause(&mut channel), CloseCause::TimedOut);
}

fn cause(channel: &mut EmbeddedChannel<Message>) -> CloseCause {
    channel.channel().closed().take().expect("it is closed").unwrap()
}

/// Returns a server whose peer reads nothing, with room for few more bytes than 100,000.
fn with_full_buffer(overflow: Overflow) -> EmbeddedChannel<Message> {
    let options = ChannelOptions::new().max_outbound(100_000).overflow(overflow);
    let (mut channel, _) = server_channel_with(settings(), options);
    channel.set_outbound_room(Some(0));
    for length in [70_000, 29_980] {
        channel.channel().execute(move |ctx| ctx.write(Message::binary(vec![0; length]))).unwrap();
        channel.run_pending();
    }
    channel
}

/// Returns the last message that the peer gets when it reads again.
fn last(channel: &mut EmbeddedChannel<Message>) -> Message {
    channel.set_outbound_room(None);
    channel.run_pending();
    sent(channel, true).pop().unwrap()
}

#[test]
fn a_close_frame_is_accepted_by_a_full_buffer() {
    let mut channel = with_full_buffer(Overflow::DropNewest);
    let close = Message::close(CloseCode::new(4001), "a reason of twenty");
    channel.channel().write(close.clone()).unwrap();
    channel.run_pending();
    let refused = channel.channel().write(Message::text("late")).unwrap_err();
    assert!(matches!(refused.error(), Error::Closed), "{refused:?}");
    assert_eq!(last(&mut channel), close);

    for overflow in [Overflow::DropNewest, Overflow::Refuse] {
        let mut channel = with_full_buffer(overflow);
        channel.write_inbound(&client(3, "")).unwrap();
        assert_eq!(code_of(&last(&mut channel)), CloseCode::PROTOCOL_ERROR, "{overflow:?}");
    }

    // The only pending message cannot be dropped, because its first bytes were sent.
    let options = ChannelOptions::new().max_outbound(100_000).overflow(Overflow::DropOldest);
    let (mut channel, _) = server_channel_with(settings(), options);
    channel.set_outbound_room(Some(20_000));
    channel.channel().execute(|ctx| ctx.write(Message::binary(vec![0; 150_000]))).unwrap();
    channel.run_pending();
    channel.write_inbound(&client(3, "")).unwrap();
    assert_eq!(code_of(&last(&mut channel)), CloseCode::PROTOCOL_ERROR);
}

/// Returns a server that has a Close frame behind 1 MB, and closes within 60 s.
fn with_output_before_close() -> EmbeddedChannel<Message> {
    let options = ChannelOptions::new().max_outbound(4_000_000).close_timeout(Duration::from_secs(60));
    let (mut channel, _) = server_channel_with(settings(), options);
    channel.set_outbound_room(Some(0));
    channel.channel().write(Message::binary(vec![0; 1_000_000])).unwrap();
    channel.channel().write(Message::Close(None)).unwrap();
    channel.run_pending();
    channel
}

#[test]
fn a_peer_that_accepts_the_output_slowly_gets_it_with_the_close_frame() {
    let mut channel = with_output_before_close();
    let mut output = Vec::new();
    for _ in 0..21 {
        channel.set_outbound_room(Some(50_000));
        channel.advance(Duration::from_secs(1));
        output.extend_from_slice(&channel.read_outbound());
    }
    assert_eq!(decode(client_codec(), &output).messages.last(), Some(&Message::Close(None)));
    // It has accepted the last byte at the start of this second.
    channel.advance(Duration::from_millis(8_900));
    assert!(channel.is_open());
    channel.advance(Duration::from_millis(300));
    assert_eq!(cause(&mut channel), CloseCause::TimedOut, "the peer has not answered");
}

#[test]
fn a_peer_that_does_not_accept_the_close_frame_is_disconnected_after_the_time_of_a_close() {
    let mut channel = with_output_before_close();
    channel.advance(Duration::from_millis(59_900));
    assert!(channel.is_open());
    channel.advance(Duration::from_millis(300));
    assert_eq!(cause(&mut channel), CloseCause::TimedOut);
}

#[test]
fn a_client_waits_until_the_server_ends_the_connection() {
    let (mut channel, _) = client_channel(settings().close_timeout(Duration::from_secs(5)));
    channel.write_inbound(&server(CLOSE, close_payload(1001, "restart"))).unwrap();
    assert_eq!(sent(&mut channel, false), [Message::close(CloseCode::GOING_AWAY, "")]);
    assert!(channel.is_open());
    channel.end_inbound();
    assert!(channel.is_closed());

    let (mut channel, _) = client_channel(settings().close_timeout(Duration::from_secs(5)));
    channel.write_inbound(&server(CLOSE, "")).unwrap();
    channel.advance(Duration::from_millis(5200));
    assert_eq!(cause(&mut channel), CloseCause::Clean, "the server has not ended the connection");
}

/// D-35
#[test]
fn invalid_bytes_are_answered_with_their_code() {
    for (bytes, code) in [
        (client(3, ""), CloseCode::PROTOCOL_ERROR),
        (client(TEXT, b"\xFF"), CloseCode::INVALID_PAYLOAD),
        (client(CLOSE, close_payload(1005, "")), CloseCode::PROTOCOL_ERROR),
        (vec![0x82, 0xFF, 0, 0, 0, 1, 0, 0, 0, 0], CloseCode::TOO_BIG),
    ] {
        let (mut channel, seen) = server_channel(settings());
        channel.write_inbound(&[client(TEXT, "x"), bytes, client(TEXT, "y")].concat()).unwrap();
        let messages = sent(&mut channel, true);
        assert_eq!(messages.len(), 2, "{messages:?}");
        assert_eq!((&messages[0], code_of(&messages[1])), (&Message::text("x"), code));
        assert!(channel.is_closed());
        assert_eq!(seen.borrow().messages, [Message::text("x")]);
        let errors = &seen.borrow().errors;
        assert_eq!(errors.len(), 1);
        assert_eq!(websocket_error(&errors[0]).close_code(), code);
    }
}

#[test]
fn an_error_during_the_close_handshake_sends_no_second_close_frame() {
    let (mut channel, seen) = server_channel(settings());
    channel.channel().write(Message::Close(None)).unwrap();
    channel.run_pending();
    channel.write_inbound(&client(3, "")).unwrap();
    assert_eq!(sent(&mut channel, true), [Message::Close(None)]);
    assert!(channel.is_closed());
    assert_eq!(seen.borrow().errors.len(), 1);
}

#[test]
fn the_end_of_the_stream_without_close_closes_the_channel() {
    let (mut channel, seen) = server_channel(settings());
    channel.write_inbound(&frame(TEXT, true, b"unfinished")).unwrap();
    channel.end_inbound();
    assert!(channel.is_closed());
    assert!(seen.borrow().messages.is_empty() && seen.borrow().errors.is_empty());
}

#[test]
fn both_ends_may_close_at_the_same_time() {
    let (mut one, _) = server_channel(settings());
    let (mut other, _) = client_channel(settings());
    one.channel().write(Message::close(CloseCode::GOING_AWAY, "")).unwrap();
    other.channel().write(Message::close(CloseCode::NORMAL, "")).unwrap();
    one.run_pending();
    other.run_pending();
    let (from_one, from_other) = (one.read_outbound(), other.read_outbound());
    one.write_inbound(&from_other).unwrap();
    other.write_inbound(&from_one).unwrap();
    assert!(one.is_closed() && one.read_outbound().is_empty());
    assert!(other.is_open() && other.read_outbound().is_empty());
    other.end_inbound();
    assert!(other.is_closed());
    assert_eq!(decode(client_codec(), &from_one).messages.len(), 1);
}

#[test]
fn a_handler_that_fails_with_the_error_of_another_connection_closes_with_1011() {
    // The peer of the other connection masks wrongly.
    let (mut other, seen) = client_channel(settings());
    let _ = other.write_inbound(&client(TEXT, "x"));
    let of_server = seen.borrow_mut().errors.pop().unwrap();
    let (mut other, seen) = server_channel(settings());
    let _ = other.write_inbound(&server(TEXT, "x"));
    let of_client = seen.borrow_mut().errors.pop().unwrap();
    assert_eq!(websocket_error(&of_server), WebSocketError::Masked);
    assert_eq!(websocket_error(&of_client), WebSocketError::Unmasked);

    let gateway = WebSocketServer::with(settings()).unwrap();
    let pipeline = gateway.pipeline().on_read(move |_, _| Err(of_server.clone()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(&client(TEXT, "x")).unwrap();
    let messages = sent(&mut channel, true);
    assert_eq!((messages.len(), code_of(&messages[0])), (1, CloseCode::INTERNAL_ERROR));

    let backend = WebSocketClient::new("localhost").with(settings()).unwrap();
    let pipeline = backend.connected().on_read(move |_, _| Err(of_client.clone()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(&server(TEXT, "x")).unwrap();
    let messages = sent(&mut channel, false);
    assert_eq!((messages.len(), code_of(&messages[0])), (1, CloseCode::INTERNAL_ERROR));
}
