//! Keep-alive, pipelining, responses and their bodies, upgrades.

use super::support::{Server, status};
use crate::{
    Error, Handler, Result,
    channel::links::Pipeline,
    codec::RawBytes,
    error::EncodeError,
    http::{Body, Event, Headers, HttpSettings, Part, Request, Response, StatusCode},
    pipeline::Context,
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc, time::Duration};

const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n")
}

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
    let settings = HttpSettings::new().head_time(Duration::from_secs(1)).keep_alive(Duration::from_secs(2));
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
    // More than one read: the embedded transport keeps what the channel does not read.
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
fn responses_that_must_not_have_a_body_have_none() {
    for (request, response, expected) in [
        ("HEAD / HTTP/1.1", Response::ok("hello"), "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"),
        ("GET / HTTP/1.1", Response::new(StatusCode::NO_CONTENT), "HTTP/1.1 204 No Content\r\n\r\n"),
        (
            "GET / HTTP/1.1",
            Response::new(StatusCode::NO_CONTENT).body("x"),
            "HTTP/1.1 204 No Content\r\n\r\n",
        ),
        (
            "GET / HTTP/1.1",
            Response::new(StatusCode::NOT_MODIFIED).header("ETag", "\"a\""),
            "HTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\n\r\n",
        ),
        ("GET / HTTP/1.1", Response::ok(""), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ] {
        let mut server = Server::at_head(move |ctx, _| ctx.write(response.clone().into()));
        let output = server.send(format!("{request}\r\nHost: a\r\n\r\n"));
        assert_eq!(output, expected);
        assert!(server.send(GET).starts_with("HTTP/1.1 "), "the connection stays in step");
    }
}

#[test]
fn a_streamed_response_to_head_sends_only_its_head() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.write(Response::ok(Body::Sized(5)).into())?;
        ctx.write(Part::Body("hello".into()))?;
        ctx.write(Part::end())
    });
    let output = server.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(output, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert!(server.send(GET).ends_with("hello"));
}

#[test]
fn response_splitting_is_refused_and_nothing_is_written() {
    let results = Rc::new(RefCell::new(Vec::new()));
    let seen = results.clone();
    let mut server = Server::at_head(move |ctx, _| {
        for response in [
            Response::ok("").header("X", "a\r\nSet-Cookie: b"),
            Response::ok("").header("X", "a\n"),
            Response::ok("").header("X", "\0"),
            Response::ok("").header("X\r\nY", "a"),
            Response::ok("").header("X:", "a"),
            Response::ok("").header("", "a"),
            Response::ok("").header("Content-Length", "7"),
            Response::ok("").header("Transfer-Encoding", "chunked"),
        ] {
            seen.borrow_mut().push(ctx.write(response.into()));
        }
        ctx.write(Response::ok("fine").into())
    });
    let output = server.send(GET);
    assert_eq!(results.borrow().len(), 8);
    for result in results.borrow().iter() {
        assert!(matches!(result, Err(Error::Encode(EncodeError::Unencodable(_)))), "{result:?}");
    }
    assert_eq!(output, "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nfine");
}

#[test]
fn a_body_that_does_not_fit_its_length_is_an_error_and_ends_the_connection() {
    for (pieces, ends) in [(vec!["123456"], false), (vec!["123", "456"], false), (vec!["1234"], true)] {
        let results = Rc::new(RefCell::new(Vec::new()));
        let seen = results.clone();
        let mut server = Server::at_head(move |ctx, _| {
            ctx.write(Response::ok(Body::Sized(5)).into())?;
            for piece in &pieces {
                seen.borrow_mut().push(ctx.write(Part::Body(Bytes::from_static(piece.as_bytes()))));
            }
            if ends {
                seen.borrow_mut().push(ctx.write(Part::end()));
            }
            Ok(())
        });
        let output = server.send(GET.repeat(2));
        assert!(results.borrow().last().unwrap().is_err());
        assert!(!server.channel.is_open());
        assert_eq!(output.matches("HTTP/1.1").count(), 1, "{output}");
        let (_, body) = output.split_once("\r\n\r\n").unwrap();
        assert!(body.len() < 5, "the client notices: {body}");
    }
}

#[test]
fn parts_out_of_order_are_refused() {
    let results = Rc::new(RefCell::new(Vec::new()));
    let seen = results.clone();
    let mut server = Server::at_head(move |ctx, _| {
        let mut results = seen.borrow_mut();
        results.push(ctx.write(Part::Body("x".into())));
        results.push(ctx.write(Part::end()));
        results.push(ctx.write(Response::new(StatusCode::SWITCHING_PROTOCOLS).into()));
        results.push(ctx.write(Response::new(StatusCode::EARLY_HINTS).body("x").into()));
        ctx.write(Response::ok("one").into())?;
        results.push(ctx.write(Response::ok("two").into()));
        Ok(())
    });
    let output = server.send(GET);
    assert!(output.ends_with("one"), "{output}");
    assert!(results.borrow().iter().all(Result::is_err), "{results:?}");
}

#[test]
fn chunked_responses_have_trailers_and_no_empty_chunks() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.write(Response::ok(Body::Streamed).into())?;
        for piece in ["hello", "", " world, this is a longer piece"] {
            ctx.write(Part::Body(Bytes::from_static(piece.as_bytes())))?;
        }
        ctx.write(Part::End(Headers::new().with("X-Sum", "1")))
    });
    let output = server.send(GET);
    let body = "5\r\nhello\r\n1e\r\n world, this is a longer piece\r\n0\r\nX-Sum: 1\r\n\r\n";
    assert_eq!(output, format!("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{body}"));
}

#[test]
fn early_hints_precede_the_response_but_not_for_http_1_0() {
    let answer = |ctx: &mut Context<'_, super::support::Site>, _: &Request| {
        ctx.write(Response::new(StatusCode::EARLY_HINTS).header("Link", "</a>").into())?;
        ctx.write(Response::ok("x").into())
    };
    let output = Server::at_head(answer).send(GET);
    assert!(output.starts_with("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\n"));
    assert!(Server::at_head(answer).send("GET / HTTP/1.0\r\n\r\n").starts_with("HTTP/1.1 200 OK"));
}

fn post(length: usize, headers: &str) -> String {
    format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n{headers}\r\n")
}

#[test]
fn one_continue_is_sent_when_the_body_is_wanted() {
    let mut server = Server::new();
    assert_eq!(server.send(post(5, "Expect: 100-continue\r\n")), "HTTP/1.1 100 Continue\r\n\r\n");
    assert_eq!(server.send("he"), "");
    assert!(server.send("llo").starts_with("HTTP/1.1 200 OK"));
    assert_eq!(server.take(), ["POST /", "\"hello", "end"]);
    let output = server.send(post(5, "Expect: 100-continue\r\n") + "hello");
    assert!(output.starts_with("HTTP/1.1 200 OK"), "a body that is there needs none: {output}");
}

#[test]
fn no_continue_is_sent_behind_an_answer_and_the_connection_closes() {
    let mut server = Server::at_head(|ctx, _| ctx.write(Response::from(StatusCode::UNAUTHORIZED).into()));
    let output = server.send(post(5, "Expect: 100-continue\r\n"));
    assert_eq!(status(&output), 401);
    assert!(!server.channel.is_open(), "the client may or may not send the body");
}

#[test]
fn a_handler_that_does_not_read_gets_no_continue_until_it_does() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.set_auto_read(false);
        ctx.schedule(Duration::from_secs(30), |_, ctx| {
            ctx.set_auto_read(true);
            Ok(())
        });
        Ok(())
    });
    assert_eq!(server.send(post(5, "Expect: 100-continue\r\n")), "");
    server.channel.advance(Duration::from_secs(29));
    assert_eq!(server.output(), "");
    server.channel.advance(Duration::from_secs(1));
    server.channel.advance(Duration::from_secs(1));
    assert_eq!(server.output(), "HTTP/1.1 100 Continue\r\n\r\n");
}

#[test]
fn other_expectations_are_refused_with_417() {
    let output = Server::new().send(post(5, "Expect: the-best\r\n"));
    assert_eq!(status(&output), 417);
}

#[test]
fn the_rest_of_a_body_behind_an_early_answer_is_discarded_up_to_the_limit() {
    let answer =
        |ctx: &mut Context<'_, super::support::Site>, _: &Request| ctx.write(Response::ok("x").into());
    let mut server = Server::answering(HttpSettings::new().discard(100), answer, |_, _| Ok(()));
    let output = server.send(post(100, "") + &"b".repeat(100) + &get("/next"));
    assert_eq!(output.matches("HTTP/1.1 200 OK").count(), 2, "{output}");
    assert_eq!(server.take(), ["POST /", "GET /next"]);

    let mut server = Server::answering(HttpSettings::new().discard(100), answer, |_, _| Ok(()));
    let output = server.send(post(101, "") + &"b".repeat(101) + &get("/next"));
    assert!(output.contains("Connection: close\r\n"), "known at the head: {output}");
    assert!(!server.channel.is_open());

    let mut server = Server::answering(HttpSettings::new().discard(100), answer, |_, _| Ok(()));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let output = server.send(format!("{head}65\r\n{}\r\n0\r\n\r\n{}", "b".repeat(101), get("/next")));
    assert_eq!(output.matches("HTTP/1.1 200 OK").count(), 1, "{output}");
    assert!(!server.channel.is_open());
}

#[test]
fn a_handler_that_stops_reading_a_body_stops_its_client_and_loses_nothing() {
    let mut server = Server::answering(
        HttpSettings::new().body(1 << 30).body_time(Duration::from_secs(10)),
        |ctx, _| {
            ctx.set_auto_read(false);
            ctx.schedule(Duration::from_secs(60), |_, ctx| {
                ctx.set_auto_read(true);
                Ok(())
            });
            Ok(())
        },
        |ctx, _| ctx.write(Response::ok("done").into()),
    );
    let body = "b".repeat(1 << 20);
    assert_eq!(server.send(post(body.len(), "") + &body), "");
    server.channel.advance(Duration::from_secs(59));
    assert_eq!(server.take(), ["POST /"], "no byte is delivered, and the client is not late");
    server.channel.advance(Duration::from_secs(1));
    server.channel.run_pending();
    let received = server.take();
    assert_eq!(received[0].len(), body.len() + 1);
    assert!(server.output().ends_with("done"));
}

#[test]
fn a_client_that_ends_its_stream_behind_a_request_gets_the_response_with_half_close() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.schedule(Duration::from_secs(5), |_, ctx| ctx.write(Response::ok("late").into()));
        Ok(())
    });
    server.send(GET);
    server.channel.end_inbound();
    server.channel.advance(Duration::from_secs(5));
    assert!(server.output().ends_with("late"));
    assert!(!server.channel.is_open());
}

#[test]
fn a_quiet_stream_of_events_has_comments() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.write(Response::event_stream().into())?;
        ctx.write(Event::data("one").into_part()?)
    });
    let output = server.send(GET);
    assert!(output.contains("Content-Type: text/event-stream\r\n"), "{output}");
    assert!(output.ends_with("\r\n\r\nb\r\ndata: one\n\n\r\n"), "{output}");
    server.channel.advance(Duration::from_secs(14));
    assert_eq!(server.output(), "");
    server.channel.advance(Duration::from_secs(2));
    assert_eq!(server.output(), "3\r\n:\n\n\r\n");
    server.channel.advance(Duration::from_secs(16));
    assert_eq!(server.output(), "3\r\n:\n\n\r\n");
}

#[test]
fn dates_are_added_once_and_move_with_the_clock() {
    let mut server = Server::new();
    let date = |output: Bytes| {
        let text = String::from_utf8(output.to_vec()).unwrap();
        let dates: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("Date: ")).collect();
        assert_eq!(dates.len(), 1, "{text}");
        dates[0].to_owned()
    };
    server.channel.write_inbound(GET.as_bytes()).unwrap();
    assert_eq!(date(server.channel.read_outbound()), "Sun, 09 Sep 2001 01:46:40 GMT");
    server.channel.advance(Duration::from_secs(61));
    server.channel.write_inbound(GET.as_bytes()).unwrap();
    assert_eq!(date(server.channel.read_outbound()), "Sun, 09 Sep 2001 01:47:41 GMT");

    let own = Response::ok("").header("Date", "Thu, 01 Jan 1970 00:00:00 GMT");
    let mut server = Server::at_head(move |ctx, _| ctx.write(own.clone().into()));
    server.channel.write_inbound(GET.as_bytes()).unwrap();
    assert_eq!(date(server.channel.read_outbound()), "Thu, 01 Jan 1970 00:00:00 GMT");
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
