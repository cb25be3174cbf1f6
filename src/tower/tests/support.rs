//! Services, bodies and an executor whose steps a test decides.

use crate::{
    error::{BoxError, Result},
    executor::Spawn,
    http::{HttpServer, Part, Response},
    sync::{Completer, Completion},
    testing::EmbeddedChannel,
    tower::{http_service::HttpService, request_body::RequestBody, tower_server::TowerServer},
};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_types::{HeaderMap, Request};
use std::{
    collections::VecDeque,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    task::{Context, Poll, Wake, Waker},
};
use tower_service::Service;

/// A service whose call is a function.
#[derive(Clone)]
pub(super) struct ServiceFn<F>(pub(super) F);

impl<F, R, T, E> Service<Request<RequestBody>> for ServiceFn<F>
where
    F: FnMut(Request<RequestBody>) -> R,
    R: Future<Output = Result<T, E>>,
{
    type Response = T;
    type Error = E;
    type Future = R;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), E>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<RequestBody>) -> R {
        (self.0)(request)
    }
}

/// The result of a test service.
pub(super) type Answer<B> = Result<http_types::Response<B>, BoxError>;

/// An executor that polls when the test says so.
#[derive(Clone, Default)]
pub(super) struct ManualExecutor(Arc<Tasks>);

#[derive(Default)]
struct Tasks {
    futures: Mutex<Vec<Pin<Box<dyn Future<Output = ()> + Send>>>>,
    refuses_to_poll_here: AtomicBool,
    woken: AtomicBool,
    spawned: AtomicUsize,
}

impl Wake for Tasks {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, SeqCst);
    }
}

impl Spawn for ManualExecutor {
    fn spawn(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) -> Result {
        self.0.spawned.fetch_add(1, SeqCst);
        self.0.woken.store(true, SeqCst);
        self.0.futures.lock().unwrap().push(future);
        Ok(())
    }

    fn poll_here(&self, poll: &mut dyn FnMut()) -> bool {
        if self.0.refuses_to_poll_here.load(SeqCst) {
            return false;
        }
        poll();
        true
    }
}

impl ManualExecutor {
    /// Polls all futures until none is woken.
    pub(super) fn run(&self) {
        let waker = Waker::from(self.0.clone());
        while self.0.woken.swap(false, SeqCst) {
            let mut futures = std::mem::take(&mut *self.0.futures.lock().unwrap());
            futures.retain_mut(|future| future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
            self.0.futures.lock().unwrap().extend(futures);
        }
    }

    pub(super) fn spawned(&self) -> usize {
        self.0.spawned.load(SeqCst)
    }

    pub(super) fn tasks(&self) -> usize {
        self.0.futures.lock().unwrap().len()
    }

    pub(super) fn refuse_to_poll_here(&self) {
        self.0.refuses_to_poll_here.store(true, SeqCst);
    }

    /// Drops all futures, as an executor does that shuts down.
    pub(super) fn drop_tasks(&self) {
        self.0.futures.lock().unwrap().clear();
    }
}

/// A connection with a service behind it.
pub(super) struct Site {
    pub(super) channel: EmbeddedChannel<Part<Response>>,
    pub(super) executor: ManualExecutor,
}

impl Site {
    pub(super) fn new<F, R, B>(call: F) -> Self
    where
        F: FnMut(Request<RequestBody>) -> R + Clone + Send + 'static,
        R: Future<Output = Answer<B>> + Send + 'static,
        B: Body<Error: Into<BoxError>> + Send + 'static,
    {
        Site::of(TowerServer::new(ServiceFn(call)))
    }

    pub(super) fn of<S: HttpService>(server: TowerServer<S>) -> Self {
        let executor = ManualExecutor::default();
        let mut channel = EmbeddedChannel::new(HttpServer::new().pipeline().handler(server.handler()));
        channel.set_executor(executor.clone());
        Site { channel, executor }
    }

    /// Runs the loop and the executor until both are idle.
    pub(super) fn run(&mut self) {
        loop {
            self.channel.run_pending();
            self.executor.run();
            if !self.channel.has_pending() {
                return;
            }
        }
    }

    pub(super) fn send(&mut self, input: impl AsRef<[u8]>) {
        self.channel.write_inbound(input.as_ref()).unwrap();
    }

    /// Returns the bytes that were sent, without the date.
    pub(super) fn sent(&mut self) -> String {
        let sent = self.channel.read_outbound();
        let text = String::from_utf8_lossy(&sent).into_owned();
        text.split_inclusive("\r\n").filter(|line| !line.starts_with("Date: ")).collect()
    }

    /// Sends a request, and returns the answer that is ready at once.
    pub(super) fn ask(&mut self, input: impl AsRef<[u8]>) -> String {
        self.send(input);
        self.sent()
    }
}

/// Returns a result and the means to provide it later.
pub(super) fn later<T>() -> (Completer<T>, Completion<T>) {
    Completer::new(u32::MAX)
}

/// A body whose frames the test provides.
pub(super) struct ManualBody(Arc<Mutex<ManualFrames>>);

/// The test's end of a [`ManualBody`].
#[derive(Clone)]
pub(super) struct Frames(Arc<Mutex<ManualFrames>>);

#[derive(Default)]
struct ManualFrames {
    frames: VecDeque<Result<Frame<Bytes>, &'static str>>,
    ended: bool,
    length: Option<u64>,
    polls: usize,
    waker: Option<Waker>,
    dropped: bool,
}

impl ManualBody {
    pub(super) fn new() -> (Self, Frames) {
        let shared = Arc::<Mutex<ManualFrames>>::default();
        (ManualBody(shared.clone()), Frames(shared))
    }
}

impl Frames {
    fn change(&self, change: impl FnOnce(&mut ManualFrames)) {
        let mut shared = self.0.lock().unwrap();
        change(&mut shared);
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }

    pub(super) fn push(&self, bytes: impl Into<Bytes>) {
        self.change(|shared| shared.frames.push_back(Ok(Frame::data(bytes.into()))));
    }

    pub(super) fn trailers(&self, trailers: HeaderMap) {
        self.change(|shared| shared.frames.push_back(Ok(Frame::trailers(trailers))));
    }

    pub(super) fn fail(&self) {
        self.change(|shared| shared.frames.push_back(Err("the source of the body failed")));
    }

    pub(super) fn end(&self) {
        self.change(|shared| shared.ended = true);
    }

    pub(super) fn set_length(&self, length: u64) {
        self.change(|shared| shared.length = Some(length));
    }

    pub(super) fn left(&self) -> usize {
        self.0.lock().unwrap().frames.len()
    }

    pub(super) fn polls(&self) -> usize {
        self.0.lock().unwrap().polls
    }

    pub(super) fn is_dropped(&self) -> bool {
        self.0.lock().unwrap().dropped
    }
}

impl Body for ManualBody {
    type Data = Bytes;
    type Error = &'static str;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, &'static str>>> {
        let mut shared = self.0.lock().unwrap();
        shared.polls += 1;
        match shared.frames.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None if shared.ended => Poll::Ready(None),
            None => {
                shared.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.0.lock().unwrap().length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl Drop for ManualBody {
    fn drop(&mut self) {
        self.0.lock().unwrap().dropped = true;
    }
}

/// A body that is complete.
pub(super) fn full(text: impl Into<Bytes>) -> http_body_util::Full<Bytes> {
    http_body_util::Full::new(text.into())
}

/// Returns an answer of 200.
pub(super) fn ok<B>(body: B) -> Answer<B> {
    Ok(http_types::Response::new(body))
}
