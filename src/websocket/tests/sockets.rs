//! Servers and clients over sockets.

use super::support::{CLOSE, TEXT, client, close_payload, server};
use crate::{
    bootstrap::{ClientBootstrap, ServerBootstrap},
    channel::filter::{Filter, FilterContext, FilterState},
    error::{PeerError, Result},
    event_loop::ShutdownOptions,
    group::EventLoopGroup,
    pipeline::{Context, Handler},
    websocket::{
        HandshakeError, WebSocketClient,
        handshake::WebSocketServer,
        message::{CloseCode, Message},
        settings::WebSocketSettings,
    },
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    thread,
    time::Duration,
};

/// Echoes data, and says goodbye at shutdown.
struct Polite;

impl Handler for Polite {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        if message.is_control() { Ok(()) } else { ctx.write(message) }
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        // Refused if the Close frame was sent already.
        if ctx.write(Message::text("goodbye")).is_ok() {
            ctx.write(Message::close(CloseCode::SERVICE_RESTART, ""))?;
        }
        ctx.close();
        Ok(())
    }
}

/// Returns what each of 50 clients reads after the shutdown of the server has begun.
fn read_at_shutdown(settings: WebSocketSettings) -> Vec<Vec<u8>> {
    let group = EventLoopGroup::builder().threads(2).build().unwrap();
    let websocket = WebSocketServer::with(settings).unwrap();
    let server_handle = ServerBootstrap::new(&group)
        .pipeline(move |_peer| websocket.pipeline().handler(Polite))
        .bind("127.0.0.1:0")
        .unwrap();
    let mut clients: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = TcpStream::connect(server_handle.local_address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
            stream.write_all(&client(TEXT, "hi")).unwrap();
            let mut echo = [0; 4];
            stream.read_exact(&mut echo).unwrap();
            assert_eq!(echo[..], server(TEXT, "hi"));
            stream
        })
        .collect();
    let window = Duration::from_millis(100);
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).drain_window(window);
    let report = group.shutdown(options);
    let read = clients
        .iter_mut()
        .map(|stream| {
            let mut rest = Vec::new();
            stream.read_to_end(&mut rest).unwrap();
            rest
        })
        .collect();
    drop(clients);
    report.wait_timeout(Duration::from_secs(60)).unwrap_or_else(|_| panic!("the shutdown ends")).unwrap();
    read
}

#[test]
fn a_shutdown_sends_1001_to_everybody() {
    for read in read_at_shutdown(WebSocketSettings::new()) {
        assert_eq!(read, server(CLOSE, close_payload(1001, "")));
    }
}

#[test]
fn a_handler_may_say_goodbye_at_shutdown_instead() {
    let expected = [server(TEXT, "goodbye"), server(CLOSE, close_payload(1012, ""))].concat();
    for read in read_at_shutdown(WebSocketSettings::new().close_at_shutdown(false)) {
        assert_eq!(read, expected);
    }
}

/// Finds each stream truncated, as TLS does without `close_notify`.
struct Unmarked;

impl Filter for Unmarked {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        Err(PeerError::Truncated.into())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// Many servers end the TCP connection only, also with TLS.
#[test]
fn a_refusal_that_ends_without_the_mark_of_the_filter_below_keeps_its_status() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let (mut request, mut byte) = (Vec::new(), [0]);
        while !request.ends_with(b"\r\n\r\n") {
            stream.read_exact(&mut byte).unwrap();
            request.extend_from_slice(&byte);
        }
        stream.write_all(b"HTTP/1.1 401 Unauthorized\r\n\r\nthe reason").unwrap();
    });
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let connected = ClientBootstrap::new(&group)
        .filter(|_| Unmarked)
        .websocket(WebSocketClient::new("localhost"), "/", |accepted| {
            accepted.into_parts().1.on_read(|_, _| Ok(()))
        })
        .connect(address);
    let error = connected.wait().unwrap_err();
    server.join().unwrap();
    let refusal = HandshakeError::of(&error).unwrap_or_else(|| panic!("{error:#}"));
    assert_eq!(refusal.status().unwrap().as_u16(), 401);
    assert_eq!(refusal.response().unwrap().body, "the reason");
}
