//! Services of tower over sockets, on a tokio runtime.

use crate::{
    Executor,
    support::{
        loops::{the_loop, watch},
        wait::{PATIENCE, done, receive},
    },
};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use netwheel::{
    EventLoopGroup,
    error::BoxError,
    http::HttpServer,
    prelude::*,
    shutdown::ShutdownOptions,
    tower::{HttpService, RequestBody, TowerServer},
};
use std::{
    convert::Infallible,
    future::Future,
    io::{Read, Write},
    net::TcpStream,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Sender, channel},
    },
    task::{Context as TaskContext, Poll},
    thread,
};
use tower_service::Service;

type Request = http_types::Request<RequestBody>;
type Response = http_types::Response<UnsyncBoxBody<Bytes, BoxError>>;

/// A service whose call is a function.
#[derive(Clone)]
struct ServiceFn<F>(F);

impl<F, R> Service<Request> for ServiceFn<F>
where
    F: FnMut(Request) -> R,
    R: Future<Output = Result<Response, BoxError>>,
{
    type Response = Response;
    type Error = BoxError;
    type Future = R;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request) -> R {
        (self.0)(request)
    }
}

fn whole(text: impl Into<Bytes>) -> Result<Response, BoxError> {
    Ok(Response::new(Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()))
}

/// A server, and the runtime of its service.
struct Site {
    group: EventLoopGroup,
    server: Server,
    /// Stops after the group.
    _executor: Executor,
}

impl Site {
    fn start<F, R>(call: F) -> Self
    where
        F: FnMut(Request) -> R + Clone + Send + 'static,
        R: Future<Output = Result<Response, BoxError>> + Send + 'static,
    {
        Site::of(TowerServer::new(ServiceFn(call)))
    }

    fn of(app: TowerServer<impl HttpService>) -> Self {
        let executor = Executor::start();
        let group = EventLoopGroup::builder().threads(1).executor(executor.handle.clone()).build().unwrap();
        let http = HttpServer::new();
        let server = ServerBootstrap::new(&group)
            .pipeline(move |_| http.pipeline().handler(app.handler()))
            .bind("127.0.0.1:0")
            .unwrap();
        Site { group, server, _executor: executor }
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.server.local_address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream
    }
}

/// Reads up to the end of `mark`.
fn read_until(stream: &mut TcpStream, mark: &[u8]) -> Vec<u8> {
    let mut all = Vec::new();
    let mut byte = [0];
    while !all.ends_with(mark) {
        stream.read_exact(&mut byte).unwrap();
        all.push(byte[0]);
    }
    all
}

const GET: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
const LAST_GET: &[u8] = b"GET /last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";

#[test]
fn a_thousand_pipelined_requests_are_answered_in_order() {
    let number = Arc::new(AtomicUsize::new(0));
    let site = Site::start(move |request: Request| {
        let number = number.fetch_add(1, SeqCst);
        async move {
            // Every third one moves to the runtime, so both ways alternate.
            if number.is_multiple_of(3) {
                tokio::spawn(async {}).await?;
            }
            whole(format!("<{}>", request.uri().path()))
        }
    });
    let mut stream = site.connect();
    let mut requests = Vec::new();
    for n in 0..1000 {
        requests.extend(format!("GET /{n} HTTP/1.1\r\nHost: x\r\n\r\n").bytes());
    }
    requests.extend(LAST_GET);
    let mut writer = stream.try_clone().unwrap();
    let writing = thread::spawn(move || writer.write_all(&requests).unwrap());
    let mut answers = String::new();
    stream.read_to_string(&mut answers).unwrap();
    writing.join().unwrap();
    let paths: Vec<_> = answers.split('<').skip(1).map(|rest| rest.split('>').next().unwrap()).collect();
    let expected: Vec<_> = (0..1000).map(|n| format!("/{n}")).chain(["/last".to_owned()]).collect();
    assert_eq!(paths, expected);
}

#[test]
fn bodies_of_a_mebibyte_are_echoed_while_they_arrive_in_pieces() {
    let site = Site::start(async |request: Request| {
        Ok(Response::new(request.into_body().map_err(Into::into).boxed_unsync()))
    });
    const LENGTH: usize = 1 << 20;
    let body: Vec<u8> = (0..LENGTH).map(|n| (n % 251) as u8).collect();
    for piece in [999, 16_384, LENGTH] {
        let mut stream = site.connect();
        let mut writer = stream.try_clone().unwrap();
        let sent = body.clone();
        let writing = thread::spawn(move || {
            let head = format!(
                "POST / HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {LENGTH}\r\n\r\n"
            );
            writer.write_all(head.as_bytes()).unwrap();
            for piece in sent.chunks(piece) {
                writer.write_all(piece).unwrap();
            }
        });
        let head = read_until(&mut stream, b"\r\n\r\n");
        let head = String::from_utf8(head).unwrap();
        assert!(head.contains(&format!("Content-Length: {LENGTH}\r\n")), "{head}");
        let mut echoed = Vec::new();
        stream.read_to_end(&mut echoed).unwrap();
        writing.join().unwrap();
        assert!(echoed == body, "{} bytes in pieces of {piece}", echoed.len());
    }
}

/// The bytes of a chunk.
const CHUNK: usize = 16 * 1024;

/// A body of equal chunks, which counts how many were produced.
struct Chunks {
    left: usize,
    produced: Arc<AtomicUsize>,
}

impl http_body::Body for Chunks {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        if self.left == 0 {
            return Poll::Ready(None);
        }
        self.left -= 1;
        self.produced.fetch_add(1, SeqCst);
        Poll::Ready(Some(Ok(http_body::Frame::data(Bytes::from(vec![b'a'; CHUNK])))))
    }
}

#[test]
fn a_client_that_reads_slowly_slows_the_body() {
    const CHUNKS: usize = 4096;
    /// What the buffers of the kernel may take.
    const KERNEL: usize = 16 << 20;
    for waits_first in [false, true] {
        let produced = Arc::new(AtomicUsize::new(0));
        let count = produced.clone();
        let site = Site::start(move |_: Request| {
            let body = Chunks { left: CHUNKS, produced: count.clone() };
            async move {
                if waits_first {
                    tokio::spawn(async {}).await?;
                }
                Ok(Response::new(body.boxed_unsync()))
            }
        });
        let mut stream = site.connect();
        stream.write_all(LAST_GET).unwrap();
        read_until(&mut stream, b"\r\n\r\n");
        let (mut received, mut end) = (0, Vec::new());
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let ahead = (produced.load(SeqCst) * CHUNK).saturating_sub(received);
            assert!(ahead < KERNEL + (1 << 20), "{ahead} bytes were produced and not read");
            let read = stream.read(&mut buffer).unwrap();
            if read == 0 {
                break;
            }
            received += read;
            end.extend_from_slice(&buffer[..read]);
            end.drain(..end.len().saturating_sub(7));
        }
        assert_eq!(end, b"\r\n0\r\n\r\n");
        assert_eq!(produced.load(SeqCst), CHUNKS);
    }
}

/// Reports its drop.
struct Dropped(Sender<()>);

impl Drop for Dropped {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

#[test]
fn a_client_that_goes_away_cancels_the_future() {
    let ((started, starts), (sender, drops)) = (channel(), channel());
    let site = Site::start(move |_: Request| {
        let (started, dropped) = (started.clone(), Dropped(sender.clone()));
        async move {
            started.send(())?;
            std::future::pending::<()>().await;
            drop(dropped);
            whole("never")
        }
    });
    let mut stream = site.connect();
    stream.write_all(GET).unwrap();
    receive(&starts);
    assert!(drops.try_recv().is_err());
    drop(stream);
    receive(&drops);
}

/// A body of one chunk that never ends.
struct Endless {
    first: Option<Bytes>,
    _dropped: Dropped,
}

impl http_body::Body for Endless {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut TaskContext<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, BoxError>>> {
        self.first.take().map_or(Poll::Pending, |first| Poll::Ready(Some(Ok(http_body::Frame::data(first)))))
    }
}

#[test]
fn a_client_that_goes_away_cancels_a_streamed_body() {
    let (sender, drops) = channel();
    let site = Site::start(move |_: Request| {
        let body = Endless { first: Some("first".into()), _dropped: Dropped(sender.clone()) };
        async { Ok(Response::new(body.boxed_unsync())) }
    });
    let mut stream = site.connect();
    stream.write_all(GET).unwrap();
    read_until(&mut stream, b"first\r\n");
    assert!(drops.try_recv().is_err());
    drop(stream);
    receive(&drops);
}

#[test]
fn a_shutdown_waits_for_the_response() {
    let (started, starts) = channel();
    let (go, may_go) = channel::<()>();
    let may_go = Arc::new(Mutex::new(Some(may_go)));
    let site = Site::start(move |_: Request| {
        let (started, may_go) = (started.clone(), may_go.lock().unwrap().take());
        async move {
            started.send(())?;
            let may_go = may_go.expect("one request");
            tokio::task::spawn_blocking(move || receive(&may_go)).await?;
            whole("the last one")
        }
    });
    let mut idle = site.connect();
    let mut stream = site.connect();
    stream.write_all(GET).unwrap();
    receive(&starts);
    let report = site.group.shutdown(ShutdownOptions::new().timeout(PATIENCE));
    assert_eq!(idle.read(&mut [0; 16]).unwrap(), 0, "an idle connection closes");
    go.send(()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("Connection: close\r\n") && answer.ends_with("the last one"), "{answer}");
    done(report).unwrap();
}

#[test]
fn a_panic_is_answered_and_counted_once() {
    for waits_first in [false, true] {
        let site = Site::start(move |_: Request| async move {
            if waits_first {
                tokio::spawn(async {}).await?;
            }
            if true {
                panic!("on purpose");
            }
            whole("never")
        });
        let mut stream = site.connect();
        stream.write_all(GET).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 500 "), "{answer}");
        let metrics = watch(the_loop(&site.group), |metrics| metrics.channel_errors > 0);
        assert_eq!(metrics.channel_errors, 1);
    }
}
