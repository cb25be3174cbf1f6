//! Responses and their bodies.

use super::support::{Answer, Frames, ManualBody, ServiceFn, Site, full, later, ok};
use crate::tower::{request_body::RequestBody, tower_server::TowerServer};
use bytes::Bytes;
use http_body_util::{Empty, Full};
use http_types::{HeaderMap, Request, Response, StatusCode};
use std::sync::{Arc, Mutex};

const GET: &str = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";

/// A site whose responses have bodies of the test.
fn streaming() -> (Site, Frames) {
    let (body, frames) = ManualBody::new();
    let body = Arc::new(Mutex::new(Some(body)));
    let site = Site::new(move |_: Request<RequestBody>| {
        let body = body.lock().unwrap().take().expect("one call");
        async { ok(body) }
    });
    (site, frames)
}

#[test]
fn a_whole_body_has_its_length() {
    let mut site = Site::new(async |_: Request<RequestBody>| {
        Ok(Response::builder().status(201).header("x-a", "b").body(full("made"))?)
    });
    assert_eq!(site.ask(GET), "HTTP/1.1 201 Created\r\nx-a: b\r\nContent-Length: 4\r\n\r\nmade");
}

#[test]
fn an_empty_body_has_length_zero() {
    let mut site = Site::new(async |_: Request<RequestBody>| ok(Empty::<Bytes>::new()));
    assert_eq!(site.ask(GET), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
}

#[test]
fn a_declared_length_replaces_chunks() {
    let (body, frames) = ManualBody::new();
    let body = Arc::new(Mutex::new(Some(body)));
    let mut site = Site::new(move |_: Request<RequestBody>| {
        let body = body.lock().unwrap().take().expect("one call");
        async { Ok(Response::builder().header("content-length", "6").body(body)?) }
    });
    frames.push("abc");
    assert_eq!(site.ask(GET), "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nabc");
    frames.push("def");
    site.run();
    assert_eq!(site.sent(), "def");
    assert!(frames.is_dropped(), "it is complete without another poll");
}

#[test]
fn a_streamed_body_is_chunked() {
    let (mut site, frames) = streaming();
    assert_eq!(site.ask(GET), "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
    for text in ["one", "two"] {
        frames.push(text);
        site.run();
        assert_eq!(site.sent(), format!("3\r\n{text}\r\n"));
    }
    frames.push("");
    site.run();
    assert_eq!(site.sent(), "", "an empty frame ends nothing");
    frames.end();
    site.run();
    assert_eq!(site.sent(), "0\r\n\r\n");
    assert!(site.channel.is_open());
}

#[test]
fn bytes_that_are_ready_are_sent_with_the_head() {
    let (mut site, frames) = streaming();
    frames.push("one");
    frames.push("two");
    frames.end();
    let answer = site.ask(GET);
    assert_eq!(
        answer,
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"
    );
    assert_eq!(site.executor.spawned(), 0);
}

#[test]
fn trailers_are_sent_to_clients_that_read_them() {
    for (te, expected) in [("TE: gzip, trailers\r\n", "0\r\nx-t: 7\r\n\r\n"), ("", "0\r\n\r\n")] {
        let (mut site, frames) = streaming();
        frames.push("a");
        let mut trailers = HeaderMap::new();
        trailers.insert("x-t", "7".parse().unwrap());
        trailers.insert("authorization", "no".parse().unwrap());
        frames.trailers(trailers);
        let answer = site.ask(format!("GET / HTTP/1.1\r\nHost: x\r\nConnection: TE\r\n{te}\r\n"));
        assert!(answer.ends_with(&format!("1\r\na\r\n{expected}")), "{answer}");
    }
}

#[test]
fn bodies_of_head_responses_are_not_polled() {
    let (mut site, frames) = streaming();
    frames.set_length(5);
    frames.push("hello");
    let answer = site.ask("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n");
    assert_eq!(frames.polls(), 0);
    assert!(frames.is_dropped());
}

#[test]
fn some_statuses_have_no_body() {
    for (status, length) in [(204, ""), (205, "Content-Length: 0\r\n"), (304, "")] {
        let mut site = Site::new(move |_: Request<RequestBody>| {
            let response = Response::builder().status(status).body(full("dropped"));
            async { Ok(response?) }
        });
        for _ in 0..2 {
            let answer = site.ask(GET);
            let reason = StatusCode::from_u16(status).unwrap().canonical_reason().unwrap();
            assert_eq!(answer, format!("HTTP/1.1 {status} {reason}\r\n{length}\r\n"));
        }
    }
}

#[test]
fn a_response_to_head_keeps_the_declared_length() {
    let mut site = Site::new(async |_: Request<RequestBody>| {
        Ok(Response::builder().header("content-length", "1234").body(Empty::<Bytes>::new())?)
    });
    for _ in 0..2 {
        let answer = site.ask("HEAD / HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n");
    }
}

#[test]
fn a_body_is_polled_only_while_the_channel_is_writable() {
    let (mut site, frames) = streaming();
    let chunk = Bytes::from(vec![b'a'; 16 * 1024]);
    for _ in 0..64 {
        frames.push(chunk.clone());
    }
    frames.end();
    site.channel.set_outbound_room(Some(0));
    site.send(GET);
    site.run();
    assert!(frames.left() > 50, "{} of 64 frames are left", frames.left());
    let pending = site.channel.pending_bytes();
    assert!(pending < 128 * 1024, "{pending} bytes wait");
    site.channel.set_outbound_room(None);
    site.run();
    assert_eq!((frames.left(), site.channel.pending_bytes()), (0, 0));
    assert!(site.channel.read_outbound().ends_with(b"a\r\n0\r\n\r\n"));
    assert_eq!(site.executor.spawned(), 0, "the loop continues when the channel is writable");
}

#[test]
fn the_executor_waits_for_the_channel_as_well() {
    let (mut site, frames) = streaming();
    site.send(GET);
    site.run();
    assert_eq!(site.executor.tasks(), 1, "nothing is ready");
    site.channel.set_outbound_room(Some(0));
    let chunk = Bytes::from(vec![b'a'; 16 * 1024]);
    for _ in 0..64 {
        frames.push(chunk.clone());
        site.run();
    }
    assert!(frames.left() > 50, "{} of 64 frames are left", frames.left());
    frames.end();
    site.channel.set_outbound_room(None);
    site.run();
    assert_eq!((frames.left(), site.executor.tasks()), (0, 0));
    assert!(site.channel.read_outbound().ends_with(b"a\r\n0\r\n\r\n"));
}

#[test]
fn a_response_may_come_later() {
    let (completer, completion) = later::<()>();
    let completion = Arc::new(Mutex::new(Some(completion)));
    let mut site = Site::new(move |_: Request<RequestBody>| {
        let completion = completion.lock().unwrap().take();
        async {
            if let Some(completion) = completion {
                completion.await?;
            }
            ok(full("done"))
        }
    });
    assert_eq!(site.ask(GET), "");
    completer.complete(Ok(()));
    site.run();
    assert_eq!(site.sent(), "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
    assert!(site.ask(GET).ends_with("done"));
    assert_eq!(site.executor.spawned(), 1, "the second request is ready on the loop");
}

#[test]
fn an_executor_may_poll_everything_itself() {
    let server = || TowerServer::new(ServiceFn(async |_: Request<RequestBody>| ok(full("done"))));
    let refusing = Site::of(server());
    refusing.executor.refuse_to_poll_here();
    for mut site in [refusing, Site::of(server().polls_on_loop(false))] {
        for spawned in 1..=3 {
            site.send(GET);
            site.run();
            assert_eq!(site.sent(), "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\ndone");
            assert_eq!(site.executor.spawned(), spawned);
        }
    }
}

#[test]
fn a_client_of_the_old_version_gets_a_body_until_the_end() {
    let (mut site, frames) = streaming();
    frames.push("one");
    frames.end();
    let answer = site.ask("GET / HTTP/1.0\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\none");
    assert!(site.channel.is_closed());
}

#[test]
fn the_service_may_end_the_connection() {
    let mut site = Site::new(async |_: Request<RequestBody>| -> Answer<Full<Bytes>> {
        Ok(Response::builder().header("connection", "close").body(full("bye"))?)
    });
    assert_eq!(site.ask(GET), "HTTP/1.1 200 OK\r\nconnection: close\r\nContent-Length: 3\r\n\r\nbye");
    assert!(site.channel.is_closed());
}
