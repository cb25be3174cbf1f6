//! Bodies of requests: `100 Continue`, early answers, backpressure.

use super::support::{Server, get, post, status};
use crate::{
    http::{Body, Part, Request, Response, StatusCode, settings::HttpSettings},
    pipeline::Context,
};
use std::time::Duration;

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
fn a_continue_that_is_taken_back_with_a_refused_response_was_not_sent() {
    let streamed = || Response::ok(Body::Streamed);
    let own = || Response::new(StatusCode::CONTINUE);
    for refused in [streamed, own] {
        let mut server = Server::at_head(move |ctx, _| {
            let refused = ctx.write(refused().header("X", "a\nb").into());
            assert!(refused.is_err());
            ctx.write(Response::new(StatusCode::BAD_GATEWAY).into())
        });
        let output = server.send(post(5, "Expect: 100-continue\r\n"));
        assert_eq!(status(&output), 502);
        assert!(output.contains("Connection: close\r\n"), "{output}");
        assert!(!server.channel.is_open(), "the client may or may not send the body");
    }
}

#[test]
fn a_continue_that_is_taken_back_precedes_the_next_streamed_response() {
    let mut server = Server::answering(
        HttpSettings::new(),
        |ctx, _| {
            let refused = ctx.write(Response::ok(Body::Streamed).header("X", "a\nb").into());
            assert!(refused.is_err());
            ctx.write(Response::ok(Body::Streamed).into())
        },
        |ctx, _| ctx.write(Part::end()),
    );
    let output = server.send(post(5, "Expect: 100-continue\r\n"));
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(output, format!("HTTP/1.1 100 Continue\r\n\r\n{head}"));
    assert_eq!(server.send("hello"), "0\r\n\r\n");
    assert_eq!(server.take(), ["POST /", "\"hello", "end"]);
    assert!(server.channel.is_open());
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

/// A response that has begun is too late for `100 Continue`.
#[test]
fn a_client_with_a_response_instead_of_the_continue_has_the_time_of_a_body_while_the_handler_reads() {
    for (pause, input, is_open) in [(1, "", false), (1, "hello", true), (60, "", true)] {
        let mut server = Server::answering(
            HttpSettings::new(),
            move |ctx, _| {
                let guard = ctx.pause_reading();
                ctx.write(Response::ok(Body::Streamed).into())?;
                ctx.write(Part::Body("first".into()))?;
                ctx.schedule(Duration::from_secs(pause), move |_, _| {
                    drop(guard);
                    Ok(())
                });
                Ok(())
            },
            |_, _| Ok(()),
        );
        let output = server.send(post(5, "Expect: 100-continue\r\n"));
        assert!(output.starts_with("HTTP/1.1 200 OK") && output.ends_with("5\r\nfirst\r\n"), "{output}");
        server.channel.advance(Duration::from_secs(9));
        assert!(server.channel.is_open());
        assert_eq!(server.send(input), "", "nothing precedes the rest of the response");
        server.channel.advance(Duration::from_secs(20));
        assert_eq!(server.channel.is_open(), is_open, "{pause} s, {input:?}");
    }
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
    let mut server = Server::answering(HttpSettings::new().max_discarded(100), answer, |_, _| Ok(()));
    let output = server.send(post(100, "") + &"b".repeat(100) + &get("/next"));
    assert_eq!(output.matches("HTTP/1.1 200 OK").count(), 2, "{output}");
    assert_eq!(server.take(), ["POST /", "GET /next"]);

    let mut server = Server::answering(HttpSettings::new().max_discarded(100), answer, |_, _| Ok(()));
    let output = server.send(post(101, "") + &"b".repeat(101) + &get("/next"));
    assert!(output.contains("Connection: close\r\n"), "known at the head: {output}");
    assert!(!server.channel.is_open());

    let mut server = Server::answering(HttpSettings::new().max_discarded(100), answer, |_, _| Ok(()));
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    let output = server.send(format!("{head}65\r\n{}\r\n0\r\n\r\n{}", "b".repeat(101), get("/next")));
    assert_eq!(output.matches("HTTP/1.1 200 OK").count(), 1, "{output}");
    assert!(!server.channel.is_open());
}

#[test]
fn a_handler_that_stops_reading_a_body_stops_its_client_and_loses_nothing() {
    let mut server = Server::answering(
        HttpSettings::new().max_body(1 << 30).body_timeout(Duration::from_secs(10)),
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
