//! Work that blocks: where it runs, who gets the answer, what is refused, what becomes of it when nobody wants it any more.

mod answer;
mod on_the_loop;
mod refusals;
mod threads;
mod unwanted;

use crate::support::{
    journal::Log,
    wait::{PATIENCE, done, ms, receive},
};
use bytes::Bytes;
use netwheel::{
    ChannelOptions, ClientBootstrap, Pipeline, WorkerMetrics, WorkerPool,
    codec::Line,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    net::{TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

/// Does as the test says with each line; everything that happens to it is in the journal.
struct Session {
    log: Log,
    act: Box<Act>,
    /// Makes it as little `Send` as handlers are.
    mine: Rc<str>,
}

type Act = dyn FnMut(&mut Context<'_, Session>, &str, &Log) -> Result + Send;

impl Handler for Session {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        (self.act)(ctx, std::str::from_utf8(&line).unwrap(), &self.log)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.log.push(format!("error: {error:#}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.log.push("inactive".to_owned());
        Ok(())
    }
}

fn session(log: &Log, act: Box<Act>) -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).handler(Session { log: log.clone(), act, mine: "mine".into() })
}

fn embedded(
    options: ChannelOptions,
    act: impl FnMut(&mut Context<'_, Session>, &str, &Log) -> Result + Send + 'static,
) -> (EmbeddedChannel<Bytes>, Log) {
    let log = Log::new();
    let pipeline = session(&log, Box::new(act));
    (EmbeddedChannel::with(pipeline, &options, ManualClock::new(), ms(1)).unwrap(), log)
}

/// A channel over loopback whose handler lives on `group`, and the peer.
fn open(
    group: &EventLoopGroup,
    log: &Log,
    act: impl FnMut(&mut Context<'_, Session>, &str, &Log) -> Result + Send + 'static,
) -> (Channel<Bytes>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (log, act): (_, Box<Act>) = (log.clone(), Box::new(act));
    let act = Mutex::new(Some(act));
    let client = ClientBootstrap::new(group)
        .pipeline(move |_| session(&log, act.lock().unwrap().take().expect("one connection")));
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    (channel, listener.accept().unwrap().0)
}

/// Says when it is dropped.
struct Token(Sender<()>);

impl Drop for Token {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn token() -> (Token, Receiver<()>) {
    let (dropped, drops) = channel();
    (Token(dropped), drops)
}

/// Looks at a pool until it is as it has to become.
#[track_caller]
fn until(pool: &WorkerPool, is_so: impl Fn(&WorkerMetrics) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so(&pool.metrics()) {
        assert!(Instant::now() < end, "waited in vain: {:?}", pool.metrics());
        thread::yield_now();
    }
}

/// A pool of one thread, which stands until the answer is dropped.
fn held_up(max_pending: usize) -> (WorkerPool, Sender<()>) {
    let pool = WorkerPool::builder().threads(1).max_pending(max_pending).keep_alive(Duration::MAX);
    let pool = pool.build().unwrap();
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    let hold = move || {
        begun.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
    };
    pool.execute(hold).unwrap();
    receive(&begins);
    (pool, release)
}
