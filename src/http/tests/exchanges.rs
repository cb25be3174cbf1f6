//! Keep-alive, pipelining, and changes of the protocol.

use super::support::{GET, Server, get, post};
use crate::{
    buffer::WaterMark,
    channel::{ChannelOptions, Pipeline},
    codec::RawBytes,
    error::Result,
    http::{
        Body, Part, Request, RequestId, Response, StatusCode, server::HttpServer, settings::HttpSettings,
        stale_response::StaleResponse,
    },
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc, time::Duration};

#[test]
fn pipelined_requests_are_answered_in_order_and_one_at_a_time() {
    let mut server = Server::new();
    let requests: String = (0..10).map(|n| get(&format!("/{n}"))).collect();
    let output = server.send(requests);
    let bodies: Vec<_> = output.split("\r\n\r\n").skip(1).map(|rest| &rest[..2]).collect();
    assert_eq!(bodies, ["/0", "/1", "/2", "/3", "/4", "/5", "/6", "/7", "/8", "/9"]);
}

#[test]
fn pipelined_requests_wait_undecoded_while_a_response_is_prepared_and_no_limit_fires() {
    let settings =
        HttpSettings::new().head_timeout(Duration::from_secs(1)).keep_alive_timeout(Duration::from_secs(2));
    let mut server = Server::answering(
        settings,
        |_, _| Ok(()),
        |ctx, head| {
            let path = head.path().to_owned();
            ctx.schedule(Duration::from_secs(10), move |_, ctx| ctx.write(Response::ok(path).into()));
            Ok(())
        },
    );
    // The second request is incomplete.
    assert_eq!(server.send(get("/one") + "GET /two HTTP/1.1\r\n"), "");
    server.channel.advance(Duration::from_secs(9));
    assert_eq!(server.take(), ["GET /one", "end"]);
    server.channel.advance(Duration::from_secs(1));
    assert!(server.output().ends_with("/one"));
    // Its time begins now.
    server.channel.advance(Duration::from_millis(900));
    assert_eq!(server.output(), "");
    assert_eq!(server.send("Host: a\r\n\r\n"), "");
    assert_eq!(server.take(), ["GET /two", "end"]);
    server.channel.advance(Duration::from_secs(10));
    assert!(server.output().ends_with("/two"));
}

#[test]
fn a_flood_of_pipelined_requests_is_not_read_while_a_response_is_prepared() {
    let mut server = Server::answering(HttpSettings::new(), |_, _| Ok(()), |_, _| Ok(()));
    let flood = GET.repeat(10_000);
    // More than one read: the embedded transport keeps the bytes that the channel does not read.
    let _ = server.channel.write_inbound(flood.as_bytes());
    assert_eq!(server.take(), ["GET /", "end"]);
    let _ = server.channel.write_inbound(flood.as_bytes());
    assert_eq!(server.take(), <[&str; 0]>::default());
}

#[test]
fn http_1_0_closes_unless_the_client_asks_for_keep_alive_and_never_gets_chunks() {
    let stream = |ctx: &mut Context<'_, super::support::Site>, _: &Request| {
        ctx.write(Response::ok(Body::Streamed).into())?;
        ctx.write(Part::Body("hello".into()))?;
        ctx.write(Part::end())
    };
    let mut server = Server::at_head(stream);
    let output = server.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert_eq!(output, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello");
    assert!(!server.channel.is_open());

    let mut server = Server::new();
    assert!(server.send("GET / HTTP/1.0\r\n\r\n").contains("Connection: close\r\n"));
    assert!(!server.channel.is_open());

    let mut server = Server::new();
    let output = server.send("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    assert!(output.contains("Connection: keep-alive\r\n"), "{output}");
    assert!(server.channel.is_open());
}

#[test]
fn connection_close_of_either_side_ends_the_connection_after_the_response() {
    let mut server = Server::new();
    let output = server.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".to_owned() + GET);
    assert!(output.contains("Connection: close\r\n"));
    assert!(!server.channel.is_open());
    assert_eq!(server.take().len(), 2, "the request behind it is ignored");

    for response in [Response::ok("").close(), Response::ok("").header("Connection", "close")] {
        let mut server = Server::at_head(move |ctx, _| ctx.write(response.clone().into()));
        let output = server.send(GET);
        assert_eq!(output.matches("Connection: close\r\n").count(), 1, "{output}");
        assert!(!server.channel.is_open());
    }
}

#[test]
fn a_client_that_ends_its_stream_behind_a_request_gets_the_response_with_half_close() {
    let mut server = late(true);
    server.send(GET);
    server.channel.end_inbound();
    server.channel.advance(Duration::from_secs(5));
    assert!(server.output().ends_with("late"));
    assert!(!server.channel.is_open());
}

/// A server that answers after five seconds, or never for `/never`, and counts its handlers.
fn late(half_close: bool) -> Server {
    Server::with_options(
        HttpSettings::new(),
        ChannelOptions::new().half_close(half_close),
        |ctx, head| {
            if head.path() != "/never" {
                ctx.schedule(Duration::from_secs(5), |_, ctx| ctx.write(Response::ok("late").into()));
            }
            Ok(())
        },
        |_, _| Ok(()),
    )
}

#[test]
fn a_client_that_goes_away_while_its_request_is_with_the_handler_is_noticed() {
    for input in [get("/never"), get("/"), get("/") + &get("/pipelined"), get("/") + "GET /inc"] {
        let mut server = late(false);
        server.send(&input);
        server.channel.end_inbound();
        server.channel.run_pending();
        assert!(!server.channel.is_open(), "{input}");
        assert!(server.channel.is_closed(), "nothing is left to send");
        assert_eq!(server.channel.timers(), 0, "the work of the handler is dropped");
        server.channel.advance(Duration::from_secs(5));
        assert_eq!(server.output(), "");
    }
}

#[test]
fn a_client_that_goes_away_in_the_turn_of_its_request_is_noticed() {
    let mut server = late(false);
    // The end of the stream is known before the request is read.
    server.channel.end_inbound();
    assert!(server.channel.is_closed(), "without a request");
    let mut server = Server::new();
    server.send(get("/inline").repeat(3));
    server.channel.end_inbound();
    assert_eq!(server.take().len(), 6, "requests that were answered inline are not concerned");
}

#[test]
fn the_end_of_the_stream_is_seen_behind_pipelined_requests_only_after_their_answers() {
    let mut server = late(true);
    server.send(get("/one") + &get("/two"));
    server.channel.end_inbound();
    server.channel.advance(Duration::from_secs(5));
    assert!(server.output().ends_with("late"));
    assert!(server.channel.is_open(), "the second request is with the handler");
    server.channel.advance(Duration::from_secs(5));
    assert!(server.output().ends_with("late"));
    assert!(!server.channel.is_open());
}

/// Pipelined requests for pages of 16 KiB, from a client that does not read.
#[test]
fn pipelined_requests_of_a_client_that_does_not_read_wait_until_it_reads() {
    const PAGE: usize = 16 * 1024;
    let mut server = Server::at_head(|ctx, _| ctx.write(Response::ok(vec![b'x'; PAGE]).into()));
    server.channel.set_outbound_room(Some(0));
    let _ = server.channel.write_inbound(get("/page").repeat(200).as_bytes());
    server.channel.run_pending();
    let begun = server.take().iter().filter(|part| part.starts_with("GET")).count();
    let high = WaterMark::default().high();
    assert!(begun <= high / PAGE + 1, "{begun} requests were begun");
    assert!(server.channel.pending_bytes() <= high + 2 * PAGE, "{}", server.channel.pending_bytes());

    server.channel.set_outbound_room(None);
    while server.channel.has_pending() {
        server.channel.run_pending();
    }
    assert_eq!(server.output().matches("HTTP/1.1 200 OK").count(), 200, "all are answered when it reads");
}

#[test]
fn a_server_that_has_ended_its_output_sees_the_end_of_the_stream() {
    let mut server = Server::with_options(
        HttpSettings::new().keep_alive_timeout(Duration::ZERO),
        ChannelOptions::new().half_close(true),
        |ctx, _| {
            ctx.write(Response::ok("enough").into())?;
            ctx.shutdown_write();
            Ok(())
        },
        |_, _| Ok(()),
    );
    assert!(server.send(post(4, "")).ends_with("enough"));
    server.send("rest");
    server.channel.end_inbound();
    server.channel.run_pending();
    assert!(server.channel.is_closed());
}

/// Records the bytes of another protocol.
struct Raw(Rc<RefCell<Vec<u8>>>);

impl Handler for Raw {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.0.borrow_mut().extend_from_slice(&bytes);
        ctx.write(bytes)
    }
}

/// Returns a server that changes the protocol at the head, and the bytes of that protocol.
fn upgrading(status: StatusCode, delay: Option<Duration>) -> (Server, Rc<RefCell<Vec<u8>>>) {
    let raw = Rc::new(RefCell::new(Vec::new()));
    let bytes = raw.clone();
    let server = Server::at_head(move |ctx, _| {
        let bytes = bytes.clone();
        let change = move |ctx: &mut Context<'_, super::support::Site>| {
            ctx.write(Response::new(status).into())?;
            ctx.replace_pipeline(Pipeline::codec(RawBytes).handler(Raw(bytes)))
        };
        match delay {
            Some(delay) => {
                ctx.schedule(delay, move |_, ctx| change(ctx));
                Ok(())
            }
            None => change(ctx),
        }
    });
    (server, raw)
}

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n";

#[test]
fn bytes_behind_an_upgrade_go_to_the_next_pipeline_also_if_it_comes_later() {
    for delay in [None, Some(Duration::from_secs(5))] {
        let (mut server, raw) = upgrading(StatusCode::SWITCHING_PROTOCOLS, delay);
        let mut output = server.send(UPGRADE.to_owned() + "GET /raw bytes");
        server.channel.advance(Duration::from_secs(5));
        server.channel.run_pending();
        output += &server.output();
        assert_eq!(output, "HTTP/1.1 101 Switching Protocols\r\n\r\nGET /raw bytes");
        server.send("more");
        assert_eq!(*raw.borrow(), b"GET /raw bytesmore");
    }
}

#[test]
fn bytes_behind_a_connect_go_to_the_tunnel() {
    let (mut server, raw) = upgrading(StatusCode::OK, None);
    let output = server.send("CONNECT b:443 HTTP/1.1\r\nHost: b:443\r\n\r\n\x16\x03\x01");
    assert_eq!(output, "HTTP/1.1 200 OK\r\n\r\n\x16\x03\x01", "no Content-Length");
    assert_eq!(*raw.borrow(), b"\x16\x03\x01");
}

#[test]
fn upgrade_is_ignored_with_a_body_and_for_http_1_0() {
    for head in [
        "GET / HTTP/1.0\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: raw\r\n\r\n".to_owned(),
        post(1, "Connection: Upgrade\r\nUpgrade: raw\r\n") + "x",
        "GET / HTTP/1.1\r\nHost: a\r\nUpgrade: raw\r\n\r\n".to_owned(),
    ] {
        let mut server = Server::at_head(|ctx, head| {
            let text = head.is_upgrade("raw").to_string();
            ctx.write(Response::ok(text).into())
        });
        assert!(server.send(head).ends_with("false"));
    }
    let mut server =
        Server::at_head(|ctx, head| ctx.write(Response::ok(head.is_upgrade("RAW").to_string()).into()));
    assert!(server.send(UPGRADE).ends_with("true"));
}

/// Answers with a timeout beside work on a worker: whichever is first answers the request.
struct Timed;

impl Handler for Timed {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let (Some(id), path) = (request.id(), request.path().to_owned()) else { return Ok(()) };
        ctx.offload(move || path, move |_, ctx, path| ctx.write(Response::ok(path?).for_request(id).into()))?;
        ctx.schedule(Duration::from_millis(500), move |_, ctx| {
            ctx.write(Response::ok("timed out").for_request(id).into())
        });
        Ok(())
    }
}

#[test]
fn a_late_answer_to_a_finished_request_does_not_answer_the_next_one() {
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(Timed));
    let body = |channel: &mut EmbeddedChannel<Part<Response>>| {
        let output = String::from_utf8(channel.read_outbound().to_vec()).unwrap();
        output.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default()
    };
    channel.write_inbound(get("/first").as_bytes()).unwrap();
    channel.run_pending();
    assert_eq!(body(&mut channel), "/first");
    channel.advance(Duration::from_millis(400));
    channel.write_inbound(get("/second").as_bytes()).unwrap();
    // The timeout of the first request expires while the second one is with the handler.
    channel.advance(Duration::from_millis(200));
    channel.run_pending();
    assert_eq!(body(&mut channel), "/second");
    channel.advance(Duration::from_secs(1));
    assert_eq!(body(&mut channel), "", "between two requests");
    assert!(channel.is_open());
}

#[test]
fn a_stale_response_comes_back_to_its_writer_and_harms_neither_request_nor_stream() {
    let ids = Rc::new(RefCell::new(Vec::new()));
    let seen = ids.clone();
    let mut server = Server::at_head(move |ctx, head| {
        seen.borrow_mut().push(head.id().unwrap());
        let first = seen.borrow()[0];
        let error = match head.path() {
            "/first" => return ctx.write(Response::ok("one").into()),
            // While the request waits, in the middle of its response, and behind it.
            "/stream" => {
                let before = ctx.write(Response::ok("late").for_request(first).into()).unwrap_err();
                assert!(StaleResponse::of(&before).is_some());
                ctx.write(Response::ok(Body::Streamed).for_request(seen.borrow()[1]).into())?;
                let own = ctx.write(Response::ok("twice").for_request(seen.borrow()[1]).into());
                assert!(StaleResponse::of(&own.unwrap_err()).is_some());
                let error = ctx.write(Response::ok("late").for_request(first).into()).unwrap_err();
                ctx.write(Part::Body("two".into()))?;
                ctx.write(Part::end())?;
                error
            }
            _ => ctx.write(Response::new(StatusCode::EARLY_HINTS).for_request(first).into()).unwrap_err(),
        };
        let stale = StaleResponse::of(&error).unwrap();
        assert_eq!((stale.request(), first.channel()), (first, ctx.id()));
        assert!(stale.response().status() == StatusCode::OK || head.path() == "/third");
        if head.path() == "/third" { ctx.write(Response::ok("three").into()) } else { Ok(()) }
    });
    let output = server.send(get("/first") + &get("/stream") + &get("/third"));
    let expected = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none\
        HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\ntwo\r\n0\r\n\r\n\
        HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nthree";
    assert_eq!(output, expected);
    // By a handle, whose error goes to the handler, unless the server handles it.
    let (first, other) = (ids.borrow()[0], Server::new().channel.channel().id());
    assert_ne!(first.channel(), other);
    server.channel.channel().write(Response::ok("late").for_request(first).into()).unwrap();
    server.channel.run_pending();
    assert_eq!((server.output().as_str(), server.channel.is_open()), ("", true));
    assert!(!server.take().iter().any(|part| part.starts_with("error")));
}

/// Stores the ids of requests, and answers until it replaces its pipeline by one that does not.
struct Answers {
    ids: Rc<RefCell<Vec<RequestId>>>,
    moves_on: bool,
}

impl Handler for Answers {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(head) = part else { return Ok(()) };
        self.ids.borrow_mut().push(head.id().unwrap());
        if !self.moves_on {
            return Ok(());
        }
        ctx.write(Response::ok("one").into())?;
        let next = Answers { ids: self.ids.clone(), moves_on: false };
        ctx.replace_pipeline(HttpServer::new().pipeline().handler(next))
    }
}

#[test]
fn requests_of_two_pipelines_of_a_connection_have_different_ids() {
    let ids = Rc::default();
    let handler = Answers { ids: Rc::clone(&ids), moves_on: true };
    let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(handler));
    for path in ["/first", "/second"] {
        channel.write_inbound(get(path).as_bytes()).unwrap();
    }
    let ids = ids.take();
    assert_ne!(ids[0], ids[1]);
    assert!(channel.read_outbound().ends_with(b"one"));
    channel.channel().write(Response::ok("late").for_request(ids[0]).into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "");
    channel.channel().write(Response::ok("two").for_request(ids[1]).into()).unwrap();
    channel.run_pending();
    assert!(channel.read_outbound().ends_with(b"two"));
}
