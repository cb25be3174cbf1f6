//! The messages that Go's tests write, and the bytes that we send for them.
//!
//! Go sends `User-Agent` unless it is switched off. We leave that to the program.

use crate::{
    error::{EncodeError, Error, Result},
    http::{
        Body, Headers, Part, Request, Response, StatusCode, client::HttpClient, settings::HttpSettings,
        tests::support::Server,
    },
    testing::EmbeddedChannel,
};

/// Writes the parts of a request, and returns the bytes up to the first error.
fn sent(parts: Vec<Part<Request>>) -> (String, Result) {
    let mut channel =
        EmbeddedChannel::new(HttpClient::new().host("a.example").pipeline().on_read(|_, _| Ok(())));
    let mut result = Ok(());
    for part in parts {
        let written = channel.channel().write_tracked(part);
        channel.run_pending();
        result = written.map_err(Error::from).and_then(|written| written.wait());
        if result.is_err() {
            break;
        }
    }
    (String::from_utf8(channel.read_outbound().to_vec()).unwrap(), result)
}

fn streamed(head: Request, body: &'static str) -> Vec<Part<Request>> {
    vec![head.into(), Part::Body(body.into()), Part::End(Headers::new())]
}

#[test]
fn a_client_writes_the_requests_of_go() {
    let rows = [
        (
            "headers in their order and case",
            vec![Request::get("/").header("ALL-CAPS", "x").header("Accept", "*/*").into()],
            "GET / HTTP/1.1\r\nHost: a.example\r\nALL-CAPS: x\r\nAccept: */*\r\n\r\n",
        ),
        (
            "a chunked body of a GET",
            streamed(Request::get("/search").body(Body::Streamed), "abcdef"),
            "GET /search HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n\
             6\r\nabcdef\r\n0\r\n\r\n",
        ),
        (
            "a chunked body and a close",
            streamed(Request::post("/", Body::Streamed).close(), "abcdef"),
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             6\r\nabcdef\r\n0\r\n\r\n",
        ),
        (
            "a length and a close",
            vec![Request::post("/", "abcdef").close().into()],
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabcdef",
        ),
        (
            "an empty chunked body",
            streamed(Request::post("/", Body::Streamed), ""),
            "POST / HTTP/1.1\r\nHost: a.example\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ),
        (
            "a POST without a body",
            vec![Request::post("/", Body::Empty).into()],
            "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 0\r\n\r\n",
        ),
        (
            "another host",
            vec![Request::get("/").header("Host", "b.example").into()],
            "GET / HTTP/1.1\r\nHost: b.example\r\n\r\n",
        ),
        (
            "an escaped path",
            vec![Request::get("/%2F/%2F/").into()],
            "GET /%2F/%2F/ HTTP/1.1\r\nHost: a.example\r\n\r\n",
        ),
        (
            "CONNECT through a proxy",
            vec![Request::new("CONNECT", "backend:443").into()],
            "CONNECT backend:443 HTTP/1.1\r\nHost: backend:443\r\n\r\n",
        ),
    ];
    for (name, parts, expected) in rows {
        let (bytes, result) = sent(parts);
        assert_eq!(bytes, expected, "{name}");
        result.unwrap();
    }
}

/// There is one exception: Go ignores a `Content-Length` of the program. We refuse it, because it
/// contradicts the body.
#[test]
fn a_client_refuses_the_requests_that_go_refuses() {
    let rows = [
        ("a shorter body", streamed(Request::post("/", Body::Sized(10)), "12345")),
        ("a longer body", streamed(Request::post("/", Body::Sized(4)), "12345678")),
        ("a length in the headers", vec![Request::post("/", "abcdef").header("Content-Length", "10").into()]),
        ("a line in the query", vec![Request::get("/?new\nline").into()]),
    ];
    for (name, parts) in rows {
        let (_, result) = sent(parts);
        assert!(matches!(result, Err(Error::Encode(EncodeError::Unencodable(_)))), "{name}: {result:?}");
    }
}

/// Go writes the version of the program, and ends a body of unknown length with the connection also
/// in HTTP/1.1. We send HTTP/1.1 (RFC 9110, section 2.5), and chunks if the client
/// understands them.
#[test]
fn a_server_writes_the_responses_of_go() {
    type Answer = fn() -> Vec<Part<Response>>;
    let request = |version: &str| format!("GET / HTTP/{version}\r\nHost: a\r\n\r\n");
    let rows: [(&str, &str, Answer, &str, bool); 7] = [
        (
            "a length to HTTP/1.0",
            "1.0",
            || vec![Response::new(StatusCode::SERVICE_UNAVAILABLE).body("abcdef").into()],
            "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 6\r\nConnection: close\r\n\r\nabcdef",
            false,
        ),
        (
            "an unknown length to HTTP/1.0",
            "1.0",
            || body_of(Response::ok(Body::Streamed)),
            "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nabcdef",
            false,
        ),
        (
            "an unknown length to HTTP/1.1",
            "1.1",
            || body_of(Response::ok(Body::Streamed)),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n6\r\nabcdef\r\n0\r\n\r\n",
            true,
        ),
        (
            "an unknown length and a close",
            "1.1",
            || body_of(Response::ok(Body::Streamed).close()),
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
             6\r\nabcdef\r\n0\r\n\r\n",
            false,
        ),
        (
            "no body",
            "1.1",
            || vec![Response::ok(Body::Empty).into()],
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        (
            "an empty body",
            "1.1",
            || vec![Response::ok("").into()],
            "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
            true,
        ),
        (
            "204 and a close",
            "1.1",
            || vec![Response::new(StatusCode::NO_CONTENT).header("Foo", "Bar").close().into()],
            "HTTP/1.1 204 No Content\r\nFoo: Bar\r\nConnection: close\r\n\r\n",
            false,
        ),
    ];
    for (name, version, answer, expected, is_kept) in rows {
        let mut server = Server::answering(
            HttpSettings::new(),
            |_, _| Ok(()),
            move |ctx, _| answer().into_iter().try_for_each(|part| ctx.write(part)),
        );
        assert_eq!(server.send(request(version)), expected, "{name}");
        assert_eq!(server.channel.is_open(), is_kept, "{name}");
    }
}

fn body_of(head: Response) -> Vec<Part<Response>> {
    vec![head.into(), Part::Body("abcdef".into()), Part::End(Headers::new())]
}
