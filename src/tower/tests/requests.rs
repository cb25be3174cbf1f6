//! Requests and their bodies.

use super::support::{Answer, ServiceFn, Site, full, later, ok};
use crate::{
    channel::{ChannelOptions, Peer},
    error::{Error, Result},
    http::{HttpServer, Response},
    tower::{request_body::RequestBody, routed::Routed, tower_server::TowerServer},
};
use bytes::Bytes;
use http_body::{Body, Frame};
use http_body_util::BodyExt;
use http_types::Request;
use std::{
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    task::Poll,
};

/// Answers with the request and its whole body.
async fn describe(request: Request<RequestBody>) -> Answer<http_body_util::Full<Bytes>> {
    let (parts, body) = request.into_parts();
    let hint = body.size_hint().exact();
    let collected = body.collect().await?;
    let trailers = collected.trailers().map(|trailers| format!("{trailers:?}"));
    let text = collected.to_bytes();
    ok(full(format!(
        "{} {} {:?} {hint:?} {} {}",
        parts.method,
        parts.uri,
        parts.headers.get("x-a"),
        String::from_utf8_lossy(&text),
        trailers.unwrap_or_default(),
    )))
}

#[test]
fn a_request_has_its_line_headers_and_body() {
    let mut site = Site::new(describe);
    let answer = site.ask("GET /a?b=c HTTP/1.1\r\nHost: x\r\nX-A: 1\r\n\r\n");
    assert_eq!(answer, "HTTP/1.1 200 OK\r\nContent-Length: 30\r\n\r\nGET /a?b=c Some(\"1\") Some(0)  ");
    let answer = site.ask("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\nhello");
    assert!(answer.ends_with("PUT / None Some(5) hello "), "{answer}");
    assert_eq!(site.executor.spawned(), 0, "both are ready on the loop");
}

#[test]
fn a_body_may_arrive_in_any_pieces() {
    let sized = "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789";
    let chunked = "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n\
                   4\r\n0123\r\n6\r\n456789\r\n0\r\nX-T: 7\r\n\r\n";
    for (text, end) in [
        (sized, "POST / None Some(10) 0123456789 "),
        (chunked, "POST / None None 0123456789 {\"x-t\": \"7\"}"),
    ] {
        for at in 1..text.len() {
            let mut site = Site::new(describe);
            site.send(&text[..at]);
            site.run();
            site.send(&text[at..]);
            site.run();
            let answer = site.sent();
            assert!(answer.ends_with(end), "split at {at}: {answer}");
        }
    }
}

#[test]
fn the_extensions_have_the_peer() {
    let mut site = Site::new(async |request: Request<RequestBody>| {
        let peer = request.extensions().get::<Peer>().expect("an extension");
        ok(full(format!("{:?}", peer.address())))
    });
    assert!(site.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("None"));
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let pending = Arc::new(Mutex::new(Vec::new()));
    let calls = pending.clone();
    let mut site = Site::new(move |request: Request<RequestBody>| {
        let (completer, completion) = later::<()>();
        calls.lock().unwrap().push(completer);
        async move {
            completion.await?;
            ok(full(request.uri().to_string()))
        }
    });
    site.send("GET /1 HTTP/1.1\r\nHost: x\r\n\r\nGET /2 HTTP/1.1\r\nHost: x\r\n\r\n");
    site.run();
    assert_eq!(pending.lock().unwrap().len(), 1, "one at a time");
    for path in ["/1", "/2"] {
        pending.lock().unwrap().pop().expect("a call").complete(Ok(()));
        site.run();
        assert!(site.sent().ends_with(path));
    }
    assert!(site.channel.is_open());
}

/// Waits until it is allowed to take requests.
#[derive(Clone)]
struct Gated(Arc<Mutex<GateState>>);

#[derive(Default)]
struct GateState {
    is_open: bool,
    waker: Option<std::task::Waker>,
}

impl tower_service::Service<Request<RequestBody>> for Gated {
    type Response = http_types::Response<http_body_util::Full<Bytes>>;
    type Error = Error;
    type Future = std::future::Ready<Result<Self::Response, Error>>;

    fn poll_ready(&mut self, cx: &mut std::task::Context<'_>) -> std::task::Poll<Result<(), Error>> {
        let mut state = self.0.lock().unwrap();
        state.waker = Some(cx.waker().clone());
        if state.is_open { std::task::Poll::Ready(Ok(())) } else { std::task::Poll::Pending }
    }

    fn call(&mut self, _: Request<RequestBody>) -> Self::Future {
        assert!(self.0.lock().unwrap().is_open, "called before it was ready");
        std::future::ready(Ok(http_types::Response::new(full("in"))))
    }
}

#[test]
fn a_service_is_called_when_it_is_ready() {
    let gate = Arc::<Mutex<GateState>>::default();
    let mut site = Site::of(TowerServer::new(Gated(gate.clone())));
    site.send("GET / HTTP/1.1\r\nHost: x\r\n\r\n");
    site.run();
    assert_eq!(site.sent(), "");
    let mut state = gate.lock().unwrap();
    state.is_open = true;
    let waker = state.waker.take().expect("it was polled");
    drop(state);
    waker.wake();
    site.run();
    assert!(site.sent().ends_with("in"));
    assert!(site.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("in"), "the service is back");
}

#[test]
fn a_service_that_does_not_read_pauses_the_client() {
    let (completer, completion) = later::<()>();
    let completion = Arc::new(Mutex::new(Some(completion)));
    let mut site = Site::new(move |request: Request<RequestBody>| {
        let completion = completion.lock().unwrap().take().expect("one call");
        async move {
            completion.await?;
            let body = request.into_body().collect().await?.to_bytes();
            ok(full(format!("{}", body.len())))
        }
    });
    let length = 4 * 1024 * 1024;
    site.send(format!("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n"));
    let chunk = vec![b'a'; 16 * 1024];
    let mut sent = 0;
    // An embedded channel keeps its input until it reads.
    while sent < length {
        site.channel.write_inbound(&chunk).unwrap();
        site.run();
        sent += chunk.len();
    }
    let high = ChannelOptions::default().build().unwrap().inbound_mark.high();
    let stats = site.channel.channel().stats();
    site.run();
    let read = stats.wait().unwrap().bytes_read;
    assert!(read > 0 && read <= high as u64 + 64 * 1024, "{read} bytes read");
    completer.complete(Ok(()));
    site.run();
    assert!(site.sent().ends_with(&length.to_string()));
}

#[test]
fn a_client_that_waits_for_continue_gets_it_when_the_body_is_polled() {
    let (completer, completion) = later::<()>();
    let completion = Arc::new(Mutex::new(Some(completion)));
    let mut site = Site::new(move |request: Request<RequestBody>| {
        let completion = completion.lock().unwrap().take().expect("one call");
        async move {
            completion.await?;
            ok(full(request.into_body().collect().await?.to_bytes()))
        }
    });
    site.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    site.run();
    site.channel.advance(std::time::Duration::from_secs(5));
    assert_eq!(site.sent(), "", "the service has not asked for the body");
    completer.complete(Ok(()));
    site.run();
    assert_eq!(site.sent(), "HTTP/1.1 100 Continue\r\n\r\n");
    site.channel.advance(std::time::Duration::from_secs(1));
    assert_eq!(site.sent(), "", "once");
    site.send("hi");
    site.run();
    assert!(site.sent().ends_with("\r\n\r\nhi"));
}

#[test]
fn an_echo_asks_for_the_body_ahead_of_its_response() {
    for polls_on_loop in [true, false] {
        let service = ServiceFn(async |request: Request<RequestBody>| ok(request.into_body()));
        let mut site = Site::of(TowerServer::new(service).polls_on_loop(polls_on_loop));
        site.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
        site.run();
        let head = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n";
        assert_eq!(site.sent(), head);
        site.send("hi");
        site.run();
        assert_eq!(site.sent(), "hi");
        assert!(site.channel.is_open());
    }
}

/// Sends two bytes of its own before it reads the body of the request, and polls that in between.
struct Impatient {
    polls: usize,
    request: RequestBody,
}

impl Body for Impatient {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        self.polls += 1;
        let own = match self.polls {
            1 => "a",
            2 => {
                assert!(Pin::new(&mut self.request).poll_frame(cx).is_pending());
                "b"
            }
            _ => return Pin::new(&mut self.request).poll_frame(cx),
        };
        Poll::Ready(Some(Ok(Frame::data(own.into()))))
    }
}

#[test]
fn a_response_that_polls_the_body_behind_its_head_goes_on() {
    for polls_on_loop in [true, false] {
        let service = ServiceFn(async |request: Request<RequestBody>| {
            ok(Impatient { polls: 0, request: request.into_body() })
        });
        let mut site = Site::of(TowerServer::new(service).polls_on_loop(polls_on_loop));
        site.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
        site.run();
        let sent = site.sent();
        assert!(sent.starts_with("HTTP/1.1 200 OK\r\n") && sent.ends_with("1\r\na\r\n1\r\nb\r\n"), "{sent}");
        assert!(site.channel.is_open());
        site.send("hi");
        site.run();
        assert_eq!(site.sent(), "2\r\nhi\r\n0\r\n\r\n");
    }
}

#[test]
fn a_client_that_waits_for_continue_may_get_the_response_instead() {
    let mut site = Site::new(async |_: Request<RequestBody>| ok(full("no")));
    let answer = site.ask("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Connection: close"), "{answer}");
    site.channel.advance(std::time::Duration::from_secs(1));
    assert!(site.channel.is_closed());
}

#[test]
fn the_rest_of_a_body_that_is_not_needed_is_discarded() {
    let mut site = Site::new(async |request: Request<RequestBody>| {
        drop(request);
        ok(full("early"))
    });
    let answer = site.ask("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 30\r\n\r\n0123456789");
    assert!(answer.ends_with("early"));
    site.send("01234567890123456789");
    assert!(site.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("early"), "the next request");
}

#[test]
fn a_body_beyond_its_response_is_cut() {
    let kept = Arc::new(Mutex::new(None));
    let keeper = kept.clone();
    let mut site = Site::new(move |request: Request<RequestBody>| {
        *keeper.lock().unwrap() = Some(request.into_body());
        async { ok(full("early")) }
    });
    site.send("PUT / HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n12");
    assert!(site.sent().ends_with("early"));
    site.send("34");
    let body = kept.lock().unwrap().take().expect("the service keeps it");
    let mut collect = std::pin::pin!(body.collect());
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let std::task::Poll::Ready(Err(error)) = collect.as_mut().poll(&mut cx) else { panic!("an error") };
    assert!(matches!(error, Error::Closed));
}

#[test]
fn targets_that_are_not_uris_are_answered_with_400() {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let mut site = Site::new(move |_: Request<RequestBody>| {
        counted.fetch_add(1, SeqCst);
        async { ok(full("")) }
    });
    let answer = site.ask("GET /a|b<c> HTTP/1.1\r\nHost: x\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 ") || calls.load(SeqCst) == 1, "{answer}");
}

#[test]
fn some_paths_may_be_answered_before_the_service() {
    let server = TowerServer::new(ServiceFn(async |_: Request<RequestBody>| ok(full("service"))));
    let mut site = Site::of(server.route(|ctx, request| match request.path() {
        "/here" => {
            ctx.write(Response::ok("route").into())?;
            Ok(Routed::Answered)
        }
        "/fails" => Err(Error::other("no route")),
        _ => Ok(Routed::Service),
    }));
    assert!(site.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("service"));
    let put = "PUT /here HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\nhi";
    assert!(site.ask(put).ends_with("route"));
    assert!(site.ask("GET / HTTP/1.1\r\nHost: x\r\n\r\n").ends_with("service"));
    assert!(site.ask("GET /fails HTTP/1.1\r\nHost: x\r\n\r\n").starts_with("HTTP/1.1 500 "));
}

#[test]
fn a_connection_has_a_clone_of_the_service() {
    #[derive(Debug)]
    struct Counter(Arc<AtomicUsize>, usize);
    impl Clone for Counter {
        fn clone(&self) -> Self {
            Counter(self.0.clone(), self.0.fetch_add(1, SeqCst) + 1)
        }
    }
    impl Counter {
        fn text(&self) -> String {
            self.1.to_string()
        }
    }
    let clones = Arc::new(AtomicUsize::new(0));
    let counter = Counter(clones.clone(), 0);
    let server = TowerServer::new(ServiceFn(move |_: Request<RequestBody>| {
        let text = counter.text();
        async move { ok(full(text)) }
    }));
    let pipeline = || HttpServer::new().pipeline().handler(server.handler());
    for connection in 1..=2 {
        let mut channel = crate::testing::EmbeddedChannel::new(pipeline());
        channel.set_executor(super::support::ManualExecutor::default());
        for _ in 0..3 {
            channel.write_inbound(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            assert!(channel.read_outbound().ends_with(connection.to_string().as_bytes()));
        }
    }
    assert_eq!(clones.load(SeqCst), 2);
}
