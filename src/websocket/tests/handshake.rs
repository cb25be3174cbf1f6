//! Handshakes of servers and clients.

use super::support::{TEXT, as_read, client, server};
use crate::{
    channel::Pipeline,
    error::Result,
    http::{HttpServer, Part, Request, Response, StatusCode, put_upgrade},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
    websocket::{
        HandshakeError, WebSocketClient,
        handshake::{WebSocketServer, accept_key},
        message::Message,
        settings::WebSocketSettings,
    },
};
use std::{cell::RefCell, rc::Rc, time::Duration};

const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &str = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

/// Accepts every request, and echoes.
struct Site(WebSocketServer);

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        match self.0.accept(&request) {
            Ok(accepted) => {
                let (response, pipeline) = accepted.into_parts();
                ctx.write(response.into())?;
                ctx.replace_pipeline(pipeline.handler(Echo))
            }
            Err(refusal) => ctx.write((*refusal).into()),
        }
    }
}

struct Echo;

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        if message.is_control() { Ok(()) } else { ctx.write(message) }
    }
}

fn site(websocket: WebSocketServer) -> Pipeline<Part<Response>> {
    HttpServer::new().pipeline().handler(Site(websocket))
}

/// Returns a request, in which one header is replaced, or removed if its value is empty.
fn request(line: &str, name: &str, value: &str) -> String {
    let mut text = format!("{line}\r\n");
    for (header, usual) in [
        ("Host", "example.org"),
        ("Connection", "keep-alive, Upgrade"),
        ("Upgrade", "websocket"),
        ("Sec-WebSocket-Version", "13"),
        ("Sec-WebSocket-Key", KEY),
    ] {
        let value = if header == name { value } else { usual };
        if !value.is_empty() {
            text += &format!("{header}: {value}\r\n");
        }
    }
    text + "\r\n"
}

fn respond(websocket: WebSocketServer, request: impl AsRef<[u8]>) -> String {
    let mut channel = EmbeddedChannel::new(site(websocket));
    channel.write_inbound(request.as_ref()).unwrap();
    String::from_utf8_lossy(&channel.read_outbound()).into_owned()
}

fn status(websocket: &WebSocketServer, request: &str) -> u16 {
    let response = respond(websocket.clone(), request);
    response.strip_prefix("HTTP/1.1 ").expect("a response")[..3].parse().unwrap()
}

#[test]
fn a_handshake_is_answered_with_101_and_the_key() {
    let response = respond(WebSocketServer::new(), request("GET / HTTP/1.1", "", ""));
    assert!(response.starts_with("HTTP/1.1 101 Switching Protocols\r\n"), "{response}");
    for header in ["Connection: Upgrade", "Upgrade: websocket", &format!("Sec-WebSocket-Accept: {ACCEPT}")] {
        assert!(response.contains(&format!("\r\n{header}\r\n")), "{response}");
    }
    assert!(!response.contains("Sec-WebSocket-Protocol") && !response.contains("Extensions"));
}

#[test]
fn a_request_that_is_no_handshake_is_refused_with_400() {
    let websocket = WebSocketServer::new();
    for request in [
        request("POST / HTTP/1.1", "", ""),
        request("GET / HTTP/1.0", "", ""),
        request("GET / HTTP/1.1", "Connection", "keep-alive"),
        request("GET / HTTP/1.1", "Connection", "xUpgrade"),
        request("GET / HTTP/1.1", "Upgrade", "h2c"),
        request("GET / HTTP/1.1", "Upgrade", ""),
        request("GET / HTTP/1.1", "Sec-WebSocket-Key", ""),
        request("GET / HTTP/1.1", "Sec-WebSocket-Key", "dG9vIHNob3J0"),
        request("GET / HTTP/1.1", "Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25j*Q=="),
        request("GET / HTTP/1.1", "Sec-WebSocket-Key", &format!("{KEY}\r\nSec-WebSocket-Key: {KEY}")),
    ] {
        assert_eq!(status(&websocket, &request), 400, "{request}");
    }
}

#[test]
fn another_version_is_refused_with_426_and_ours() {
    for version in ["8", "14", "", "13, 8"] {
        let request = request("GET / HTTP/1.1", "Sec-WebSocket-Version", version);
        let response = respond(WebSocketServer::new(), request);
        assert!(response.starts_with("HTTP/1.1 426 "), "{response}");
        assert!(response.contains("\r\nSec-WebSocket-Version: 13\r\n"), "{response}");
    }
}

#[test]
fn an_origin_that_is_not_allowed_is_refused_with_403() {
    let websocket = WebSocketServer::new().origins(["https://example.org", "http://localhost:8080"]);
    let from = |origin: &str| {
        let line = format!("GET / HTTP/1.1\r\nOrigin: {origin}");
        status(&websocket, &request(&line, "", ""))
    };
    for origin in ["https://example.org", "HTTPS://EXAMPLE.ORG", "http://localhost:8080"] {
        assert_eq!(from(origin), 101, "{origin}");
    }
    for origin in
        ["http://example.org", "https://example.org.evil", "null", "", "https://example.org\r\nOrigin: null"]
    {
        assert_eq!(from(origin), 403, "{origin}");
    }
    assert_eq!(status(&websocket, &request("GET / HTTP/1.1", "", "")), 101, "not from a browser");
    let all = WebSocketServer::new();
    assert_eq!(status(&all, &request("GET / HTTP/1.1\r\nOrigin: null", "", "")), 101);
}

#[test]
fn a_subprotocol_that_was_not_offered_is_never_answered() {
    let websocket = WebSocketServer::new().protocols(["chat.v2", "chat.v1"]).unwrap();
    let chosen = |offers: &str| {
        let line = format!("GET / HTTP/1.1{offers}");
        let response = respond(websocket.clone(), request(&line, "", ""));
        assert!(response.starts_with("HTTP/1.1 101 "), "{response}");
        let (_, rest) = response.split_once("Sec-WebSocket-Protocol: ")?;
        rest.split("\r\n").next().map(str::to_owned)
    };
    assert_eq!(chosen(""), None);
    assert_eq!(chosen("\r\nSec-WebSocket-Protocol: chat.v3, CHAT.V1"), None);
    assert_eq!(chosen("\r\nSec-WebSocket-Protocol: chat.v1").as_deref(), Some("chat.v1"));
    let both = "\r\nSec-WebSocket-Protocol: x,chat.v1\r\nSec-WebSocket-Protocol: chat.v2";
    assert_eq!(chosen(both).as_deref(), Some("chat.v2"), "the server prefers it");
    let error = WebSocketServer::new().protocols(["chat v1"]).unwrap_err();
    assert!(error.to_string().starts_with("protocols is \"chat v1\"; it must be a token"), "{error}");
}

#[test]
fn frames_behind_the_handshake_go_to_the_new_pipeline() {
    let bytes = [request("GET / HTTP/1.1", "", "").as_bytes(), &client(TEXT, "hi")].concat();
    for cut in 0..bytes.len() {
        let mut channel = EmbeddedChannel::new(site(WebSocketServer::new()));
        channel.write_inbound(&bytes[..cut]).unwrap();
        channel.write_inbound(&bytes[cut..]).unwrap();
        let output = channel.read_outbound();
        assert!(output.ends_with(&[&b"\r\n\r\n"[..], &server(TEXT, "hi")].concat()), "cut at {cut}");
    }
}

/// Connects a client to a server in memory until both are quiet.
fn exchange<A: 'static, B: 'static>(one: &mut EmbeddedChannel<A>, other: &mut EmbeddedChannel<B>) {
    loop {
        let (from_one, from_other) = (one.read_outbound(), other.read_outbound());
        if from_one.is_empty() && from_other.is_empty() {
            return;
        }
        if !from_one.is_empty() && other.is_open() {
            other.write_inbound(&from_one).unwrap();
        }
        if !from_other.is_empty() && one.is_open() {
            one.write_inbound(&from_other).unwrap();
        }
    }
}

/// Greets the server, and records its messages.
struct Greet(Rc<RefCell<Vec<Message>>>);

impl Handler for Greet {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Message::text("hello"))
    }

    fn read(&mut self, _: &mut Context<'_, Self>, message: Message) -> Result {
        self.0.borrow_mut().push(message);
        Ok(())
    }
}

/// Returns a channel of a client that makes a handshake, and then continues with this handler.
fn client_channel<H>(client: &WebSocketClient, handler: H) -> EmbeddedChannel<Message>
where
    H: Handler<Read = Message, Write = Message>,
{
    let builder = EmbeddedChannel::builder(client.connected().handler(handler));
    builder.filter(client.filter("/chat")).handshake_timeout(Duration::from_secs(5)).build().unwrap()
}

#[test]
fn our_client_connects_to_our_server() {
    let websocket = WebSocketServer::new().protocols(["b", "a"]).unwrap();
    let mut server = EmbeddedChannel::new(site(websocket));
    let received = Rc::new(RefCell::new(Vec::new()));
    let client = WebSocketClient::new("example.org").protocols(["a", "b"]).unwrap();
    let mut client = client_channel(&client, Greet(received.clone()));
    exchange(&mut client, &mut server);
    assert_eq!(*received.borrow(), [Message::text("hello")]);
}

#[test]
fn a_client_refuses_a_response_that_does_not_answer_its_request() {
    let websocket = WebSocketClient::new("example.org").protocols(["a"]).unwrap();
    let handshake = websocket.handshake();
    let request = as_read(&handshake.request("/"));
    let good = *WebSocketServer::new()
        .protocols(["a"])
        .unwrap()
        .accept(&request)
        .map(|accepted| Box::new(accepted.response().clone()))
        .unwrap();
    assert_eq!(handshake.check(good.clone()).unwrap().protocol(), Some("a"));
    let changed = |name: &str, value: &str| {
        let mut response = good.clone();
        response.headers_mut().set(name, value);
        handshake.check(response).unwrap_err()
    };
    assert_eq!(changed("Sec-WebSocket-Accept", ACCEPT), HandshakeError::AcceptKey);
    assert_eq!(changed("Upgrade", "h2c"), HandshakeError::NotUpgraded);
    assert_eq!(changed("Connection", "close"), HandshakeError::NotUpgraded);
    assert_eq!(changed("Sec-WebSocket-Protocol", "b"), HandshakeError::Protocol);
    assert_eq!(changed("Sec-WebSocket-Extensions", "permessage-deflate"), HandshakeError::Extension);
    let refused = handshake.check(Response::new(StatusCode::FORBIDDEN)).unwrap_err();
    assert_eq!(refused.status(), Some(StatusCode::FORBIDDEN));
    assert_eq!(refused.to_string(), "the server responded with 403 Forbidden");
}

/// A handler that records the errors of its channel. It is called after a handshake only.
struct Unreached;

impl Handler for Unreached {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        panic!("the handshake has succeeded");
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Message) -> Result {
        Ok(())
    }
}

#[test]
fn a_client_does_not_accept_a_handshake_in_http_1_0() {
    let mut channel = client_channel(&WebSocketClient::new("example.org"), Unreached);
    let request = String::from_utf8(channel.read_outbound().to_vec()).unwrap();
    let key = request.lines().find_map(|line| line.strip_prefix("Sec-WebSocket-Key: ")).unwrap();
    let accept = accept_key(key.as_bytes());
    let head = format!(
        "101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: {accept}\r\n\r\n"
    );
    let _ = channel.write_inbound(format!("HTTP/1.0 {head}").as_bytes());
    assert!(!channel.is_open());
}

#[test]
fn a_handshake_of_a_client_has_a_time_limit_that_no_byte_extends() {
    for piece in ["", "HTTP/1.1 102 Processing\r\n\r\n", "x"] {
        let mut channel = client_channel(&WebSocketClient::new("example.org"), Unreached);
        let head = "HTTP/1.1 200 OK".to_owned();
        for second in 0..5 {
            assert!(channel.is_open(), "{piece:?} after {second} s");
            let bytes = if piece == "x" { &head[second..=second] } else { piece };
            channel.write_inbound(bytes.as_bytes()).unwrap();
            channel.advance(Duration::from_millis(950));
        }
        channel.advance(Duration::from_millis(500));
        assert!(!channel.is_open(), "{piece:?}");
    }
}

#[test]
fn the_time_limit_of_a_handshake_ends_with_it() {
    let settings = WebSocketSettings::new().ping_interval(Duration::ZERO);
    let client = WebSocketClient::new("example.org").with(settings).unwrap();
    let mut client = client_channel(&client, Echo);
    let mut server = EmbeddedChannel::new(site(WebSocketServer::new()));
    exchange(&mut client, &mut server);
    client.advance(Duration::from_secs(20));
    assert!(client.is_open());
}

/// Returns the refusal that a client sees if its server sends `response` in pieces of this length,
/// and then ends its stream.
fn refusal(response: &str, piece: usize) -> HandshakeError {
    let mut reader = crate::http::UpgradeReader::new(HandshakeError::MAX_BODY);
    let mut input = Vec::new();
    for bytes in response.as_bytes().chunks(piece) {
        input.extend_from_slice(bytes);
        let (consumed, upgrade) = reader.read(&input).unwrap();
        input.drain(..consumed);
        if let crate::http::Upgrade::Refused(response) = upgrade {
            return HandshakeError::Refused(response);
        }
    }
    match reader.end_of_input().unwrap() {
        crate::http::Upgrade::Refused(response) => HandshakeError::Refused(response),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_refusal_has_the_response_however_it_is_split() {
    let long = "x".repeat(10_000);
    let table = [
        (
            "HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Bearer\r\nContent-Length: 6\r\n\r\ngo away",
            401,
            "go awa",
        ),
        (
            "HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 503 Busy\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n0\r\n\r\n",
            503,
            "no",
        ),
        ("HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n", 302, ""),
        ("HTTP/1.0 500 Oops\r\n\r\nuntil the end", 500, "until the end"),
        ("HTTP/1.1 403 No\r\nContent-Length: 99\r\n\r\ncut", 403, "cut"),
        (&format!("HTTP/1.1 400 No\r\nContent-Length: 10000\r\n\r\n{long}"), 400, &long[..4096]),
        // More than the largest body of a response.
        (&format!("HTTP/1.1 401 No\r\nContent-Length: 99999999\r\n\r\n{long}"), 401, &long[..4096]),
        (
            &format!("HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n5f5e100\r\n{long}"),
            401,
            &long[..4096],
        ),
        ("HTTP/1.1 401 No\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nno\r\n5f5e100\r\ncut", 401, "nocut"),
    ];
    for (response, status, body) in table {
        for piece in [1, 7, 100_000] {
            let error = refusal(response, piece);
            assert_eq!(error.status().map(StatusCode::as_u16), Some(status));
            assert_eq!(error.response().unwrap().body, body, "{status} in pieces of {piece}");
        }
    }
    let error = refusal(table[0].0, 5);
    assert_eq!(error.response().unwrap().head.headers().text("www-authenticate"), Some("Bearer"));
}

#[test]
fn only_refusals_that_may_change_are_retryable() {
    let error = |code| refusal(&format!("HTTP/1.1 {code} x\r\nContent-Length: 0\r\n\r\n"), 99).into();
    for (code, retryable) in
        [(401, false), (403, false), (302, false), (404, false), (429, true), (503, true)]
    {
        assert_eq!(HandshakeError::is_retryable(&error(code)), retryable, "{code}");
    }
    assert!(!HandshakeError::is_retryable(&HandshakeError::AcceptKey.into()));
    assert!(HandshakeError::is_retryable(&crate::error::Error::Closed));
}

/// The field may be the one that authenticates the client.
#[test]
fn a_handshake_with_a_field_that_is_not_valid_is_not_sent() {
    let client = WebSocketClient::new("a").header("Authorization", "Bearer x\n");
    let request = client.handshake().request("/");
    let mut output = Vec::new();
    let error = put_upgrade(&request, "a", &mut output).unwrap_err();
    assert!(format!("{error:#}").to_lowercase().contains("authorization"), "{error:#}");
    assert!(output.is_empty());
}
