//! Calls whose bodies are streamed, in both directions.

use crate::{
    error::{Error, PeerError, Result},
    http::{
        Body, BodyStream, Call, Headers, Request, StreamedResponse, client::HttpClient,
        settings::HttpSettings,
    },
    sync::Completion,
    testing::{EmbeddedChannel, wait::PATIENCE},
};
use bytes::Bytes;
use std::time::Duration;

fn client() -> EmbeddedChannel<Call> {
    let settings = HttpSettings::new().response_timeout(Duration::from_secs(30));
    EmbeddedChannel::new(HttpClient::with(settings).unwrap().host("a").calls(1024))
}

fn write(channel: &mut EmbeddedChannel<Call>, call: Call) {
    channel.channel().write(call).map_err(Error::from).unwrap();
    channel.run_pending();
}

#[track_caller]
fn done<T>(completion: Completion<T>) -> Result<T> {
    assert!(completion.is_done(), "it waits");
    completion.wait()
}

/// Makes a call, and returns its response, whose head announces a body of this length.
fn respond(channel: &mut EmbeddedChannel<Call>, length: usize) -> StreamedResponse {
    let (call, response) = Call::streamed(Request::get("/"));
    write(channel, call);
    channel.write_inbound(format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").as_bytes()).unwrap();
    done(response).unwrap()
}

/// Reads the bytes that have arrived.
fn available(channel: &mut EmbeddedChannel<Call>, body: &mut BodyStream) -> Vec<u8> {
    let mut read = Vec::new();
    loop {
        let next = body.next();
        channel.run_pending();
        if !next.is_done() {
            return read;
        }
        match next.wait().unwrap() {
            Some(bytes) => read.extend_from_slice(&bytes),
            None => return read,
        }
    }
}

#[test]
fn a_slow_consumer_pauses_the_connection_and_loses_nothing() {
    let mut channel = client();
    let length = 10 * BodyStream::MAX_BUFFERED;
    let mut response = respond(&mut channel, length);
    let sent: Vec<u8> = (0..length).map(|at| (at / 1000) as u8).collect();
    for piece in sent.chunks(10_000) {
        channel.write_inbound(piece).unwrap();
    }
    let debug = format!("{:?}", response.body);
    let buffered: usize =
        debug.split(['{', ',']).nth(1).unwrap().trim()["buffered: ".len()..].parse().unwrap();
    assert!((BodyStream::MAX_BUFFERED..2 * BodyStream::MAX_BUFFERED).contains(&buffered), "{debug}");
    // A server that waits for the consumer is not late.
    channel.advance(Duration::from_secs(300));
    assert!(channel.is_open());
    assert!(available(&mut channel, &mut response.body) == sent);
    assert_eq!(done(response.body.next()).unwrap(), None);
    assert!(response.body.trailers().unwrap().is_empty());
    // The connection takes the next call.
    let mut next = respond(&mut channel, 2);
    channel.write_inbound(b"ok").unwrap();
    assert_eq!(available(&mut channel, &mut next.body), b"ok");
}

#[test]
fn a_completion_that_is_dropped_with_its_bytes_loses_nothing() {
    let mut channel = client();
    let mut response = respond(&mut channel, 6);
    let pending = response.body.next();
    channel.write_inbound(b"abc").unwrap();
    assert!(pending.is_done());
    drop(pending);
    drop(response.body.next());
    let (first, second) = (response.body.next(), response.body.next());
    assert_eq!(done(first).unwrap().unwrap(), "abc");
    channel.write_inbound(b"def").unwrap();
    assert_eq!(done(second).unwrap().unwrap(), "def");
    assert_eq!(done(response.body.next()).unwrap(), None);
}

#[test]
fn bytes_of_a_dropped_completion_go_to_the_one_that_waits() {
    let mut channel = client();
    let mut response = respond(&mut channel, 6);
    let first = response.body.next();
    channel.write_inbound(b"abc").unwrap();
    let second = response.body.next();
    drop(first);
    assert_eq!(done(second).unwrap().unwrap(), "abc");
    let third = response.body.next();
    channel.write_inbound(b"def").unwrap();
    assert_eq!(done(third).unwrap().unwrap(), "def");
    assert_eq!(done(response.body.next()).unwrap(), None);
}

/// Each part takes memory beside its bytes.
#[test]
fn a_server_that_sends_single_bytes_is_paused_early() {
    let mut channel = client();
    let mut response = respond(&mut channel, 10_000);
    for _ in 0..10_000 {
        channel.write_inbound(b"x").unwrap();
    }
    let most = BodyStream::MAX_BUFFERED + 10_000;
    let debug = format!("{:?}", response.body);
    let buffered: usize =
        debug.split(['{', ',']).nth(1).unwrap().trim()["buffered: ".len()..].parse().unwrap();
    assert!((BodyStream::MAX_BUFFERED..most).contains(&buffered), "{debug}");
    assert_eq!(available(&mut channel, &mut response.body).len(), 10_000);
}

/// The test fails after its patience, instead of waiting forever.
#[test]
fn waiting_for_bytes_on_the_thread_of_the_channel_is_refused() {
    let (sender, result) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut channel = client();
        let mut response = respond(&mut channel, 10);
        sender.send(response.body.next().wait()).unwrap();
    });
    let result = result.recv_timeout(PATIENCE).unwrap();
    assert!(matches!(result, Err(Error::WouldDeadlock)), "{result:?}");
}

#[test]
fn a_second_read_cancels_the_first() {
    let mut channel = client();
    let mut response = respond(&mut channel, 3);
    let (first, second) = (response.body.next(), response.body.next());
    assert!(matches!(done(first), Err(Error::Cancelled)));
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(done(second).unwrap().unwrap(), "abc");
}

#[test]
fn dropping_a_body_before_its_end_closes_the_connection() {
    for begins in [false, true] {
        let mut channel = client();
        let response = respond(&mut channel, 6);
        if begins {
            channel.write_inbound(b"abc").unwrap();
        }
        drop(response.body);
        channel.run_pending();
        assert!(channel.is_closed());
    }
    // Also while it is paused.
    let mut channel = client();
    let response = respond(&mut channel, 1_000_000);
    channel.write_inbound(&[0; 500_000]).unwrap();
    drop(response);
    channel.run_pending();
    assert!(channel.is_closed());
}

#[test]
fn dropping_a_body_behind_its_end_keeps_the_connection() {
    let mut channel = client();
    let response = respond(&mut channel, 3);
    channel.write_inbound(b"abc").unwrap();
    drop(response);
    channel.run_pending();
    assert!(channel.is_open());
}

#[test]
fn a_body_that_is_cut_fails_behind_the_bytes_that_have_arrived() {
    let mut channel = client();
    let mut response = respond(&mut channel, 6);
    channel.write_inbound(b"abc").unwrap();
    channel.end_inbound();
    assert_eq!(done(response.body.next()).unwrap().unwrap(), "abc");
    for _ in 0..2 {
        let error = done(response.body.next()).unwrap_err();
        assert!(matches!(error, Error::Peer(PeerError::Truncated)), "{error:?}");
    }
    assert_eq!(response.body.trailers(), None);
}

#[test]
fn a_server_that_stops_in_the_middle_of_a_body_is_timed_out() {
    let mut channel = client();
    let mut response = respond(&mut channel, 6);
    let next = response.body.next();
    channel.advance(Duration::from_secs(31));
    assert!(matches!(done(next), Err(Error::TimedOut { .. })));
    assert!(channel.is_closed());
}

/// The time limit of a streamed call ends with the head.
#[test]
fn a_stream_lasts_longer_than_the_time_limit_of_its_call() {
    let mut channel = client();
    let (call, response) = Call::streamed(Request::get("/"));
    write(&mut channel, call.timeout(Duration::from_secs(2)));
    channel.write_inbound(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n").unwrap();
    let mut body = done(response).unwrap().body;
    for _ in 0..5 {
        channel.advance(Duration::from_secs(10));
        channel.write_inbound(b"1\r\nx\r\n").unwrap();
        assert_eq!(done(body.next()).unwrap().unwrap(), "x");
    }
    channel.write_inbound(b"0\r\nX-Sum: 5\r\n\r\n").unwrap();
    assert_eq!(done(body.next()).unwrap(), None);
    assert_eq!(body.trailers(), Some(Headers::new().with("X-Sum", "5")));

    let (call, late) = Call::streamed(Request::get("/"));
    write(&mut channel, call.timeout(Duration::from_secs(2)));
    channel.advance(Duration::from_secs(3));
    assert!(matches!(done(late), Err(Error::TimedOut { .. })));
    assert!(channel.is_closed());
}

#[test]
fn a_response_without_a_body_has_an_empty_stream() {
    let mut channel = client();
    let mut response = respond(&mut channel, 0);
    assert_eq!(done(response.body.next()).unwrap(), None);
    let (call, head) = Call::streamed(Request::new("HEAD", "/"));
    write(&mut channel, call);
    channel.write_inbound(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n").unwrap();
    assert_eq!(done(done(head).unwrap().body.next()).unwrap(), None);
}

/// A whole call behind a streamed one, and the other way round.
#[test]
fn pipelined_calls_get_their_own_responses() {
    let mut channel = client();
    let (first, streamed) = Call::streamed(Request::get("/1"));
    let (second, whole) = Call::new(Request::get("/2"));
    let (third, last) = Call::streamed(Request::get("/3"));
    for call in [first, second, third] {
        write(&mut channel, call);
    }
    let response = |text: &str| format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{text}", text.len());
    channel.write_inbound([response("one"), response("two"), response("three")].concat().as_bytes()).unwrap();
    let mut streamed = done(streamed).unwrap();
    assert_eq!(available(&mut channel, &mut streamed.body), b"one");
    assert_eq!(done(whole).unwrap().body, "two");
    let mut last = done(last).unwrap();
    assert_eq!(available(&mut channel, &mut last.body), b"three");
}

// ---- uploads ----

fn output(channel: &mut EmbeddedChannel<Call>) -> String {
    String::from_utf8(channel.read_outbound().to_vec()).unwrap()
}

#[test]
fn an_upload_is_sent_in_parts() {
    let mut channel = client();
    let (mut call, response) = Call::new(Request::post("/", Body::Streamed));
    let upload = call.upload();
    write(&mut channel, call);
    assert!(output(&mut channel).ends_with("Transfer-Encoding: chunked\r\n\r\n"));
    write(&mut channel, upload.part("abc"));
    assert_eq!(output(&mut channel), "3\r\nabc\r\n");
    write(&mut channel, upload.end_with(Headers::new().with("X-Sum", "3")));
    assert_eq!(output(&mut channel), "0\r\nX-Sum: 3\r\n\r\n");
    channel.write_inbound(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
    assert_eq!(done(response).unwrap().body, "ok");
    assert!(channel.is_open());
}

#[test]
fn an_upload_that_does_not_fit_its_length_fails_its_call_and_ends_the_connection() {
    for bytes in ["abcdef", "ab"] {
        let mut channel = client();
        let (mut call, response) = Call::new(Request::post("/", Body::Sized(3)));
        let upload = call.upload();
        write(&mut channel, call);
        // The last write is refused if the channel has closed already.
        for part in [upload.part(bytes), upload.end()] {
            let _ = channel.channel().write(part);
            channel.run_pending();
        }
        assert!(matches!(done(response), Err(Error::Encode(_))), "{bytes}");
        assert!(channel.is_closed());
    }
}

#[test]
fn parts_behind_an_early_response_are_dropped() {
    let mut channel = client();
    let (mut call, response) = Call::new(Request::post("/", Body::Sized(3)));
    let upload = call.upload();
    write(&mut channel, call);
    channel.write_inbound(b"HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n").unwrap();
    assert_eq!(done(response).unwrap().head.status().as_u16(), 401);
    let late = channel.channel().write(upload.part("abc"));
    channel.run_pending();
    assert!(late.is_err() || channel.is_closed());
}

#[test]
fn a_call_amid_an_upload_fails_alone() {
    let mut channel = client();
    let (mut call, response) = Call::new(Request::post("/", Body::Sized(3)));
    let upload = call.upload();
    write(&mut channel, call);
    let (other, refused) = Call::new(Request::get("/"));
    write(&mut channel, other);
    assert!(matches!(done(refused), Err(Error::Encode(_))));
    write(&mut channel, upload.part(Bytes::from_static(b"abc")));
    write(&mut channel, upload.end());
    assert!(output(&mut channel).ends_with("\r\n\r\nabc"));
    channel.write_inbound(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").unwrap();
    done(response).unwrap();
}

#[test]
fn a_body_in_parts_needs_an_upload() {
    let mut channel = client();
    let (call, response) = Call::new(Request::post("/", Body::Streamed));
    write(&mut channel, call);
    assert!(matches!(done(response), Err(Error::Encode(_))));
    assert!(channel.is_open() && output(&mut channel).is_empty());
}
