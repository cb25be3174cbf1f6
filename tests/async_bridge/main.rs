//! Async code on tokio and handlers on event loops: completions that are awaited, futures that are
//! spawned, writes with backpressure.

#[path = "../support/mod.rs"]
mod support;

mod dropped_waits;
#[cfg(feature = "tower")]
mod tower;

use bytes::Bytes;
use netwheel::{
    Completer, Error, EventLoopGroup, HandlerRef, buffer::WaterMark, channel::ChannelOptions, codec::Line,
    prelude::*,
};
use std::{
    future::{Future, poll_fn},
    io::Read,
    net::TcpListener,
    pin::pin,
    sync::{
        Mutex,
        mpsc::{Sender, channel},
    },
    task::Poll,
    thread,
};
use support::wait::{done, receive};
use tokio::runtime::{Builder, Runtime};

fn runtime() -> Runtime {
    Builder::new_current_thread().build().unwrap()
}

/// Polls `future` once.
async fn poll_once<F: Future>(future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending => Poll::Ready(None),
    })
    .await
}

/// A runtime whose thread runs tasks until the returned value is dropped.
struct Executor {
    handle: tokio::runtime::Handle,
    stop: Option<tokio::task::AbortHandle>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Executor {
    fn start() -> Self {
        let runtime = runtime();
        let handle = runtime.handle().clone();
        let forever = runtime.spawn(std::future::pending::<()>());
        let stop = Some(forever.abort_handle());
        let thread = thread::spawn(move || {
            let _ = runtime.block_on(forever);
        });
        Executor { handle, stop, thread: Some(thread) }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        self.stop.take().unwrap().abort();
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Completes a stored completer when a line arrives. Sends its own reference when it is active.
struct Asked {
    pending: Vec<Completer<Bytes>>,
    ready: Sender<HandlerRef<Asked>>,
}

impl Handler for Asked {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.ready.send(ctx.handler_ref()).map_err(Error::other)
    }

    fn read(&mut self, _: &mut Context<'_, Self>, line: Bytes) -> Result {
        if let Some(completer) = self.pending.pop() {
            completer.complete(Ok(line));
        }
        Ok(())
    }
}

fn ask(asked: &HandlerRef<Asked>) -> netwheel::Completion<Bytes> {
    asked.request(|me, ctx, completer| {
        me.pending.push(completer);
        ctx.write("question".into())
    })
}

/// A client of a server that echoes lines.
fn connect(group: &EventLoopGroup) -> (Server, Channel<Bytes>, HandlerRef<Asked>) {
    let server = ServerBootstrap::new(group)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(support::servers::Echo))
        .bind("127.0.0.1:0")
        .unwrap();
    let (ready, references) = channel();
    let client = ClientBootstrap::new(group).pipeline(move |_| {
        Pipeline::codec(Line::new()).handler(Asked { pending: Vec::new(), ready: ready.clone() })
    });
    let channel = done(client.connect(server.local_address())).unwrap();
    (server, channel, receive(&references))
}

#[test]
fn a_loop_wakes_a_task_that_awaits_its_completion() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (_server, channel, asked) = connect(&group);
    let answers = runtime().block_on(async {
        let mut answers = Vec::new();
        for _ in 0..100 {
            answers.push(ask(&asked).await.unwrap());
        }
        answers
    });
    assert!(answers.iter().all(|answer| answer == "question"));
    runtime().block_on(async {
        channel.close();
        channel.closed().await.unwrap();
        assert!(matches!(ask(&asked).await, Err(Error::Closed)));
    });
}

#[test]
fn dropping_an_awaited_completion_cancels_the_request() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (_server, _channel, asked) = connect(&group);
    let (sender, cancelled) = channel();
    runtime().block_on(async {
        let request = asked.request(move |me, _, mut completer| {
            completer.on_cancel(move || sender.send(()).unwrap());
            me.pending.push(completer);
            Ok(())
        });
        asked.call(|_, _| Ok(())).await.unwrap();
        assert!(poll_once(request).await.is_none(), "pending, and dropped like by a timeout");
    });
    receive(&cancelled);
}

/// Spawns futures with the hook for each line.
struct Spawning(Box<Hook>);

type Hook = dyn FnMut(&mut Context<'_, Spawning>, Bytes) -> Result + Send;

impl Handler for Spawning {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        (self.0)(ctx, line)
    }
}

/// A channel whose handler runs `hook` for each line from the returned peer.
fn serve(
    group: &EventLoopGroup,
    hook: impl FnMut(&mut Context<'_, Spawning>, Bytes) -> Result + Send + 'static,
) -> (Channel<Bytes>, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let hook = Mutex::new(Some(Spawning(Box::new(hook))));
    let client = ClientBootstrap::new(group).pipeline(move |_| {
        Pipeline::codec(Line::new()).handler(hook.lock().unwrap().take().expect("one connection"))
    });
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    (channel, listener.accept().unwrap().0)
}

#[test]
fn the_output_of_a_spawned_future_comes_back_over_sockets() {
    let executor = Executor::start();
    let group = EventLoopGroup::builder().threads(1).executor(executor.handle.clone()).build().unwrap();
    let (channel, mut peer) = serve(&group, |ctx, line| {
        let event_loop = thread::current().id();
        let work = async move {
            tokio::task::yield_now().await;
            assert_ne!(thread::current().id(), event_loop);
            line.to_ascii_uppercase()
        };
        ctx.spawn(work, move |_, ctx, output| {
            assert_eq!(thread::current().id(), event_loop);
            ctx.write(output?.into())
        })?;
        Ok(())
    });
    std::io::Write::write_all(&mut peer, b"hello\n").unwrap();
    let mut answer = [0; 6];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"HELLO\n");
    channel.close_now();
}

#[test]
fn a_closed_channel_drops_its_spawned_future() {
    /// Reports the drop of the future that owns it.
    struct Dropped(Sender<()>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    let executor = Executor::start();
    let group = EventLoopGroup::builder().threads(1).executor(executor.handle.clone()).build().unwrap();
    let ((started, starts), (sender, drops)) = (channel(), channel());
    let (channel, mut peer) = serve(&group, move |ctx, _| {
        let (started, dropped) = (started.clone(), Dropped(sender.clone()));
        let endless = async move {
            started.send(()).unwrap();
            std::future::pending::<()>().await;
            drop(dropped);
        };
        ctx.spawn(endless, |_, _, _| Ok(()))?;
        Ok(())
    });
    std::io::Write::write_all(&mut peer, b"x\n").unwrap();
    receive(&starts);
    assert!(drops.try_recv().is_err());
    channel.close();
    receive(&drops);
}

#[test]
fn a_runtime_that_has_shut_down_cancels_futures() {
    let executor = Executor::start();
    let handle = executor.handle.clone();
    drop(executor);
    let group = EventLoopGroup::builder().threads(1).executor(handle).build().unwrap();
    let (sender, outputs) = channel();
    let (_channel, mut peer) = serve(&group, move |ctx, _| {
        let sender = sender.clone();
        ctx.spawn(async {}, move |_, _, output| sender.send(output).map_err(Error::other))?;
        Ok(())
    });
    std::io::Write::write_all(&mut peer, b"x\n").unwrap();
    assert!(matches!(receive(&outputs), Err(Error::Cancelled)));
}

#[test]
fn sends_are_paced_by_a_peer_that_reads_late() {
    const MESSAGES: usize = 1000;
    const LEN: usize = 16 * 1024;
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let options = ChannelOptions::new().water_mark(WaterMark::new(16 * 1024, 32 * 1024).unwrap());
    let options = options.max_outbound(64 * 1024);
    let client = ClientBootstrap::new(&group)
        .channel_options(options)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(support::servers::Quiet));
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    let mut peer = listener.accept().unwrap().0;
    let (go, may_read) = std::sync::mpsc::channel();
    let reader = thread::spawn(move || {
        receive(&may_read);
        let mut all = Vec::new();
        peer.read_to_end(&mut all).unwrap();
        all.len()
    });
    runtime().block_on(async {
        let mut waited = false;
        for n in 0..MESSAGES {
            let mut send = pin!(channel.send(Bytes::from(vec![b'.'; LEN])));
            let sent = match poll_once(send.as_mut()).await {
                Some(sent) => sent,
                None => {
                    if !waited {
                        waited = true;
                        go.send(()).unwrap();
                    }
                    send.await
                }
            };
            assert!(sent.is_ok(), "message {n} of {MESSAGES}");
        }
        assert!(waited, "the peer does not read before a send waits");
    });
    channel.close();
    assert_eq!(reader.join().unwrap(), MESSAGES * (LEN + 1));
}
