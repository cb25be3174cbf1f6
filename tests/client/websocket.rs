//! WebSocket clients: refusals, reconnecting, TLS, JSON.

use crate::support::wait::{SECOND, done, receive};
use bytes::Bytes;
use netwheel::{
    codec::RawBytes,
    http::{HttpServer, Part, Request, Response, StatusCode},
    prelude::*,
    reconnect::Backoff,
    websocket::{HandshakeError, Message, WebSocketClient, WebSocketServer},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
        mpsc::{Sender, channel},
    },
    time::Duration,
};

/// Answers the first requests with the statuses that a test has chosen, and accepts later ones.
struct Gate {
    refusals: Arc<[u16]>,
    requests: Arc<AtomicU32>,
}

impl Handler for Gate {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let number = self.requests.fetch_add(1, Ordering::AcqRel) as usize;
        if let Some(status) = self.refusals.get(number) {
            let response = Response::new(StatusCode::new(*status).unwrap()).body("the reason");
            return ctx.write(response.header("WWW-Authenticate", "Bearer").into());
        }
        let (response, pipeline) = WebSocketServer::new().accept(&request).unwrap().into_parts();
        ctx.write(response.into())?;
        ctx.replace_pipeline(pipeline.on_read(|ctx, message| match message {
            Message::Text(_) => ctx.write(message),
            _ => Ok(()),
        }))
    }
}

/// Returns a factory of pipelines for a server with these refusals, and the count of its requests.
fn gate(refusals: &[u16]) -> (impl Fn(&Peer) -> Pipeline<Part<Response>> + use<>, Arc<AtomicU32>) {
    let (http, requests) = (HttpServer::new(), Arc::new(AtomicU32::new(0)));
    let (refusals, counted): (Arc<[u16]>, _) = (refusals.into(), requests.clone());
    let pipeline = move |_: &Peer| {
        http.pipeline().handler(Gate { refusals: refusals.clone(), requests: counted.clone() })
    };
    (pipeline, requests)
}

fn serve(group: &EventLoopGroup, refusals: &[u16]) -> (SocketAddr, Arc<AtomicU32>) {
    let (pipeline, requests) = gate(refusals);
    let server = ServerBootstrap::new(group).pipeline(pipeline).bind("127.0.0.1:0").unwrap();
    (server.local_address(), requests)
}

fn one_thread() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).build().unwrap()
}

/// Returns a bootstrap of clients that send their messages to `texts`.
fn client(
    bootstrap: ClientBootstrap,
    texts: Sender<Message>,
) -> ClientBootstrap<Arc<impl Fn(&Peer) -> Result<Pipeline<Message>>>> {
    bootstrap.websocket(WebSocketClient::new("localhost"), "/chat", move |accepted| {
        let texts = texts.clone();
        accepted.into_parts().1.on_read(move |_, message| texts.send(message).map_err(Error::other))
    })
}

#[test]
fn a_connect_completes_after_the_handshake_and_its_channel_writes_messages() {
    let group = one_thread();
    let (address, _) = serve(&group, &[]);
    let (texts, received) = channel();
    let channel = done(client(ClientBootstrap::new(&group), texts).connect(address)).unwrap();
    channel.write(Message::text("hello")).unwrap();
    assert_eq!(receive(&received), Message::text("hello"));
}

#[test]
fn a_refusal_reaches_the_program_with_its_status_headers_and_body() {
    let group = one_thread();
    let (address, _) = serve(&group, &[401]);
    let error = done(client(ClientBootstrap::new(&group), channel().0).connect(address)).unwrap_err();
    let refusal = HandshakeError::of(&error).unwrap();
    assert_eq!(refusal.status(), Some(StatusCode::UNAUTHORIZED));
    let response = refusal.response().unwrap();
    assert_eq!(response.head.headers().text("www-authenticate"), Some("Bearer"));
    assert_eq!(response.body, "the reason");
}

#[test]
fn a_reconnecting_client_retries_after_503_and_stops_at_401() {
    let group = one_thread();
    let (address, requests) = serve(&group, &[503, 429, 401]);
    let client = client(ClientBootstrap::new(&group), channel().0)
        .reconnect(Backoff::new().initial(Duration::from_millis(1)))
        .retry_if(HandshakeError::is_retryable)
        .connect(address)
        .unwrap();
    for error in [done(client.closed()).unwrap_err(), done(client.connected()).unwrap_err()] {
        assert_eq!(HandshakeError::of(&error).unwrap().status(), Some(StatusCode::UNAUTHORIZED));
    }
    assert_eq!(requests.load(Ordering::Acquire), 3);
}

#[test]
fn a_reconnecting_client_is_connected_once_a_handshake_succeeds() {
    let group = one_thread();
    let (address, requests) = serve(&group, &[503, 503]);
    let (texts, received) = channel();
    let client = client(ClientBootstrap::new(&group), texts)
        .reconnect(Backoff::new().initial(Duration::from_millis(1)))
        .retry_if(HandshakeError::is_retryable)
        .connect(address)
        .unwrap();
    done(client.connected()).unwrap().write(Message::text("at last")).unwrap();
    assert_eq!(receive(&received), Message::text("at last"));
    assert_eq!(requests.load(Ordering::Acquire), 3);
    client.close();
    done(client.closed()).unwrap();
}

#[test]
fn a_connection_pool_hands_out_connections_after_their_handshake() {
    let group = one_thread();
    let (address, _) = serve(&group, &[403]);
    let (texts, received) = channel();
    let pool = client(ClientBootstrap::new(&group), texts).pool().size(1).build(address).unwrap();
    let error = done(pool.acquire()).unwrap_err();
    assert_eq!(HandshakeError::of(&error).unwrap().status(), Some(StatusCode::FORBIDDEN));
    done(pool.acquire()).unwrap().write(Message::text("pooled")).unwrap();
    assert_eq!(receive(&received), Message::text("pooled"));
}

#[test]
fn a_connection_that_is_closing_takes_no_messages_of_handles_and_is_not_pooled() {
    /// The server ends the connection when it has the answer to its Close frame. This one does not.
    struct NeverEnds;

    impl Handler for NeverEnds {
        type Read = Bytes;
        type Write = Bytes;

        fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
            ctx.write(Bytes::from_static(b"\x88\x00"))
        }

        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Ok(())
        }
    }

    let group = one_thread();
    let http = HttpServer::new();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            http.pipeline().on_read(|ctx, part| {
                let Part::Head(request) = part else { return Ok(()) };
                ctx.write(WebSocketServer::new().accept(&request).unwrap().into_parts().0.into())?;
                ctx.replace_pipeline(Pipeline::codec(RawBytes).handler(NeverEnds))
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let (texts, received) = channel();
    let client = client(ClientBootstrap::new(&group), texts);
    let pool = client.pool().size(1).build(server.local_address()).unwrap();
    let closing = done(pool.acquire()).unwrap();
    assert_eq!(receive(&received), Message::Close(None));
    let refused = closing.write(Message::text("lost")).unwrap_err();
    assert!(matches!(refused.error(), Error::Closed), "{refused:?}");
    assert!(done(closing.writable()).is_err());
    let id = closing.id();
    drop(closing);
    assert_ne!(done(pool.acquire()).unwrap().id(), id);
}

#[test]
fn a_server_that_holds_back_the_body_of_its_refusal_is_timed_out() {
    let group = one_thread();
    let http = HttpServer::new();
    let (refused, refusals) = channel();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let refused = refused.clone();
            http.pipeline().on_read(move |ctx, part| match part {
                Part::Head(_) => {
                    let response = Response::new(StatusCode::FORBIDDEN);
                    ctx.write(response.body(netwheel::http::Body::Sized(10)).into())?;
                    refused.send(()).unwrap();
                    Ok(())
                }
                _ => Ok(()),
            })
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let bootstrap = ClientBootstrap::new(&group).handshake_timeout(Duration::from_millis(500));
    let connect = client(bootstrap, channel().0).connect(server.local_address());
    receive(&refusals);
    let error = done(connect).unwrap_err();
    assert!(matches!(error, Error::TimedOut { .. }), "{error:?}");
}

#[cfg(feature = "tls")]
#[test]
fn a_handshake_is_made_above_tls_whatever_the_order_of_the_settings() {
    use netwheel::tls::{TlsCertificate, TlsClient, TlsRoots, TlsServer};
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let roots = TlsRoots::from_pem(chain.as_bytes()).unwrap();
    let tls = TlsClient::builder(roots).build().unwrap();
    let group = one_thread();
    let (pipeline, _) = gate(&[401]);
    let server = ServerBootstrap::new(&group)
        .tls(TlsServer::builder(certificate).build().unwrap())
        .pipeline(pipeline)
        .bind("127.0.0.1:0")
        .unwrap();
    let target = ("localhost", server.local_address().port());
    let (texts, received) = channel();
    let before = client(ClientBootstrap::new(&group).tls(tls.clone()), texts.clone());
    let after = client(ClientBootstrap::new(&group), texts).tls(tls);
    let error = done(before.connect(target)).unwrap_err();
    assert_eq!(HandshakeError::of(&error).unwrap().status(), Some(StatusCode::UNAUTHORIZED));
    for bootstrap in [done(before.connect(target)), done(after.connect(target))] {
        bootstrap.unwrap().write(Message::text("wss")).unwrap();
        assert_eq!(receive(&received), Message::text("wss"));
    }
}

#[test]
fn a_graceful_shutdown_ends_a_connection_with_a_close_frame() {
    let group = one_thread();
    let clients = one_thread();
    let (address, _) = serve(&group, &[]);
    let (texts, received) = channel();
    let channel = done(client(ClientBootstrap::new(&clients), texts).connect(address)).unwrap();
    let report = group.shutdown(netwheel::shutdown::ShutdownOptions::new().quiet_period(Duration::ZERO));
    let Message::Close(Some(frame)) = receive(&received) else { panic!("no Close frame") };
    assert_eq!(frame.code.get(), 1001);
    done(report).unwrap();
    assert!(channel.closed().wait_timeout(60 * SECOND).is_ok());
}

#[cfg(feature = "json")]
mod json {
    use super::*;
    use netwheel::stage::Json;
    use serde::{Deserialize, Serialize};

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    enum Event {
        Joined { name: String },
        Left,
    }

    struct Lobby;

    impl Handler for Lobby {
        type Read = Event;
        type Write = Event;

        fn read(&mut self, ctx: &mut Context<'_, Self>, event: Event) -> Result {
            match event {
                Event::Joined { name } if name == "fail" => Err("the handler fails".into()),
                event => ctx.write(event),
            }
        }
    }

    /// Returns the address of a server whose handlers read and write events.
    fn lobby(group: &EventLoopGroup) -> SocketAddr {
        let http = HttpServer::new();
        let server = ServerBootstrap::new(group)
            .pipeline(move |_peer| {
                http.pipeline().on_read(|ctx, part| {
                    let Part::Head(request) = part else { return Ok(()) };
                    let (response, frames) = WebSocketServer::new().accept(&request).unwrap().into_parts();
                    ctx.write(response.into())?;
                    ctx.replace_pipeline(frames.stage(Json::<Event, Event, _>::new()).handler(Lobby))
                })
            })
            .bind("127.0.0.1:0")
            .unwrap();
        server.local_address()
    }

    #[test]
    fn serde_types_are_written_as_text_messages_and_read_from_text_and_binary_ones() {
        let group = one_thread();
        let address = lobby(&group);
        let (events, received) = channel();
        let typed = ClientBootstrap::new(&group)
            .websocket(WebSocketClient::new("localhost"), "/", move |accepted| {
                let events = events.clone();
                let frames = accepted.into_parts().1.stage(Json::<Event, Event, Message>::new());
                frames.on_read(move |_, event| events.send(event).map_err(Error::other))
            })
            .connect(address);
        done(typed).unwrap().write(Event::Joined { name: "ann".into() }).unwrap();
        assert_eq!(receive(&received), Event::Joined { name: "ann".into() });

        let (texts, received) = channel();
        let plain = done(client(ClientBootstrap::new(&group), texts).connect(address)).unwrap();
        for message in [Message::text("\"Left\""), Message::binary(&b"\"Left\""[..])] {
            plain.write(message).unwrap();
            assert_eq!(receive(&received), Message::text("\"Left\""));
        }
    }

    #[test]
    fn a_malformed_value_ends_the_connection_with_1007_and_a_failed_handler_with_1011() {
        let group = one_thread();
        let address = lobby(&group);
        for (text, code) in [("{", 1007), (r#"{"Joined":{"name":"fail"}}"#, 1011)] {
            let (texts, received) = channel();
            let channel = done(client(ClientBootstrap::new(&group), texts).connect(address)).unwrap();
            channel.write(Message::text(text)).unwrap();
            let Message::Close(Some(frame)) = receive(&received) else { panic!("no Close frame") };
            assert_eq!(frame.code.get(), code);
        }
    }
}
