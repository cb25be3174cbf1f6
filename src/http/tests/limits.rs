//! Limits and times, splits, and damaged input.

use super::support::{Received, Server, Site, get, status};
use crate::{
    channel::shaping::TrafficLimits,
    http::{
        Part, Request, Response, StatusCode, client::HttpClient, server::HttpServer, settings::HttpSettings,
    },
    pipeline::Context,
    testing::EmbeddedChannel,
};
use proptest::prelude::*;
use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

const SECOND: Duration = Duration::from_secs(1);

/// D-34
#[test]
fn the_request_line_the_head_and_the_headers_are_limited_exactly() {
    let settings = || HttpSettings::new().max_start_line(100).max_head(400).max_headers(5);
    let line = |len: usize| format!("GET /{} HTTP/1.1\r\nHost: a\r\n\r\n", "a".repeat(len - 14));
    assert_eq!(status(&Server::with(settings()).send(line(100))), 200);
    assert_eq!(status(&Server::with(settings()).send(line(101))), 414);
    let head = |len: usize| format!("GET / HTTP/1.1\r\nHost: a\r\nA: {}\r\n\r\n", "a".repeat(len - 32));
    assert_eq!(head(400).len(), 400);
    assert_eq!(status(&Server::with(settings()).send(head(400))), 200);
    assert_eq!(status(&Server::with(settings()).send(head(401))), 431);
    let headers = |n: usize| format!("GET / HTTP/1.1\r\nHost: a\r\n{}\r\n", "A: b\r\n".repeat(n - 1));
    assert_eq!(status(&Server::with(settings()).send(headers(5))), 200);
    assert_eq!(status(&Server::with(settings()).send(headers(6))), 431);
}

#[test]
fn trailers_are_limited_in_length_and_number() {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n";
    let settings = || HttpSettings::new().max_trailers(100).max_headers(3);
    let with = |trailers: String| status(&Server::with(settings()).send(format!("{head}{trailers}\r\n")));
    assert_eq!(with("A: b\r\n".repeat(3)), 200);
    assert_eq!(with("A: b\r\n".repeat(4)), 431);
    assert_eq!(with(format!("A: {}\r\n", "b".repeat(93))), 200);
    assert_eq!(with(format!("A: {}\r\n", "b".repeat(94))), 431);
}

#[test]
fn a_body_beyond_the_limit_is_answered_with_413_without_reading_it() {
    let settings = || HttpSettings::new().max_body(10);
    let post = |n: usize| format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {n}\r\n\r\n");
    let mut server = Server::with(settings());
    assert_eq!(status(&server.send(post(11))), 413);
    assert!(!server.channel.is_open());
    assert_eq!(status(&Server::with(settings()).send(post(10) + "0123456789")), 200);
    let chunked = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let mut server = Server::with(settings());
    assert_eq!(status(&server.send(format!("{chunked}a\r\n0123456789\r\n1\r\n"))), 413);
    assert!(server.take().last().unwrap().starts_with("error: "), "the handler knew of the request");
}

#[test]
fn a_head_that_trickles_without_end_is_refused_at_its_limit() {
    let mut server = Server::new();
    server.send("GET / HTTP/1.1\r\nHost: a\r\nA: ");
    let mut sent = 0;
    while server.channel.is_open() {
        sent += 1;
        assert!(sent < 20_000, "16 KiB is the limit");
        let _ = server.channel.write_inbound(b"a");
    }
    assert_eq!(status(&server.output()), 431);
    assert!(sent > 16_000);
}

/// An empty line may follow a body (RFC 9112, section 2.2).
#[test]
fn an_empty_line_in_two_segments_begins_no_head() {
    let mut server = Server::new();
    server.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx\r");
    server.send("\n");
    server.channel.advance(60 * SECOND);
    assert!(server.channel.is_open(), "the connection is idle");
    assert_eq!(status(&server.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n")), 200);
}

/// D-34
#[test]
fn slowloris_is_answered_with_408_from_the_first_byte_of_each_request() {
    let mut server = Server::new();
    for _ in 0..2 {
        server.channel.advance(60 * SECOND);
        server.send("GET / HT");
        server.channel.advance(9 * SECOND);
        assert_eq!(server.output(), "");
        assert!(server.send("TP/1.1\r\nHost: a\r\n\r\n").starts_with("HTTP/1.1 200"));
    }
    server.send("G");
    for _ in 0..9 {
        server.channel.advance(SECOND);
        assert_eq!(server.send("E"), "", "another byte does not help");
    }
    server.channel.advance(2 * SECOND);
    assert_eq!(status(&server.output()), 408);
    assert!(!server.channel.is_open());
}

#[test]
fn an_idle_connection_closes_silently_after_the_keep_alive_time() {
    let mut server = Server::with(HttpSettings::new().keep_alive_timeout(20 * SECOND));
    server.send("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    server.channel.advance(19 * SECOND);
    assert!(server.channel.is_open());
    server.channel.advance(2 * SECOND);
    assert!(!server.channel.is_open());
    assert_eq!(server.output(), "");
    let mut server = Server::with(HttpSettings::new().keep_alive_timeout(20 * SECOND));
    server.channel.advance(21 * SECOND);
    assert!(!server.channel.is_open(), "a connection without a request");
    let mut server =
        Server::with(HttpSettings::new().keep_alive_timeout(Duration::ZERO).head_timeout(Duration::ZERO));
    server.send("G");
    server.channel.advance(3600 * SECOND);
    assert!(server.channel.is_open(), "zero turns the limits off");
}

#[test]
fn a_body_that_arrives_too_slowly_is_answered_with_408() {
    let mut server = Server::new();
    server.send("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n");
    for _ in 0..3 {
        server.channel.advance(5 * SECOND);
        server.send("x".repeat(1024));
        server.channel.advance(5 * SECOND);
        assert!(server.channel.is_open(), "1 KiB in 10 s");
    }
    for _ in 0..21 {
        server.channel.advance(SECOND);
        let _ = server.channel.write_inbound(b"x");
    }
    assert_eq!(status(&server.output()), 408);
    assert!(!server.channel.is_open());
    assert!(server.take().last().unwrap().contains("too slowly"));
}

#[test]
fn a_client_is_not_late_while_the_traffic_limit_pauses_reading() {
    let after_a_minute = |input: &str| {
        let limits = TrafficLimits::new().read(50).read_burst(50);
        let pipeline = HttpServer::new().pipeline().traffic(limits).on_read(|ctx, part| match part {
            Part::End(_) => ctx.write(Response::ok("").into()),
            _ => Ok(()),
        });
        let mut channel = EmbeddedChannel::new(pipeline);
        channel.write_inbound(input.as_bytes()).unwrap();
        for _ in 0..60 {
            channel.advance(SECOND);
        }
        status(std::str::from_utf8(&channel.read_outbound()).unwrap())
    };
    let (head, body) = ("a".repeat(900), "b".repeat(900));
    let request = format!("POST / HTTP/1.1\r\nHost: a\r\nA: {head}\r\nContent-Length: 900\r\n\r\n{body}");
    assert_eq!(after_a_minute(&request), 200);
    assert_eq!(after_a_minute(&request[..500]), 408, "the client sends no more of the head");
    assert_eq!(after_a_minute(&request[..request.len() - 1]), 408, "the client sends no more of the body");
}

/// Whole requests wait behind the first one while the program pauses reading.
#[test]
fn a_client_is_not_late_while_the_program_pauses_reading() {
    let paused = |delay: Duration, pause: Duration| {
        let on_end = move |ctx: &mut Context<'_, Site>, head: &Request| {
            let path = head.path().to_owned();
            if path != "/a" {
                return ctx.write(Response::ok(path).into());
            }
            let answer = move |ctx: &mut Context<'_, Site>| {
                ctx.write(Response::ok(path.clone()).into())?;
                let guard = ctx.pause_reading();
                ctx.schedule(pause, move |_, _| {
                    drop(guard);
                    Ok(())
                });
                Ok(())
            };
            if delay.is_zero() {
                return answer(ctx);
            }
            ctx.schedule(delay, move |_, ctx| answer(ctx));
            Ok(())
        };
        Server::answering(HttpSettings::new(), |_, _| Ok(()), on_end)
    };
    for (delay, pause) in [(Duration::ZERO, 20 * SECOND), (SECOND, 100 * SECOND)] {
        let mut server = paused(delay, pause);
        let output = server.send(get("/a") + &get("/b"));
        server.channel.advance(delay + pause - SECOND);
        let output = output + &server.output();
        assert!(output.starts_with("HTTP/1.1 200") && output.ends_with("/a"), "{output}");
        server.channel.advance(2 * SECOND);
        let output = server.output();
        assert!(output.starts_with("HTTP/1.1 200") && output.ends_with("/b"), "{output}");

        // The time of a head begins behind the pause.
        let mut server = paused(delay, pause);
        server.send(get("/a") + "GET /b HT");
        server.channel.advance(delay + pause + 9 * SECOND);
        server.output();
        assert!(server.channel.is_open());
        server.channel.advance(2 * SECOND);
        assert_eq!(status(&server.output()), 408);
    }
    // A head that has begun before the pause.
    let mut server = paused(SECOND, 20 * SECOND);
    server.send(get("/a"));
    server.channel.advance(SECOND / 2);
    server.send("GET /b HT");
    server.channel.advance(20 * SECOND);
    assert_eq!(status(&server.output()), 200);
    server.channel.advance(12 * SECOND);
    assert_eq!(status(&server.output()), 408);
}

#[test]
fn a_client_that_does_not_take_its_response_is_closed_after_the_keep_alive_time() {
    let on_end =
        |ctx: &mut Context<'_, Site>, _: &Request| ctx.write(Response::ok("x".repeat(100_000)).into());
    let mut server = Server::answering(HttpSettings::new(), |_, _| Ok(()), on_end);
    server.channel.set_outbound_room(Some(0));
    server.send(get("/a") + &get("/b"));
    server.channel.advance(74 * SECOND);
    assert!(server.channel.is_open());
    server.channel.advance(2 * SECOND);
    assert!(!server.channel.is_open());
}

#[test]
fn a_server_is_not_late_while_the_traffic_limit_of_the_client_pauses_reading() {
    let after_a_minute = |length: usize| {
        let settings = HttpSettings::new().response_timeout(10 * SECOND);
        let limits = TrafficLimits::new().read(50).read_burst(50);
        let statuses = Arc::new(Mutex::new(Vec::new()));
        let inner = statuses.clone();
        let pipeline = HttpClient::with(settings).unwrap().host("a").pipeline().traffic(limits);
        let mut channel = EmbeddedChannel::new(pipeline.on_read(move |_, part| {
            if let Part::Head(response) = part {
                inner.lock().unwrap().push(response.status());
            }
            Ok(())
        }));
        channel.channel().write(Request::get("/").into()).unwrap();
        channel.run_pending();
        let response = format!("HTTP/1.1 200 OK\r\nA: {}\r\nContent-Length: 0\r\n\r\n", "a".repeat(900));
        channel.write_inbound(&response.as_bytes()[..length.min(response.len())]).unwrap();
        for _ in 0..60 {
            channel.advance(SECOND);
        }
        statuses.lock().unwrap().clone()
    };
    assert_eq!(after_a_minute(usize::MAX), [StatusCode::OK]);
    assert!(after_a_minute(500).is_empty(), "the server sends no more of the head");
}

#[test]
fn a_server_is_not_late_while_the_traffic_limit_of_the_client_pauses_writing() {
    let settings = HttpSettings::new().response_timeout(SECOND / 2);
    let limits = TrafficLimits::new().write(1).write_burst(1);
    let pipeline = HttpClient::with(settings).unwrap().host("a").pipeline().traffic(limits);
    let mut channel = EmbeddedChannel::new(pipeline.on_read(|_, _| Ok(())));
    channel.channel().write(Request::get("/").into()).unwrap();
    channel.run_pending();
    let length = "GET / HTTP/1.1\r\nHost: a\r\n\r\n".len();
    for _ in 0..length - 2 {
        channel.advance(SECOND);
        assert!(channel.is_open(), "{} bytes are not sent", channel.pending_bytes());
    }
    assert!(channel.pending_bytes() > 0);
    channel.advance(3 * SECOND);
    channel.advance(SECOND);
    assert_eq!((channel.read_outbound().len(), channel.is_open()), (length, false), "it has the request");
}

/// Joins the handler's input with the response.
fn result(server: &mut Server, received: &Received) -> (Vec<String>, String, bool) {
    let output = server.output();
    (received.take(), output, server.channel.is_open())
}

fn whole(input: &[u8]) -> (Vec<String>, String, bool) {
    let mut server = Server::new();
    let received = server.received.clone();
    let _ = server.channel.write_inbound(input);
    result(&mut server, &received)
}

fn split(input: &[u8], cuts: &[usize]) -> (Vec<String>, String, bool) {
    let mut server = Server::new();
    let received = server.received.clone();
    let mut start = 0;
    for cut in cuts.iter().copied().chain([input.len()]) {
        let _ = server.channel.write_inbound(&input[start..cut]);
        start = cut;
    }
    result(&mut server, &received)
}

/// Requests of all forms, valid and invalid.
const SAMPLES: [&str; 12] = [
    "GET /a HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhelloGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n1\r\nd\r\n0\r\nA: b\r\n\r\n",
    "\r\nGET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n-1\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\nA: b\nC: d\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: a\r\n C: d\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5, 5\r\n\r\nhello",
    "GET / HTTP/2.0\r\nHost: a\r\n\r\n",
    "\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
];

/// D-34
#[test]
fn every_split_in_two_gives_the_same_messages_and_the_same_error() {
    for sample in SAMPLES {
        let input = sample.as_bytes();
        let expected = whole(input);
        for cut in 0..=input.len() {
            assert_eq!(split(input, &[cut]), expected, "{sample:?} at {cut}");
        }
        let all: Vec<usize> = (0..input.len()).collect();
        assert_eq!(split(input, &all), expected, "{sample:?}, byte by byte");
    }
}

proptest! {
    // The fuzz targets of HTTP run far more inputs.
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn damaged_input_gives_the_same_result_however_it_is_split(
        sample in 0..SAMPLES.len(),
        damage in proptest::collection::vec((any::<u16>(), prop_oneof![
            Just(b'\r'), Just(b'\n'), Just(b' '), Just(b':'), Just(b'0'), any::<u8>(),
        ], 0..3u8), 0..4),
        mut cuts in proptest::collection::vec(any::<u16>(), 0..5),
    ) {
        let mut input = SAMPLES[sample].as_bytes().to_vec();
        for (at, byte, how) in damage {
            let at = usize::from(at) % input.len();
            match how {
                0 => input[at] = byte,
                1 => input.insert(at, byte),
                _ => drop(input.remove(at)),
            }
        }
        cuts.iter_mut().for_each(|cut| *cut %= input.len() as u16 + 1);
        cuts.sort_unstable();
        let cuts: Vec<usize> = cuts.into_iter().map(usize::from).collect();
        prop_assert_eq!(split(&input, &cuts), whole(&input));
    }

    #[test]
    fn random_bytes_are_refused_without_a_panic(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let (_, output, is_open) = whole(&input);
        prop_assert!(is_open || output.starts_with("HTTP/1.1 4") || output.starts_with("HTTP/1.1 5"));
    }
}
