//! Messages that a proxy passes on: framing, fields of one connection, the client's address.

use super::support::Server;
use crate::{
    channel::Peer,
    http::{
        Headers, Part, Request, Response,
        client::HttpClient,
        forwarding::{ForwardedHeaders, Forwarding},
        server::HttpServer,
    },
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc};

fn forwarding() -> Forwarding {
    Forwarding::new("edge").unwrap()
}

fn client() -> Peer {
    Peer::new(Some("192.0.2.7:4321".parse().unwrap()), None)
}

/// Returns the parts of a request as a server reads them.
fn received(input: &str) -> Vec<Part<Request>> {
    let parts = Rc::new(RefCell::new(Vec::new()));
    let seen = parts.clone();
    let pipeline = HttpServer::new().pipeline().on_read(move |_, part| {
        seen.borrow_mut().push(part);
        Ok(())
    });
    EmbeddedChannel::new(pipeline).write_inbound(input.as_bytes()).unwrap();
    parts.take()
}

/// Returns the output of a client for a request that a server has read.
fn request_passed_on(input: &str) -> String {
    let pipeline = HttpClient::new().pipeline().on_read(|_, _: Part<Response>| Ok(()));
    let mut backend = EmbeddedChannel::new(pipeline);
    for part in received(input) {
        let part = match part {
            Part::Head(head) => Part::Head(forwarding().request(head, &client())),
            part => part,
        };
        backend.channel().write(part).map_err(crate::error::Error::from).unwrap();
    }
    backend.run_pending();
    assert!(backend.is_open());
    String::from_utf8(backend.read_outbound().to_vec()).unwrap()
}

/// Returns the output of a server for a response that a client has read, and whether the server's
/// connection stays open.
fn response_passed_on(method: &str, input: &str) -> (String, bool) {
    let parts = Rc::new(RefCell::new(Vec::new()));
    let seen = parts.clone();
    let pipeline = HttpClient::new().host("a").pipeline().on_read(move |_, part: Part<Response>| {
        seen.borrow_mut().push(part);
        Ok(())
    });
    let mut backend = EmbeddedChannel::new(pipeline);
    backend.channel().write(Request::new(method, "/").into()).map_err(crate::error::Error::from).unwrap();
    backend.run_pending();
    backend.write_inbound(input.as_bytes()).unwrap();
    backend.end_inbound();
    let mut front = Server::at_head(move |ctx, _| {
        for part in parts.take() {
            ctx.write(match part {
                Part::Head(head) => Part::Head(forwarding().response(head)),
                part => part,
            })?;
        }
        Ok(())
    });
    let output = front.send(format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n"));
    (output, front.channel.is_open())
}

/// Without the announced length, that of the response to GET is unknown, and 0 would be wrong.
#[test]
fn a_whole_response_without_a_body_is_passed_on_without_a_length() {
    for (method, status, length) in [
        ("HEAD", "200 OK\r\nContent-Length: 3", None),
        ("GET", "304 Not Modified\r\nContent-Length: 9", None),
        ("GET", "200 OK\r\nContent-Length: 0", Some("0")),
    ] {
        let seen = Rc::new(RefCell::new(None));
        let head = seen.clone();
        let pipeline = HttpClient::new().host("a").pipeline().on_read(move |_, part: Part<Response>| {
            if let Part::Head(response) = part {
                *head.borrow_mut() = Some(response);
            }
            Ok(())
        });
        let mut backend = EmbeddedChannel::new(pipeline);
        backend.channel().write(Request::new(method, "/").into()).map_err(crate::error::Error::from).unwrap();
        backend.run_pending();
        backend.write_inbound(format!("HTTP/1.1 {status}\r\n\r\n").as_bytes()).unwrap();
        let mut front = Server::at_head(move |ctx, _| match seen.take() {
            Some(response) => ctx.write(forwarding().response(response).body(bytes::Bytes::new()).into()),
            None => ctx.write(Response::ok("next").into()),
        });
        let request = format!("{method} / HTTP/1.1\r\nHost: a\r\n\r\n");
        let output = front.send(request);
        let found = output.to_ascii_lowercase();
        let found = found.split("content-length: ").nth(1).and_then(|rest| rest.split("\r\n").next());
        assert_eq!(found, length, "{output}");
        assert!(front.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n").ends_with("next"));
    }
}

#[test]
fn a_request_that_was_read_can_be_sent() {
    let added =
        "X-Forwarded-For: 192.0.2.7\r\nX-Forwarded-Proto: http\r\nX-Forwarded-Host: a\r\nVia: 1.1 edge\r\n";
    for (input, line, framing, body) in [
        ("GET /x?y HTTP/1.1\r\nHost: a\r\n\r\n", "GET /x?y", "", ""),
        ("GET http://a/x HTTP/1.1\r\nHost: b\r\n\r\n", "GET /x", "", ""),
        (
            "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc",
            "POST /",
            "Content-Length: 3\r\n",
            "abc",
        ),
        ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n", "POST /", "Content-Length: 0\r\n", ""),
        (
            "PUT / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n",
            "PUT /",
            "Transfer-Encoding: chunked\r\n",
            "3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n",
        ),
    ] {
        let expected = format!("{line} HTTP/1.1\r\nHost: a\r\n{added}{framing}\r\n{body}");
        assert_eq!(request_passed_on(input), expected, "{input}");
    }
}

#[test]
fn a_response_that_was_read_can_be_sent() {
    for (method, input, framing, body) in [
        ("GET", "200 OK\r\nContent-Length: 3\r\n\r\nabc", "Content-Length: 3\r\n", "abc"),
        ("GET", "200 OK\r\nContent-Length: 0\r\n\r\n", "Content-Length: 0\r\n", ""),
        (
            "GET",
            "200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n",
            "Transfer-Encoding: chunked\r\n",
            "3\r\nabc\r\n0\r\nX-Sum: 3\r\n\r\n",
        ),
        ("GET", "200 OK\r\n\r\nabc", "Transfer-Encoding: chunked\r\n", "3\r\nabc\r\n0\r\n\r\n"),
        ("HEAD", "200 OK\r\nContent-Length: 3\r\n\r\n", "Content-Length: 3\r\n", ""),
        ("HEAD", "200 OK\r\n\r\n", "", ""),
        ("GET", "204 No Content\r\n\r\n", "", ""),
        ("GET", "304 Not Modified\r\nContent-Length: 9\r\n\r\n", "Content-Length: 9\r\n", ""),
        ("GET", "304 Not Modified\r\n\r\n", "", ""),
    ] {
        let (output, is_open) = response_passed_on(method, &format!("HTTP/1.1 {input}"));
        let status = input.split("\r\n").next().unwrap();
        assert_eq!(
            output,
            format!("HTTP/1.1 {status}\r\nVia: 1.1 edge\r\n{framing}\r\n{body}"),
            "{method} {input}"
        );
        assert!(is_open, "{method} {input}");
    }
}

/// Smuggling: the two connections of a proxy have nothing to do with each other.
#[test]
fn a_backend_that_closes_does_not_close_the_front() {
    for head in ["1.1 200 OK\r\nConnection: close", "1.0 200 OK", "1.1 200 OK\r\nKeep-Alive: timeout=0"] {
        let input = format!("HTTP/{head}\r\nContent-Length: 2\r\n\r\nok");
        let (output, is_open) = response_passed_on("GET", &input);
        assert!(is_open && !output.contains("Connection") && !output.contains("Keep-Alive"), "{output}");
    }
    let closing = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    assert!(!request_passed_on(closing).contains("Connection"));
}

fn names(headers: &Headers) -> Vec<String> {
    headers.iter().map(|(name, _)| name.to_ascii_lowercase()).collect()
}

#[test]
fn fields_of_one_connection_are_removed() {
    let request = Request::get("/")
        .header("Host", "a")
        .header("Connection", "keep-alive, X-D, X-A, x-d")
        .header("connection", "x-b")
        .header("x-D", "1")
        .header("X-a", "1")
        .header("X-B", "1")
        .header("Keep-Alive", "timeout=5")
        .header("Proxy-Connection", "keep-alive")
        .header("Proxy-Authorization", "Basic x")
        .header("TE", "trailers")
        .header("Upgrade", "h2c")
        .header("Expect", "100-continue")
        .header("X-C", "1");
    let sent = forwarding().headers(ForwardedHeaders::None).request(request, &client());
    assert_eq!(names(sent.headers()), ["x-c", "host", "via"]);
}

/// A client must not be able to remove fields of the proxy, or to choose the host.
#[test]
fn hop_by_hop_abuse_removes_no_field_of_the_proxy() {
    let request = Request::get("/")
        .header("Host", "a")
        .header("Connection", "Host, X-Forwarded-For, X-Forwarded-Host, Via, Content-Length");
    let sent = forwarding().request(request, &client());
    assert_eq!(
        names(sent.headers()),
        ["host", "x-forwarded-for", "x-forwarded-proto", "x-forwarded-host", "via"]
    );
}

/// RFC 9110, section 7.6.2.
#[test]
fn a_request_is_forwarded_as_often_as_it_allows() {
    for method in ["OPTIONS", "TRACE"] {
        for (given, may_forward, sent) in [
            (&[][..], true, &[][..]),
            (&["0"], false, &["0"]),
            (&["1"], true, &["0"]),
            (&["10"], true, &["9"]),
            (&["0010"], true, &["9"]),
            (&["99999999999999999999"], true, &["18446744073709551614"]),
            (&["7", "3"], true, &["2"]),
            (&["7", "0"], false, &["0"]),
            (&["-1"], true, &["-1"]),
            (&["1, 2"], true, &["1, 2"]),
        ] {
            let add = |request: Request, value: &&str| request.header("Max-Forwards", *value);
            let request = given.iter().fold(Request::new(method, "/").header("Host", "a"), add);
            assert_eq!(forwarding().may_forward(&request), may_forward, "{method} {given:?}");
            let request = forwarding().request(request, &client());
            let values: Vec<_> = request.headers().all("max-forwards").collect();
            let sent: Vec<_> = sent.iter().map(|value| value.as_bytes()).collect();
            assert_eq!(values, sent, "{method} {given:?}");
        }
    }
    // A client cannot remove the limit, which ends a loop of proxies.
    let named = Request::new("TRACE", "/").header("Connection", "Max-Forwards").header("Max-Forwards", "2");
    assert_eq!(forwarding().request(named, &client()).headers().text("max-forwards"), Some("1"));
    let other = Request::get("/").header("Max-Forwards", "0");
    assert!(forwarding().may_forward(&other), "the limit of another method does not count");
    assert_eq!(forwarding().request(other, &client()).headers().text("max-forwards"), Some("0"));
}

#[test]
fn spoofed_addresses_of_clients_are_removed_unless_clients_are_trusted() {
    let request = || {
        Request::get("/")
            .header("Host", "a.example")
            .header("X-Forwarded-For", "203.0.113.1")
            .header("x-forwarded-proto", "https")
            .header("X-Forwarded-Host", "evil.example")
            .header("X-Forwarded-Port", "1")
            .header("Forwarded", "for=203.0.113.1")
    };
    let values = |forwarding: &Forwarding, name: &str| {
        let sent = forwarding.request(request(), &client());
        sent.headers().all(name).map(|value| String::from_utf8_lossy(value).into_owned()).collect::<Vec<_>>()
    };
    let (wary, trusting) = (forwarding(), forwarding().trust_client(true));
    assert_eq!(values(&wary, "x-forwarded-for"), ["192.0.2.7"]);
    assert_eq!(values(&wary, "x-forwarded-proto"), ["http"]);
    assert_eq!(values(&wary, "x-forwarded-host"), ["a.example"]);
    assert_eq!(values(&wary, "x-forwarded-port"), [""; 0]);
    assert_eq!(values(&wary, "forwarded"), [""; 0]);
    assert_eq!(values(&trusting, "x-forwarded-for"), ["203.0.113.1", "192.0.2.7"]);
    assert_eq!(values(&trusting, "x-forwarded-proto"), ["https"]);
    let standard = wary.headers(ForwardedHeaders::Forwarded);
    assert_eq!(values(&standard, "forwarded"), ["for=192.0.2.7;proto=http;host=\"a.example\""]);
    let peer = Peer::new(Some("[2001:db8::1]:1".parse().unwrap()), None);
    let sent = standard.request(Request::get("/").header("Host", "a"), &peer);
    assert_eq!(sent.headers().text("forwarded"), Some("for=\"[2001:db8::1]\";proto=http;host=\"a\""));
}

#[test]
fn an_upgrade_is_kept_only_if_it_is_asked_for() {
    let request = || {
        Request::get("/")
            .header("Host", "a")
            .header("Connection", "Upgrade")
            .header("Upgrade", "h2c, websocket")
            .header("HTTP2-Settings", "AAMAAABkAAQCAAAAAAIAAAAA")
    };
    // Behind a switch to another protocol, requests would pass the proxy unseen.
    let sent = forwarding().upgrade(request(), "websocket", &client());
    assert_eq!(sent.headers().all("upgrade").collect::<Vec<_>>(), [b"websocket"]);
    assert!(sent.headers().has_token("connection", "upgrade") && !sent.headers().contains("http2-settings"));
    assert!(!forwarding().request(request(), &client()).headers().contains("upgrade"));
    let switched = Response::new(crate::http::StatusCode::SWITCHING_PROTOCOLS)
        .header("Connection", "Upgrade, X-A")
        .header("X-A", "1")
        .header("Upgrade", "websocket");
    let sent = forwarding().response(switched);
    assert_eq!(names(sent.headers()), ["connection", "upgrade", "via"]);
}

#[test]
fn a_name_that_is_no_host_is_refused() {
    for name in ["", "a b", "a,b", "a\r\nX: b"] {
        assert!(Forwarding::new(name).is_err(), "{name:?}");
    }
    assert!(Forwarding::new("proxy.example:8080").is_ok());
}
