//! Calls: each fails alone, within its time, and leaves no response behind for the next one.

use crate::{
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow, Reuse},
    error::{EncodeError, Error, Resource, Result},
    http::{
        Body, Call, FullMessage, NotSent, Request, Response, client::HttpClient, error::HttpError,
        settings::HttpSettings,
    },
    sync::Completion,
    testing::EmbeddedChannel,
};
use std::time::Duration;

type Answer = Completion<FullMessage<Response>>;

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn client(settings: HttpSettings) -> EmbeddedChannel<Call> {
    EmbeddedChannel::new(HttpClient::with(settings).unwrap().host("example.org").calls(1024))
}

/// Writes a call through a handle, as a program does.
fn start(channel: &mut EmbeddedChannel<Call>, (call, answer): (Call, Answer)) -> Answer {
    channel.channel().write(call).map_err(Error::from).unwrap();
    channel.run_pending();
    answer
}

fn get(channel: &mut EmbeddedChannel<Call>) -> Answer {
    start(channel, Call::new(Request::get("/")))
}

#[track_caller]
fn done(answer: Answer) -> Result<FullMessage<Response>> {
    assert!(answer.is_done(), "the call waits");
    answer.wait()
}

#[track_caller]
fn cause(result: Result<FullMessage<Response>>) -> Error {
    let error = result.unwrap_err();
    NotSent::of(&error).unwrap_or_else(|| panic!("{error:#}")).cause().clone()
}

#[test]
fn a_call_whose_server_ends_its_stream_fails_at_once_with_half_closed_channels() {
    let client = HttpClient::new().host("example.org").calls(1024);
    let mut channel = EmbeddedChannel::builder(client)
        .channel_options(ChannelOptions::new().half_close(true))
        .build()
        .unwrap();
    let answer = get(&mut channel);
    assert_eq!(channel.pending_bytes(), 0);
    channel.end_inbound();
    assert!(matches!(done(answer), Err(Error::Closed)));
    assert!(channel.is_closed());
}

#[test]
fn a_call_whose_server_goes_before_it_has_taken_the_request_fails_at_once() {
    let mut channel = client(HttpSettings::new());
    channel.set_outbound_room(Some(10));
    let answer = get(&mut channel);
    assert!(channel.pending_bytes() > 0);
    channel.end_inbound();
    assert!(matches!(done(answer), Err(Error::Closed)));
    assert!(channel.is_closed());
}

#[test]
fn a_connection_whose_server_answers_before_it_has_taken_the_request_is_not_used_again() {
    let mut channel = client(HttpSettings::new());
    channel.set_outbound_room(Some(10));
    let answer = start(&mut channel, Call::new(Request::post("/", vec![b'x'; 1_000])));
    channel.write_inbound(b"HTTP/1.1 404 Not Found\r\nContent-Length: 2\r\n\r\nno").unwrap();
    assert_eq!(done(answer).unwrap().body, "no");
    assert!(channel.pending_bytes() > 0);
    assert_eq!(channel.channel().reuse(), Reuse::Never);
    assert!(!channel.is_open());
}

#[test]
fn the_limit_of_whole_responses_may_be_larger_than_that_of_the_settings() {
    let responds_with = |length: usize, is_chunked: bool| {
        let http = HttpClient::with(HttpSettings::new().max_body(10)).unwrap().host("h");
        let mut channel = EmbeddedChannel::new(http.calls(100));
        let answer = get(&mut channel);
        let body = "x".repeat(length);
        let response = match is_chunked {
            true => format!("Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{body}\r\n0\r\n\r\n"),
            false => format!("Content-Length: {length}\r\n\r\n{body}"),
        };
        let _ = channel.write_inbound(format!("HTTP/1.1 200 OK\r\n{response}").as_bytes());
        done(answer)
    };
    for is_chunked in [false, true] {
        assert_eq!(responds_with(100, is_chunked).unwrap().body.len(), 100);
        let error = responds_with(101, is_chunked).unwrap_err();
        assert_eq!(HttpError::of(&error), Some(HttpError::BodyTooLong), "{error:#}");
    }
}

#[test]
fn a_call_beyond_the_limit_fails_alone() {
    let mut channel = client(HttpSettings::new().max_pipelined(2));
    let answers = [get(&mut channel), get(&mut channel)];
    let refused = cause(done(get(&mut channel)));
    assert!(
        matches!(refused, Error::Full { resource: Resource::PipelinedRequests, limit: 2 }),
        "{refused:#}"
    );
    channel.write_inbound(&[OK, OK].concat()).unwrap();
    for answer in answers {
        assert_eq!(done(answer).unwrap().body, "ok");
    }
    assert!(channel.is_open());
}

#[test]
fn a_call_that_cannot_be_encoded_fails_alone() {
    let mut channel = client(HttpSettings::new());
    let first = get(&mut channel);
    for request in [
        Request::get("/").header("X", "a\r\nY: b"),
        Request::get("/a b"),
        Request::get("/").header("Content-Length", "5"),
        Request::post("/", Body::Streamed),
        Request::new("CONNECT", "example.org:443"),
        Request::get("/").header("Connection", "Upgrade").header("Upgrade", "websocket"),
    ] {
        let text = format!("{request:?}");
        let error = done(start(&mut channel, Call::new(request))).unwrap_err();
        assert!(matches!(error, Error::Encode(EncodeError::Unencodable(_))), "{text}: {error:#}");
    }
    let last = get(&mut channel);
    let request = "GET / HTTP/1.1\r\nHost: example.org\r\n\r\n";
    assert_eq!(channel.read_outbound(), request.repeat(2).as_bytes());
    channel.write_inbound(&[OK, OK].concat()).unwrap();
    assert!([first, last].into_iter().all(|answer| done(answer).is_ok()));
}

#[test]
fn a_call_without_a_host_leaves_no_bytes_behind() {
    let mut channel = EmbeddedChannel::new(HttpClient::new().calls(1024));
    assert!(matches!(done(get(&mut channel)), Err(Error::Encode(_))));
    let answer = start(&mut channel, Call::new(Request::get("/").header("Host", "h")));
    assert_eq!(channel.read_outbound(), &b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"[..]);
    channel.write_inbound(OK).unwrap();
    assert!(done(answer).is_ok());
}

#[test]
fn a_call_on_a_closed_channel_says_that_it_was_not_sent() {
    let mut channel = client(HttpSettings::new());
    // It reaches the queue before the close, and the loop after it.
    let handle = channel.channel();
    let (call, answer) = Call::new(Request::get("/"));
    handle.close();
    handle.write(call).map_err(Error::from).unwrap();
    channel.run_pending();
    assert!(matches!(cause(done(answer)), Error::Closed));
    let (call, answer) = Call::new(Request::get("/"));
    assert!(channel.channel().write(call).is_err());
    assert!(matches!(cause(done(answer)), Error::Closed));
}

#[test]
fn a_call_whose_connection_ends_without_a_response_fails_with_closed() {
    let mut channel = client(HttpSettings::new());
    let answers = [get(&mut channel), get(&mut channel)];
    channel.end_inbound();
    for answer in answers {
        let error = done(answer).unwrap_err();
        assert!(matches!(error, Error::Closed), "{error:#}");
    }
}

#[test]
fn a_switch_of_protocols_without_a_request_for_it_fails_the_call_at_once() {
    for head in [
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
        "HTTP/1.0 101 x\r\n\r\n",
    ] {
        let mut channel = client(HttpSettings::new());
        let answer = get(&mut channel);
        let _ = channel.write_inbound(head.as_bytes());
        let error = done(answer).unwrap_err();
        assert_eq!(HttpError::of(&error), Some(HttpError::UnexpectedUpgrade), "{error:#}");
        assert!(!channel.is_open());
    }
}

#[test]
fn bytes_behind_the_last_response_end_the_connection() {
    let evil = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nEVIL";
    let no_body = b"HTTP/1.1 204 No Content\r\n\r\n";
    let chunked = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    for response in [OK, no_body, chunked] {
        for extra in [&evil[..], b"\r\n", b"x", &evil[..20]] {
            let mut channel = client(HttpSettings::new());
            let (first, second) = (Call::new(Request::get("/1")), Call::new(Request::get("/2")));
            let answer = start(&mut channel, first);
            // The program makes the next call as soon as it has the response.
            let handle = channel.channel();
            let called = std::sync::Arc::new(std::sync::Mutex::new(None));
            let seen = called.clone();
            let (call, next) = second;
            answer.on_complete(move |answer| {
                *seen.lock().unwrap() = Some(answer.is_ok());
                let _ = handle.write(call);
            });
            let _ = channel.write_inbound(&[response, extra].concat());
            channel.run_pending();
            assert_eq!(*called.lock().unwrap(), Some(true));
            assert!(matches!(cause(done(next)), Error::Closed));
            assert!(!channel.is_open());
        }
    }
}

#[test]
fn a_call_has_a_time_limit_that_no_byte_extends() {
    let interim: &[u8] = b"HTTP/1.1 102 Processing\r\n\r\n";
    let long_head: Vec<&[u8]> =
        b"HTTP/1.1 200 OK\r\nX: aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa".chunks(1).collect();
    let body: Vec<&[u8]> = std::iter::once(&b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n"[..])
        .chain(std::iter::repeat_n(&b"x"[..], 100))
        .collect();
    for (what, pieces) in [("interim responses", vec![interim; 100]), ("a head", long_head), ("a body", body)]
    {
        let settings = HttpSettings::new().response_timeout(Duration::ZERO);
        let mut channel = client(settings);
        let (call, answer) = Call::new(Request::get("/"));
        let answer = start(&mut channel, (call.timeout(seconds(30)), answer));
        let mut pieces = pieces.into_iter();
        for second in 0..29 {
            channel.write_inbound(pieces.next().unwrap()).unwrap();
            channel.advance(seconds(1));
            assert!(!answer.is_done(), "{what} after {second} s");
        }
        channel.write_inbound(pieces.next().unwrap()).unwrap();
        channel.advance(seconds(2));
        let error = done(answer).unwrap_err();
        assert!(
            matches!(error, Error::TimedOut { operation: "a call", after } if after == seconds(30)),
            "{what}: {error:#}"
        );
        assert!(!channel.is_open(), "{what}");
    }
}

#[test]
fn a_call_has_sixty_seconds_by_default_and_its_own_time_if_set() {
    let settings = || HttpSettings::new().response_timeout(Duration::ZERO);
    let mut channel = client(settings());
    let answer = get(&mut channel);
    channel.advance(seconds(59));
    assert!(!answer.is_done());
    channel.advance(seconds(2));
    assert!(matches!(done(answer), Err(Error::TimedOut { after, .. }) if after == Call::TIME_LIMIT));

    let mut channel = client(settings());
    let (call, answer) = Call::new(Request::get("/"));
    let answer = start(&mut channel, (call.timeout(Duration::MAX), answer));
    channel.advance(seconds(1_000));
    channel.write_inbound(OK).unwrap();
    assert!(done(answer).is_ok());

    let mut channel = client(settings());
    let (call, answer) = Call::new(Request::get("/"));
    let answer = start(&mut channel, (call.timeout(Duration::ZERO), answer));
    assert!(matches!(cause(done(answer)), Error::TimedOut { .. }));
    assert!(channel.is_open() && channel.read_outbound().is_empty());
}

#[test]
fn a_call_that_is_given_up_ends_its_connection_when_the_others_have_their_responses() {
    let mut channel = client(HttpSettings::new());
    let [first, second, third] = [get(&mut channel), get(&mut channel), get(&mut channel)];
    drop(second);
    channel.run_pending();
    assert!(channel.is_open(), "others wait for their responses");
    assert!(matches!(cause(done(get(&mut channel))), Error::Closed), "it takes no further call");
    channel.write_inbound(OK).unwrap();
    assert!(done(first).is_ok());
    channel.write_inbound(&[OK, OK].concat()).unwrap();
    assert!(done(third).is_ok());
    assert!(!channel.is_open());

    let mut channel = client(HttpSettings::new());
    drop(get(&mut channel));
    channel.run_pending();
    assert!(!channel.is_open(), "no other call waits");
}

#[test]
fn a_call_that_was_dropped_before_the_loop_has_it_is_not_sent() {
    let mut channel = client(HttpSettings::new());
    let (call, answer) = Call::new(Request::get("/"));
    channel.channel().write(call).map_err(Error::from).unwrap();
    drop(answer);
    channel.run_pending();
    assert!(channel.read_outbound().is_empty() && channel.is_open());
    let answer = get(&mut channel);
    channel.write_inbound(OK).unwrap();
    assert!(done(answer).is_ok());
}

#[test]
fn a_detached_call_keeps_its_connection() {
    let mut channel = client(HttpSettings::new());
    get(&mut channel).detach();
    channel.run_pending();
    channel.write_inbound(OK).unwrap();
    assert!(channel.is_open());
    let answer = get(&mut channel);
    channel.write_inbound(OK).unwrap();
    assert!(done(answer).is_ok());
}

#[test]
fn an_idle_connection_closes_before_the_server_closes_it() {
    let respond = |headers: &str| {
        let mut channel = client(HttpSettings::new());
        let answer = get(&mut channel);
        let response = format!("HTTP/1.1 200 OK\r\n{headers}Content-Length: 0\r\n\r\n");
        channel.write_inbound(response.as_bytes()).unwrap();
        assert!(done(answer).is_ok());
        channel
    };
    for (headers, kept, closed) in [
        ("", 3_900, 4_200),
        ("Keep-Alive: timeout=5\r\n", 3_900, 4_200),
        ("Keep-Alive: timeout=60, max=10\r\n", 58_900, 59_200),
        ("Keep-Alive: timeout=2\r\n", 900, 1_200),
    ] {
        let mut channel = respond(headers);
        channel.advance(Duration::from_millis(kept));
        assert!(channel.is_open(), "{headers:?}");
        channel.advance(Duration::from_millis(closed - kept));
        assert!(!channel.is_open(), "{headers:?}");
    }
    assert!(!respond("Keep-Alive: timeout=0\r\n").is_open());
}

/// The caller of the first request would get the response to the second one.
#[test]
fn a_waiting_request_is_not_dropped_in_favour_of_the_next_one() {
    let mark = WaterMark::new(80_000, 90_000).unwrap();
    let options = ChannelOptions::new().max_outbound(100_000).water_mark(mark);
    let mut channel = EmbeddedChannel::builder(HttpClient::new().host("a").calls(8))
        .channel_options(options.overflow(Overflow::DropOldest))
        .build()
        .unwrap();
    channel.set_outbound_room(Some(0));
    let call = |path: &str| Call::new(Request::post(path, path.repeat(30_000)));
    let _answers = ["/1", "/2"].map(|path| start(&mut channel, call(path)));
    channel.set_outbound_room(None);
    let output = String::from_utf8(channel.read_outbound().to_vec()).unwrap();
    assert_eq!(output.matches(" HTTP/1.1\r\n").count(), 2);
    assert!(output.starts_with("POST /1 "), "{}", &output[..100]);
}
