//! Offloaded work: where it runs, which handler receives the result, when it is refused, and when
//! it is dropped because its channel is gone.

mod answer;
mod on_the_loop;
mod refusals;
mod threads;
mod unwanted;

use crate::support::{
    journal::Log,
    wait::{PATIENCE, done, receive, wait_until_or},
};
use bytes::Bytes;
use netwheel::{
    ClientBootstrap, Pipeline,
    channel::ChannelOptions,
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
    worker_pool::{WorkerMetrics, WorkerPool},
};
use std::{
    net::{TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// Calls `act` for each line, and records its callbacks in the journal.
struct Session {
    log: Log,
    act: Box<Act>,
    /// Makes the handler `!Send`, as handlers may be.
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
    (EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap(), log)
}

/// Returns a channel over loopback whose handler runs on `group`, and the peer.
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

/// Sends a message when it is dropped.
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

/// Polls the metrics of a pool until they satisfy `is_so`.
#[track_caller]
fn until(pool: &WorkerPool, is_so: impl Fn(&WorkerMetrics) -> bool) {
    wait_until_or(|| format!("{:?}", pool.metrics()), || is_so(&pool.metrics()));
}

/// Returns a pool with one thread, which is blocked until the sender is dropped.
fn held_up(max_pending: usize) -> (WorkerPool, Sender<()>) {
    let pool = WorkerPool::builder().threads(1).max_pending(max_pending).idle_timeout(Duration::MAX);
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
