//! Responses: framing, refusals, trailers, events, dates.

use super::support::{GET, Server, get};
use crate::{
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
    error::{EncodeError, Error, Result},
    http::{
        Body, Headers, Part, Request, Response, StatusCode, content::ServerSentEvent, settings::HttpSettings,
    },
    pipeline::Context,
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc, time::Duration};

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
fn the_response_to_head_for_a_stream_of_events_is_complete_at_its_head() {
    fn respond(ctx: &mut Context<'_, super::support::Site>, request: &Request) -> Result {
        if request.path() == "/file" {
            return ctx.write(Response::ok(Body::Streamed).into());
        }
        ctx.write(Response::event_stream().into())?;
        ctx.write(ServerSentEvent::data("dropped").into_part()?)?;
        ctx.schedule(Duration::from_secs(1), |_, ctx| ctx.write(ServerSentEvent::data("late").into_part()?));
        Ok(())
    }

    let at_end = || Server::answering(HttpSettings::new(), |_, _| Ok(()), respond);
    for (mut server, expected) in
        [(Server::at_head(respond), &["HEAD /"][..]), (at_end(), &["HEAD /", "end"])]
    {
        let output = server.send("HEAD / HTTP/1.1\r\nHost: a\r\n\r\n".to_owned() + &get("/file"));
        let (head, rest) = output.split_once("\r\n\r\n").unwrap();
        assert!(head.contains("Content-Type: text/event-stream"), "{output}");
        assert!(head.contains("\r\nConnection: close"), "{output}");
        server.channel.advance(Duration::from_secs(2));
        assert_eq!((rest, &*server.output()), ("", ""), "neither events nor another response");
        assert_eq!(server.take(), expected);
        assert!(!server.channel.is_open());
        assert_eq!(server.channel.timers(), 0);
    }
}

#[test]
fn a_response_205_has_no_content() {
    for body in [Body::Empty, Body::from("x"), Body::Sized(1), Body::Streamed] {
        let streams = body.is_streamed();
        let response = Response::new(StatusCode::new(205).unwrap()).body(body);
        let mut server = Server::at_head(move |ctx, _| {
            ctx.write(response.clone().into())?;
            if streams {
                ctx.write(Part::Body("x".into()))?;
                ctx.write(Part::end())?;
            }
            Ok(())
        });
        let expected = "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n";
        assert_eq!(server.send(GET.repeat(2)), expected.repeat(2));
    }
}

#[test]
fn trailers_that_a_client_refuses_are_not_written() {
    for name in ["Content-Length", "transfer-encoding", "Host", "Trailer"] {
        let result = Rc::new(RefCell::new(None));
        let seen = result.clone();
        let mut server = Server::at_head(move |ctx, _| {
            ctx.write(Response::ok(Body::Streamed).into())?;
            *seen.borrow_mut() = Some(ctx.write(Part::End(Headers::new().with(name, "5"))));
            Ok(())
        });
        server.send(GET);
        assert!(matches!(*result.borrow(), Some(Err(Error::Encode(EncodeError::Unencodable(_))))), "{name}");
    }
}

#[test]
fn a_handler_cannot_promise_keep_alive_for_a_connection_that_closes() {
    for (own, expected) in [("keep-alive", "close"), ("Keep-Alive, X-Trace", "X-Trace, close")] {
        let mut server =
            Server::at_head(move |ctx, _| ctx.write(Response::ok("").header("Connection", own).into()));
        let output = server.send("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let all: Vec<_> = output.lines().filter_map(|line| line.strip_prefix("Connection: ")).collect();
        assert_eq!(all, [expected], "{output}");
        assert!(!server.channel.is_open());
    }
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

#[test]
fn a_quiet_stream_of_events_has_comments() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.write(Response::event_stream().into())?;
        ctx.write(ServerSentEvent::data("one").into_part()?)
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
fn a_stream_of_events_that_the_client_does_not_take_waits_for_its_interval() {
    let mut server = Server::at_head(|ctx, _| {
        ctx.write(Response::event_stream().into())?;
        ctx.write(ServerSentEvent::data("one").into_part()?)
    });
    server.channel.set_outbound_room(Some(0));
    server.send(GET);
    server.channel.advance(Duration::from_secs(16));
    let next = server.channel.next_timer().unwrap();
    assert!(next > Duration::from_secs(13), "{next:?}");
    server.channel.set_outbound_room(None);
    assert!(server.output().ends_with("data: one\n\n\r\n"), "the event has no comment behind it");
    server.channel.advance(next + Duration::from_secs(16));
    assert!(server.output().starts_with("3\r\n:\n\n\r\n"));
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

/// Returns a server that drops messages, whose client accepts nothing.
fn with_drops(
    overflow: Overflow,
    on_head: impl FnMut(&mut Context<'_, super::support::Site>, &Request) -> Result + 'static,
) -> Server {
    let mark = WaterMark::new(80_000, 90_000).unwrap();
    let options = ChannelOptions::new().max_outbound(100_000).water_mark(mark);
    let options = options.overflow(overflow);
    let mut server = Server::with_options(HttpSettings::new(), options, on_head, |_, _| Ok(()));
    server.channel.set_outbound_room(Some(0));
    server
}

/// The client would take the second response for the first one.
#[test]
fn a_waiting_response_is_not_dropped_in_favour_of_the_next_one() {
    let mut server = with_drops(Overflow::DropOldest, |ctx, head| {
        ctx.write(Response::ok(head.path().repeat(30_000)).into())
    });
    assert_eq!(server.send(get("/a") + &get("/b")), "");
    server.channel.set_outbound_room(None);
    let output = server.output();
    assert_eq!(output.matches("HTTP/1.1 200").count(), 2);
    assert_eq!((output.matches("/a").count(), output.matches("/b").count()), (30_000, 30_000));
}

#[test]
fn waiting_events_are_dropped_in_favour_of_newer_ones() {
    let mut server = with_drops(Overflow::DropOldest, |ctx, _| {
        ctx.write(Response::event_stream().into())?;
        for n in 0..30 {
            ctx.write(ServerSentEvent::data(format!("{n:05000}")).into_part()?)?;
        }
        ctx.write(Part::end())
    });
    server.send(GET);
    server.channel.set_outbound_room(None);
    let output = server.output();
    let (head, body) = output.split_once("\r\n\r\n").unwrap();
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    let events = body.split("data: ").skip(1).map(|event| event[..5000].parse::<u32>().unwrap());
    let events: Vec<_> = events.collect();
    assert!(events.is_sorted() && events.last() == Some(&29), "{events:?}");
    assert!((10..20).contains(&events.len()), "{events:?}");
    assert!(body.ends_with("\n\n\r\n0\r\n\r\n"));
}

/// The client would take the body for complete.
#[test]
fn a_part_of_a_body_is_refused_and_not_dropped_if_there_is_no_room() {
    let mut server = with_drops(Overflow::DropNewest, move |ctx, _| {
        ctx.write(Response::ok(Body::Streamed).into())?;
        for _ in 0..3 {
            ctx.write(Part::Body("b".repeat(45_000).into()))?;
        }
        ctx.write(Part::end())
    });
    server.send(GET);
    server.channel.set_outbound_room(None);
    assert!(!server.output().ends_with("\r\n0\r\n\r\n"), "the body looks complete");
    assert!(!server.channel.is_open());
}

/// The connection would get out of step.
#[test]
fn parts_of_a_stream_of_events_with_a_length_are_not_dropped() {
    let mut server = with_drops(Overflow::DropOldest, |ctx, _| {
        ctx.write(Response::event_stream().body(Body::Sized(30 * 5000)).into())?;
        for _ in 0..30 {
            ctx.write(Part::Body("b".repeat(5000).into()))?;
        }
        ctx.write(Part::end())
    });
    server.send(GET);
    server.channel.set_outbound_room(None);
    let output = server.output();
    let (_, body) = output.split_once("\r\n\r\n").unwrap();
    assert!(body.len() == 150_000 || !server.channel.is_open(), "{} bytes", body.len());
}

#[test]
fn events_are_dropped_if_there_is_no_room() {
    let mut server = with_drops(Overflow::DropNewest, |ctx, _| {
        ctx.write(Response::event_stream().into())?;
        for n in 0..30 {
            ctx.write(ServerSentEvent::data(format!("{n:05000}")).into_part()?)?;
        }
        Ok(())
    });
    server.send(GET);
    assert!(server.channel.is_open());
    server.channel.set_outbound_room(None);
    let events = server.output().matches("data: ").count();
    assert!((10..30).contains(&events), "{events}");
}
