//! One loop in the hands of a test: run something on it and wait, block it, know that it has come round.

use bytes::Bytes;
use netwheel::{
    Completion, Context, Error, EventLoop, EventLoopGroup, EventLoopGroupBuilder, Handler, Pipeline,
};
use netwheel::{Result, Server, ServerBootstrap, codec::RawBytes, testing::ManualClock};
use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// How long a test waits for what must happen before it gives up. It never decides a test that passes.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// A group of one loop whose time stands still.
pub(crate) fn manual() -> (EventLoop, ManualClock) {
    let clock = ManualClock::new();
    let (_, event_loop) = single(EventLoopGroup::builder().clock(clock.clone()));
    (event_loop, clock)
}

/// A group of one loop, and that loop.
pub(crate) fn single(builder: EventLoopGroupBuilder) -> (EventLoopGroup, EventLoop) {
    let group = builder.threads(1).build().unwrap();
    let event_loop = group.next().clone();
    (group, event_loop)
}

/// Runs `f` on the loop and waits for its value.
#[track_caller]
pub(crate) fn on<T: Send + 'static>(event_loop: &EventLoop, f: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    event_loop.execute(move || drop(sender.send(f()))).expect("the loop takes tasks");
    receiver.recv_timeout(PATIENCE).expect("the task runs")
}

/// Waits until the turn that is running, and a whole one begun after this call, are over: what was due is run.
///
/// The turn that is running may have read the clock before this call, and a task in the next one runs before that
/// one's timers: it is over when there is a third.
#[track_caller]
pub(crate) fn settle(event_loop: &EventLoop) {
    let turns = || {
        let me = event_loop.clone();
        on(event_loop, move || me.metrics().turns)
    };
    let first = turns();
    while turns() < first + 2 {}
}

/// Moves the time on, and has what is due then run.
#[track_caller]
pub(crate) fn advance(event_loop: &EventLoop, clock: &ManualClock, by: Duration) {
    clock.advance(by);
    settle(event_loop);
}

/// The result of something that must complete.
#[track_caller]
pub(crate) fn result<T>(completion: Completion<T>) -> Result<T> {
    completion.wait_timeout(PATIENCE).unwrap_or_else(|_| panic!("it does not complete"))
}

/// Holds up a loop until dropped.
pub(crate) struct Gate {
    _open: Sender<()>,
}

impl Gate {
    /// Returns when the loop stands.
    #[track_caller]
    pub(crate) fn shut(event_loop: &EventLoop) -> Self {
        let (open, opened) = channel::<()>();
        let (stands, standing) = channel();
        let task = move || {
            let _ = stands.send(());
            let _ = opened.recv_timeout(PATIENCE);
        };
        event_loop.execute(task).unwrap();
        standing.recv_timeout(PATIENCE).expect("the loop comes to the gate");
        Gate { _open: open }
    }
}

/// What happened, in order.
pub(crate) struct Journal<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Journal<T> {
    fn clone(&self) -> Self {
        Journal(self.0.clone())
    }
}

impl<T: Clone> Journal<T> {
    pub(crate) fn new() -> Self {
        Journal(Arc::default())
    }

    pub(crate) fn push(&self, entry: T) {
        self.0.lock().unwrap().push(entry);
    }

    pub(crate) fn all(&self) -> Vec<T> {
        self.0.lock().unwrap().clone()
    }

    pub(crate) fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }
}

/// What a connection does, on its loop, with what it reads, before it sends it back.
pub(crate) type Action = dyn Fn() -> Result + Send + Sync;

struct Echo {
    action: Arc<Action>,
    silent: bool,
    errors: Sender<Error>,
}

impl Handler for Echo {
    type In = Bytes;
    type Out = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        (self.action)()?;
        if self.silent { Ok(()) } else { ctx.write(message) }
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let _ = self.errors.send(error);
        ctx.close();
        Ok(())
    }
}

/// A server that sends everything back, and what its connections failed with.
pub(crate) fn echo_server(group: &EventLoopGroup) -> (Server, Receiver<Error>) {
    server(group, false, || Ok(()))
}

/// A server that answers nothing.
pub(crate) fn silent_server(group: &EventLoopGroup) -> (Server, Receiver<Error>) {
    server(group, true, || Ok(()))
}

/// A server that sends everything back, with something done at every read.
pub(crate) fn acting_server(
    group: &EventLoopGroup,
    action: impl Fn() -> Result + Send + Sync + 'static,
) -> (Server, Receiver<Error>) {
    server(group, false, action)
}

fn server(
    group: &EventLoopGroup,
    silent: bool,
    action: impl Fn() -> Result + Send + Sync + 'static,
) -> (Server, Receiver<Error>) {
    let (errors, failed) = channel();
    let action: Arc<Action> = Arc::new(action);
    let errors = Mutex::new(errors);
    let server = ServerBootstrap::new(group).pipeline(move |_peer| {
        let errors = errors.lock().unwrap().clone();
        Pipeline::new().codec(RawBytes).handler(Echo { action: action.clone(), silent, errors })
    });
    (server.bind("127.0.0.1:0").unwrap(), failed)
}

/// A connection that does not wait for ever.
#[track_caller]
pub(crate) fn connect(server: &Server) -> TcpStream {
    let stream = TcpStream::connect(server.local_address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

/// One round trip.
#[track_caller]
pub(crate) fn assert_echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").unwrap();
    let mut back = [0; 5];
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}

/// A task that gives itself to the loop again and again, until the returned value is dropped.
pub(crate) fn flood(event_loop: &EventLoop) -> Arc<()> {
    let running = Arc::new(());
    again(event_loop.clone(), Arc::downgrade(&running));
    running
}

fn again(event_loop: EventLoop, running: std::sync::Weak<()>) {
    if running.strong_count() > 0 {
        let me = event_loop.clone();
        let _ = event_loop.execute(move || again(me, running));
    }
}
