//! Requests that other recipients refuse or understand differently.

use crate::{
    error::Result,
    http::{Part, Request, Response, server::HttpServer},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};

/// Answers each request when it is complete.
struct Answers;

impl Handler for Answers {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        if let Part::End(_) = part { ctx.write(Response::ok("").into()) } else { Ok(()) }
    }
}

/// Returns the status codes of the answers, and whether the connection stays open.
fn answers(input: &str) -> (Vec<u16>, bool) {
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Answers));
    channel.write_inbound(input.as_bytes()).unwrap();
    let output = channel.read_outbound();
    let output = std::str::from_utf8(&output).unwrap();
    let codes = output.split("HTTP/1.1 ").skip(1).map(|answer| answer[..3].parse().unwrap()).collect();
    (codes, channel.is_open())
}

#[test]
fn close_wins_over_keep_alive_in_both_versions() {
    let request = |version: &str, connection: &str| {
        answers(&format!("GET / HTTP/{version}\r\nHost: a\r\nConnection: {connection}\r\n\r\n"))
    };
    assert_eq!(request("1.0", "keep-alive"), (vec![200], true));
    assert_eq!(request("1.0", "keep-alive, close"), (vec![200], false));
    assert_eq!(request("1.0", "close\r\nConnection: keep-alive"), (vec![200], false));
    assert_eq!(request("1.1", "keep-alive, close"), (vec![200], false));
}

#[test]
fn connect_has_no_body() {
    let connect = |headers: &str| answers(&format!("CONNECT a:80 HTTP/1.1\r\nHost: a\r\n{headers}\r\n"));
    assert_eq!(connect("Content-Length: 5\r\n"), (vec![400], false));
    assert_eq!(connect("Transfer-Encoding: chunked\r\n"), (vec![400], false));
    assert_eq!(connect("Content-Length: 0\r\n").0, [200]);
}

#[test]
fn a_list_of_codings_has_no_empty_elements() {
    for codings in ["chunked,", ",chunked", ", chunked", "chunked, ,"] {
        let input = format!("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {codings}\r\n\r\n0\r\n\r\n");
        assert_eq!(answers(&input), (vec![400], false), "{codings}");
    }
}

#[test]
fn an_absolute_target_has_a_scheme_and_a_host() {
    let get = |target: &str| answers(&format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
    for target in ["http://a/", "HTTP://a:80?b://c", "http://[::1]/"] {
        assert_eq!(get(target), (vec![200], true), "{target}");
    }
    for target in
        ["://a/", "h2://a/", "http:///a", "http://?a", "http://user@a/", "http://a\"b/", "http://a#b"]
    {
        assert_eq!(get(target), (vec![400], false), "{target}");
    }
}

/// Some recipients cut a fragment off, others take it for a part of the path or of the query.
#[test]
fn a_target_has_no_fragment() {
    for target in ["/a#b", "/a#b?c", "/a?b#c", "/#", "http://a/b#c", "http://a/#?c"] {
        let input = format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(answers(&input), (vec![400], false), "{target}");
        assert!(Request::get(target).invalid().is_some(), "a client that writes {target}");
    }
    let request = Request::get("/a#x?admin=1");
    assert_eq!((request.path(), request.query()), ("/a", None));
}

#[test]
fn only_an_unsupported_version_is_answered_with_505() {
    let get = |line: &str| answers(&format!("{line}\r\nHost: a\r\n\r\n"));
    assert_eq!(get("GET / HTTP/2.0"), (vec![505], false));
    assert_eq!(get("GET /  HTTP/1.1"), (vec![400], false));
    assert_eq!(get("GET / x HTTP/1.1"), (vec![400], false));
}

#[test]
fn an_empty_body_meets_the_expectation_of_100_continue() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n";
    assert_eq!(answers(&format!("{head}0\r\n\r\n")), (vec![200], true));
}

/// Sends each body back as it arrives.
struct Echo;

impl Handler for Echo {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        ctx.write(match part {
            Part::Head(request) => Response::ok(request.announced_body().clone()).into(),
            Part::Body(bytes) => Part::Body(bytes),
            Part::End(trailers) => Part::End(trailers),
        })
    }
}

#[test]
fn the_client_of_an_echo_gets_100_continue_ahead_of_the_response() {
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Echo));
    channel
        .write_inbound(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
        .unwrap();
    let head = channel.read_outbound();
    assert!(head.starts_with(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"), "{head:?}");
    assert!(!head.windows(10).any(|part| part == b"Connection"), "{head:?}");
    channel.write_inbound(b"hello").unwrap();
    assert_eq!(channel.read_outbound(), "hello");
    assert!(channel.is_open());
}

#[test]
fn a_host_has_a_name_or_address_and_a_numeric_port() {
    for host in ["a:b", "[::1", "::1", "a:-1", "a:80:80", "a]", "[::1]x", "[]", "a:+1", "[a b]", "a%"] {
        let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(answers(&input), (vec![400], false), "{host}");
    }
    for host in ["", "a:", "a.b-c_d:65535", "127.0.0.1:80", "[::1]", "[fe80::1%25eth0]:1", "a%41"] {
        let input = format!("GET / HTTP/1.1\r\nHost: {host}\r\n\r\n");
        assert_eq!(answers(&input), (vec![200], true), "{host}");
    }
}

/// Answers with the path and the query.
struct Paths;

impl Handler for Paths {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        ctx.write(Response::ok(format!("{} {:?}", request.path(), request.query())).into())
    }
}

#[test]
fn the_query_of_an_absolute_target_is_not_taken_for_its_path() {
    for (target, expected) in [
        ("http://h?x=/admin", "/ Some(\"x=/admin\")"),
        ("http://h?/admin", "/ Some(\"/admin\")"),
        ("http://h", "/ None"),
        ("http://h/a?b=/c", "/a Some(\"b=/c\")"),
        ("http://h/", "/ None"),
        ("/a?b=http://x/y", "/a Some(\"b=http://x/y\")"),
    ] {
        let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Paths));
        channel.write_inbound(format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").as_bytes()).unwrap();
        let output = channel.read_outbound();
        assert!(output.ends_with(format!("\r\n\r\n{expected}").as_bytes()), "{target}: {output:?}");
    }
}
