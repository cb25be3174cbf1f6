//! The client: pairing of responses, their ends, and calls.

use crate::{
    bootstrap::{ClientBootstrap, ServerBootstrap},
    channel::Pipeline,
    codec::RawBytes,
    error::{EncodeError, Error, PeerError, Resource, Result},
    group::EventLoopGroup,
    http::{
        Body, Call, Headers, Part, Request, Response, StatusCode, client::HttpClient, error::HttpError,
        server::HttpServer, settings::HttpSettings,
    },
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use std::{cell::RefCell, rc::Rc, time::Duration};

pub(super) type Received = Rc<RefCell<Vec<String>>>;

/// Records the messages that it reads, with the pieces of a body joined.
struct Recorder(Received);

impl Handler for Recorder {
    type Read = Part<Response>;
    type Write = Part<Request>;

    fn read(&mut self, _: &mut Context<'_, Self>, part: Part<Response>) -> Result {
        let mut received = self.0.borrow_mut();
        match part {
            Part::Head(head) => received.push(head.status().to_string()),
            Part::Body(bytes) => {
                let text = String::from_utf8_lossy(&bytes).into_owned();
                match received.last_mut() {
                    Some(last) if last.starts_with('"') => last.push_str(&text),
                    _ => received.push(format!("\"{text}")),
                }
            }
            Part::End(trailers) if trailers.is_empty() => received.push("end".into()),
            Part::End(trailers) => received.push(format!("end {trailers:?}")),
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        if !matches!(error, Error::Peer(_) | Error::TimedOut { .. }) {
            // A request that was refused, which its writer knows.
            return Ok(());
        }
        self.0.borrow_mut().push(format!("error: {error:#}"));
        ctx.close();
        Ok(())
    }
}

pub(super) fn client(settings: HttpSettings) -> (EmbeddedChannel<Part<Request>>, Received) {
    let received = Received::default();
    let http = HttpClient::with(settings).unwrap().host("example.org");
    let channel = EmbeddedChannel::new(http.pipeline().handler(Recorder(received.clone())));
    (channel, received)
}

/// Writes a part, and returns the result of encoding it.
pub(super) fn write(channel: &mut EmbeddedChannel<Part<Request>>, part: Part<Request>) -> Result {
    let written = channel.channel().write_tracked(part).map_err(Error::from)?;
    channel.run_pending();
    written.wait()
}

/// Returns the responses that a client receives after requests with these methods.
fn receive(methods: &[&str], input: &[u8]) -> Vec<String> {
    let (mut channel, received) = client(HttpSettings::new());
    for method in methods {
        write(&mut channel, Request::new(method, "/").into()).unwrap();
    }
    let _ = channel.write_inbound(input);
    channel.end_inbound();
    received.take()
}

#[test]
fn a_request_has_host_length_and_what_the_program_adds() {
    let (mut channel, _) = client(HttpSettings::new());
    write(&mut channel, Request::get("/a?b=c").header("X-Test", "1").into()).unwrap();
    let expected = "GET /a?b=c HTTP/1.1\r\nHost: example.org\r\nX-Test: 1\r\n\r\n";
    assert_eq!(channel.read_outbound(), expected.as_bytes());
    write(&mut channel, Request::post("/", "hi").header("Host", "other:80").close().into()).unwrap();
    let expected = "POST / HTTP/1.1\r\nHost: other:80\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi";
    assert_eq!(channel.read_outbound(), expected.as_bytes());
}

#[test]
fn a_streamed_body_is_chunked() {
    let (mut channel, _) = client(HttpSettings::new());
    write(&mut channel, Request::post("/", Body::Streamed).into()).unwrap();
    write(&mut channel, Part::Body("hello".into())).unwrap();
    write(&mut channel, Part::Body("".into())).unwrap();
    write(&mut channel, Part::End(Headers::new().with("X-Sum", "5"))).unwrap();
    let sent = channel.read_outbound();
    assert!(
        sent.ends_with(b"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX-Sum: 5\r\n\r\n"),
        "{sent:?}"
    );
}

#[test]
fn request_splitting_is_refused_and_nothing_is_written() {
    let (mut channel, _) = client(HttpSettings::new());
    for request in [
        Request::new("GET /a\r\nX:", "/"),
        Request::new("GET", "/ HTTP/1.1\r\nHost: evil\r\n\r\n"),
        Request::new("GET", "/a b"),
        Request::new("", "/"),
        Request::new("GET", ""),
        Request::get("/").header("X", "a\r\nY: b"),
        Request::get("/").header("X\n", "a"),
        Request::get("/").header("Content-Length", "5"),
    ] {
        let text = format!("{request:?}");
        let error = write(&mut channel, request.into()).unwrap_err();
        assert!(matches!(error, Error::Encode(EncodeError::Unencodable(_))), "{text}: {error}");
    }
    assert!(channel.read_outbound().is_empty());
}

#[test]
fn responses_are_paired_with_requests_also_behind_informational_ones() {
    let input = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello\
        HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n\
        HTTP/1.1 204 No Content\r\n\r\n\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n0\r\n\r\n";
    let received = receive(&["GET", "HEAD", "GET", "GET"], input);
    let expected = ["103", "200", "\"hello", "end", "200", "end", "204", "end", "200", "\"ab", "end"];
    assert_eq!(received, expected);
}

#[test]
fn a_body_without_a_length_lasts_until_the_end_of_the_stream() {
    let received = receive(&["GET"], b"HTTP/1.1 200 OK\r\n\r\nall of it");
    assert_eq!(received, ["200", "\"all of it", "end"]);
}

#[test]
fn an_incomplete_response_is_truncated() {
    let truncated = format!("error: {:#}", Error::from(PeerError::Truncated));
    for (input, before) in [
        (&b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"[..], vec!["200", "\"hell"]),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", vec!["200", "\"hello"]),
        (b"HTTP/1.1 200 OK\r\nContent-Le", vec![]),
    ] {
        let mut expected: Vec<String> = before.into_iter().map(String::from).collect();
        expected.push(truncated.clone());
        assert_eq!(receive(&["GET"], input), expected);
    }
}

#[test]
fn a_response_without_a_request_is_an_error() {
    let received = receive(&[], b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    assert_eq!(received, [format!("error: {:#}", HttpError::UnexpectedResponse.in_response())]);
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n";
    assert_eq!(receive(&["GET"], input).last().unwrap(), &received[0]);
}

/// Writes another request as soon as a part of the given kind arrives.
struct Chain {
    at_head: bool,
    received: Received,
}

impl Handler for Chain {
    type Read = Part<Response>;
    type Write = Part<Request>;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Request::get("/one").into())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Response>) -> Result {
        let (is_head, is_end) = (matches!(part, Part::Head(_)), matches!(part, Part::End(_)));
        if let Part::Body(bytes) = part {
            self.received.borrow_mut().push(String::from_utf8_lossy(&bytes).into_owned());
        }
        if self.at_head && is_head || !self.at_head && is_end {
            ctx.write(Request::get("/two").into())?;
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.received.borrow_mut().push(format!("{:?}", HttpError::of(&error)));
        ctx.close();
        Ok(())
    }
}

#[test]
fn bytes_behind_a_response_do_not_answer_a_request_that_is_written_afterwards() {
    for framing in
        ["Content-Length: 4\r\n\r\ngood", "Transfer-Encoding: chunked\r\n\r\n4\r\ngood\r\n0\r\n\r\n"]
    {
        for at_head in [false, true] {
            let received = Received::default();
            let chain = Chain { at_head, received: received.clone() };
            let mut channel = EmbeddedChannel::new(HttpClient::new().host("h").pipeline().handler(chain));
            let evil = "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil";
            let _ = channel.write_inbound(format!("HTTP/1.1 200 OK\r\n{framing}{evil}").as_bytes());
            // The next request is refused, or it is the response that is.
            let received = received.take();
            assert_eq!((received.len(), received[0].as_str()), (2, "good"), "{received:?}");
            assert_ne!(received[1], "evil", "{framing} {at_head}");
            assert!(!channel.is_open());
        }
    }
}

#[test]
fn the_response_to_head_announces_the_length_of_the_body_it_does_not_have() {
    let lengths = Rc::new(RefCell::new(Vec::new()));
    let seen = lengths.clone();
    let pipeline = HttpClient::new().host("h").pipeline().on_read(move |_, part| {
        seen.borrow_mut().push(match part {
            Part::Head(head) => format!("{:?}", head.announced_body()),
            Part::Body(_) => "body".into(),
            Part::End(_) => "end".into(),
        });
        Ok(())
    });
    let mut channel = EmbeddedChannel::new(pipeline);
    for method in ["HEAD", "HEAD", "HEAD", "GET"] {
        write(&mut channel, Request::new(method, "/").into()).unwrap();
    }
    for headers in ["Content-Length: 1000000", "Transfer-Encoding: chunked", "X: y", "Content-Length: 0"] {
        channel.write_inbound(format!("HTTP/1.1 200 OK\r\n{headers}\r\n\r\n").as_bytes()).unwrap();
    }
    assert_eq!(lengths.take(), ["Sized(1000000)", "end", "Streamed", "end", "Empty", "end", "Empty", "end"]);
}

#[test]
fn the_limit_of_a_body_does_not_concern_the_response_to_head() {
    let (call, response) = Call::new(Request::new("HEAD", "/"));
    let mut channel = EmbeddedChannel::new(HttpClient::new().host("h").calls(100));
    channel.channel().write(call).unwrap();
    channel.run_pending();
    channel.write_inbound(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n").unwrap();
    let response = response.wait().unwrap();
    assert_eq!(response.head.announced_body(), &Body::Sized(1_000_000));
    assert!(response.body.is_empty() && channel.is_open());
}

#[test]
fn the_bytes_behind_the_head_of_a_tunnel_go_to_the_next_pipeline() {
    for head in [
        "200 OK\r\n",
        "200 OK\r\nContent-Length: 100\r\n",
        "200 OK\r\nContent-Length: 100\r\nTransfer-Encoding: chunked\r\n",
        "200 OK\r\nTransfer-Encoding: gzip\r\n",
        "204 No Content\r\n",
    ] {
        let received = Received::default();
        let seen = received.clone();
        let read = move |ctx: &mut Context<'_, _>, part: Part<Response>| {
            let Part::Head(head) = part else { return Ok(()) };
            seen.borrow_mut().push(head.status().to_string());
            if head.status().is_success() {
                let seen = seen.clone();
                let raw = Pipeline::codec(RawBytes).on_read(move |_, bytes| {
                    seen.borrow_mut().push(format!("{bytes:?}"));
                    Ok(())
                });
                ctx.replace_pipeline(raw)?;
            }
            Ok(())
        };
        let mut channel = EmbeddedChannel::new(HttpClient::new().host("proxy").pipeline().on_read(read));
        write(&mut channel, Request::new("CONNECT", "b:443").into()).unwrap();
        let refusal = "HTTP/1.1 407 Log in\r\nContent-Length: 2\r\n\r\nno";
        channel.write_inbound(refusal.as_bytes()).unwrap();
        write(&mut channel, Request::new("CONNECT", "b:443").into()).unwrap();
        channel.write_inbound(format!("HTTP/1.1 {head}\r\ntunnelled").as_bytes()).unwrap();
        assert_eq!(received.take(), ["407", &head[..3], "b\"tunnelled\""]);
    }
}

#[test]
fn rules_for_requests_do_not_apply_to_responses() {
    let input = b"HTTP/1.1 200 OK\r\nHost: a b\r\nHost: c\r\nExpect: more\r\nContent-Length: 0\r\n\r\n";
    assert_eq!(receive(&["GET"], input), ["200", "end"]);
}

#[test]
fn responses_that_recipients_understand_differently_are_refused() {
    for head in [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        "HTTP/1.1 200 OK\r\nContent-Length: +5\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 5\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/2.0 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
    ] {
        let received = receive(&["GET"], head.as_bytes());
        assert_eq!(received.len(), 1, "{head:?}: {received:?}");
        assert!(received[0].contains("HTTP response failed"), "{head:?}: {received:?}");
    }
}

#[test]
fn the_number_of_outstanding_requests_is_limited() {
    let (mut channel, _) = client(HttpSettings::new().max_pipelined(2));
    for _ in 0..2 {
        write(&mut channel, Request::get("/").into()).unwrap();
    }
    let full = Error::Full { resource: Resource::PipelinedRequests, limit: 2 };
    let error = write(&mut channel, Request::get("/").into()).unwrap_err();
    assert_eq!(error.to_string(), full.to_string());
    channel.write_inbound(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    write(&mut channel, Request::get("/").into()).unwrap();
}

#[test]
fn the_channel_closes_after_a_response_that_ends_the_connection() {
    for head in [
        "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n",
    ] {
        let (mut channel, received) = client(HttpSettings::new());
        write(&mut channel, Request::get("/").into()).unwrap();
        channel.write_inbound(head.as_bytes()).unwrap();
        assert_eq!(received.take(), ["200", "end"]);
        assert!(!channel.is_open(), "{head}");
    }
    let (mut channel, _) = client(HttpSettings::new());
    write(&mut channel, Request::get("/").into()).unwrap();
    channel.write_inbound(b"HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert!(channel.is_open());
}

#[test]
fn a_response_before_the_end_of_the_request_ends_the_connection() {
    let (mut channel, received) = client(HttpSettings::new());
    write(&mut channel, Request::post("/", Body::Sized(10)).into()).unwrap();
    channel.write_inbound(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(received.take(), ["413", "end"]);
    assert!(!channel.is_open());
}

#[test]
fn a_server_without_progress_times_out_and_an_idle_connection_closes_silently() {
    let settings = || {
        HttpSettings::new().response_timeout(Duration::from_secs(5)).reuse_timeout(Duration::from_secs(60))
    };
    let (mut channel, received) = client(settings());
    write(&mut channel, Request::get("/").into()).unwrap();
    channel.advance(Duration::from_secs(4));
    channel.write_inbound(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc").unwrap();
    channel.advance(Duration::from_millis(4900));
    assert!(channel.is_open(), "progress");
    channel.advance(Duration::from_secs(1));
    let last = received.take().pop().unwrap();
    assert!(last.starts_with("error: the response of a server"), "{last}");
    assert!(!channel.is_open());

    let (mut channel, received) = client(settings());
    write(&mut channel, Request::get("/").into()).unwrap();
    channel.write_inbound(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
    channel.advance(Duration::from_secs(59));
    assert!(channel.is_open());
    channel.advance(Duration::from_secs(2));
    assert!(!channel.is_open());
    assert_eq!(received.take(), ["204", "end"]);
}

#[test]
fn the_time_for_the_head_of_a_response_is_not_extended_by_parts_of_it() {
    for piece in ["HTTP/1.1 102 Processing\r\n\r\n", "H"] {
        let (mut channel, received) = client(HttpSettings::new().response_timeout(Duration::from_secs(5)));
        write(&mut channel, Request::get("/").into()).unwrap();
        let mut pieces = if piece == "H" {
            "HTTP/1.1 200 OK".chars().map(String::from).collect()
        } else {
            vec![piece.to_owned(); 9]
        };
        for _ in 0..4 {
            channel.advance(Duration::from_secs(1));
            channel.write_inbound(pieces.remove(0).as_bytes()).unwrap();
            assert!(channel.is_open());
        }
        channel.advance(Duration::from_millis(1_200));
        let last = received.take().pop().unwrap();
        assert!(last.starts_with("error: the response of a server"), "{last}");
    }
}

#[test]
fn the_time_of_the_server_does_not_run_while_the_program_pauses_its_upload() {
    let settings = || HttpSettings::new().response_timeout(Duration::from_secs(5));
    let (mut channel, received) = client(settings());
    write(&mut channel, Request::post("/", Body::Streamed).into()).unwrap();
    channel.read_outbound();
    channel.advance(Duration::from_secs(12));
    write(&mut channel, Part::Body("a".into())).unwrap();
    channel.read_outbound();
    channel.advance(Duration::from_secs(12));
    assert!(channel.is_open(), "{:?}", received.take());
    write(&mut channel, Part::End(Headers::new())).unwrap();
    channel.read_outbound();
    channel.advance(Duration::from_secs(4));
    assert!(channel.is_open(), "the whole time begins with the end of the request");
    channel.advance(Duration::from_millis(1_200));
    assert!(received.take().pop().unwrap().starts_with("error: the response of a server"));

    // A program that waits for `100 Continue` waits for the server.
    let (mut channel, _) = client(settings());
    let request = Request::post("/", Body::Sized(1)).header("Expect", "100-continue");
    write(&mut channel, request.into()).unwrap();
    channel.read_outbound();
    channel.advance(Duration::from_secs(6));
    assert!(!channel.is_open());
}

#[test]
fn a_request_written_at_the_end_of_a_response_does_not_take_the_bytes_behind_it() {
    /// Writes another request at the end of each response.
    struct Again(Received);

    impl Handler for Again {
        type Read = Part<Response>;
        type Write = Part<Request>;

        fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Response>) -> Result {
            match part {
                Part::Head(_) => {}
                Part::Body(bytes) => self.0.borrow_mut().push(String::from_utf8_lossy(&bytes).into_owned()),
                Part::End(_) => {
                    let refused = ctx.write(Request::get("/2").into());
                    self.0.borrow_mut().push(format!("{:?}", refused.is_err()));
                }
            }
            Ok(())
        }
    }

    let received = Received::default();
    let pipeline = HttpClient::new().host("h").pipeline().handler(Again(received.clone()));
    let mut channel = EmbeddedChannel::new(pipeline);
    write(&mut channel, Request::get("/1").into()).unwrap();
    let _ = channel.write_inbound(
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\n1HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL",
    );
    assert_eq!(received.take(), ["1", "true"]);
    assert!(!channel.is_open());
}

/// Answers with the method and the length of the body, or closes without an answer.
struct Site;

impl Handler for Site {
    type Read = crate::http::FullMessage<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, request: Self::Read) -> Result {
        if request.head.path() == "/close" {
            ctx.close();
            return Ok(());
        }
        ctx.write(Response::ok(format!("{} {}", request.head.method(), request.body.len())).into())
    }
}

#[test]
fn a_pool_of_connections_makes_calls() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let http = HttpServer::new();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            http.pipeline().stage(crate::http::content::Aggregate::max(1 << 20)).handler(Site)
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let client = HttpClient::new().host("localhost");
    let pool = ClientBootstrap::new(&group)
        .pipeline(move |_peer| client.calls(1024))
        .pool()
        .size(2)
        .build(server.local_address())
        .unwrap();
    for length in [0, 10, 100_000] {
        let channel = pool.acquire().wait().unwrap();
        let (call, response) = Call::new(Request::post("/", vec![b'x'; length]));
        channel.write(call).unwrap();
        let response = response.wait().unwrap();
        assert_eq!(response.head.status(), StatusCode::OK);
        assert_eq!(response.body, format!("POST {length}"));
    }
    assert_eq!(pool.acquired() + pool.free(), 1, "the connection was used again");

    let channel = pool.acquire().wait().unwrap();
    let (call, response) = Call::new(Request::get("/close"));
    channel.write(call).unwrap();
    assert!(matches!(response.wait(), Err(Error::Closed)));
    let (call, response) = Call::new(Request::post("/", Body::Streamed));
    let _ = channel.write(call);
    assert!(response.wait().is_err());
}
