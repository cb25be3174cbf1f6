//! Thread safety of the public types: handles may cross threads, while everything inside a channel
//! stays on its loop.
//!
//! Nothing here runs: the assertions hold if this file compiles.

use netwheel::{
    Channel, ChannelContext, ChannelGroup, ChannelId, ClientBootstrap, Completion, Context, Error, EventLoop,
    EventLoopGroup, Handler, IdleEvent, IdleTimeouts, Peer, Pipeline, Result, SendError, Server,
    ServerBootstrap, StageContext,
    buffer::{OutboundBuffer, WaterMark},
    channel::{Attributes, ChannelOptions, ChannelStats, TaskKey, WireLog},
    group::{EventLoopGroupBuilder, ManualEventLoop},
    metrics::{Histogram, LoopMetrics},
    net::TcpOptions,
    stage::Heartbeat,
    testing::{EmbeddedChannel, ManualClock},
    time::ScheduledTask,
    timer::{ScheduledQueue, Wheel},
    worker_pool::{WorkerMetrics, WorkerPool},
};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::{cell::Cell, hash::Hash, rc::Rc};

/// A message type that cannot leave its thread.
type Local = Rc<Cell<u32>>;

struct Pinned(#[allow(dead_code, reason = "makes the handler stay on its thread")] Local);

impl Handler for Pinned {
    type Read = Local;
    type Write = Local;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Local) -> Result {
        ctx.write(message)
    }
}

// Handles cross threads and can be shared.
assert_impl_all!(EventLoop: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(EventLoopGroup: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(EventLoopGroupBuilder: Send, Sync, Clone);
assert_impl_all!(WorkerPool: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Server: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(Channel<String>: Send, Sync, Clone, Eq, Hash, std::fmt::Debug);
// A handle is `Send` even if its messages are not. Such a handle supports everything except
// `write`.
assert_impl_all!(Channel<Local>: Send, Sync, Clone, Eq, Hash);
assert_impl_all!(ChannelGroup<String>: Send, Sync, Clone, Default, std::fmt::Debug);
assert_impl_all!(ChannelGroup<Local>: Send, Sync, Clone);
assert_impl_all!(ScheduledTask<String>: Send, Sync);
#[cfg(unix)]
assert_impl_all!(netwheel::event_source::SourceHandle<String>: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(ChannelId: Send, Sync, Copy, Ord, Hash);
assert_impl_all!(TaskKey: Send, Sync, Copy, Eq, Hash);
assert_impl_all!(ManualClock: Send, Sync, Clone);

// A completion carries its value to another thread. It can be waited for and polled.
assert_impl_all!(Completion<()>: Send, Sync, Unpin, std::future::Future);
assert_impl_all!(Completion<Channel<Local>>: Send, Sync);
assert_not_impl_any!(Completion<Local>: Send, Sync);
assert_not_impl_any!(Completion<()>: Clone);

// Errors can cross threads and be boxed.
assert_impl_all!(Error: Send, Sync, std::error::Error);
assert_impl_all!(SendError<String>: Send, Sync, std::error::Error);
assert_not_impl_any!(SendError<Local>: Send, Sync);

// Snapshots that other threads can request.
assert_impl_all!(ChannelStats: Send, Sync, Copy, Eq);
assert_impl_all!(WorkerMetrics: Send, Sync, Copy, Eq);

// Settings are plain values.
assert_impl_all!(WireLog: Send, Sync, Clone);
assert_impl_all!(ChannelOptions: Send, Sync, Clone);
assert_impl_all!(TcpOptions: Send, Sync, Clone);
assert_impl_all!(WaterMark: Send, Sync, Copy);
assert_impl_all!(IdleTimeouts: Send, Sync, Copy);
assert_impl_all!(IdleEvent: Send, Sync, Copy);
assert_impl_all!(LoopMetrics: Send, Sync, Clone);
assert_impl_all!(Histogram: Send, Sync, Clone);
assert_impl_all!(Peer: Send, Sync, Clone);
assert_impl_all!(ServerBootstrap: Send, Sync, Clone);
assert_impl_all!(ClientBootstrap: Send, Sync, Clone);
assert_impl_all!(OutboundBuffer: Send, Sync);
assert_impl_all!(Wheel<u64>: Send, Sync);
assert_impl_all!(ScheduledQueue<u64>: Send, Sync);

// Everything inside a channel stays on its loop, even if its messages are `Send`.
assert_not_impl_any!(Pipeline<String>: Send, Sync);
assert_not_impl_any!(Context<'static, Pinned>: Send, Sync);
assert_not_impl_any!(ChannelContext<'static, String>: Send, Sync);
assert_not_impl_any!(StageContext<'static, Heartbeat<String, String, fn() -> String>>: Send, Sync);
assert_not_impl_any!(EmbeddedChannel<String>: Send, Sync);
assert_not_impl_any!(Attributes: Send, Sync);

// E-32: a manually driven loop stays on its owner's thread. Its handles need not.
assert_not_impl_any!(ManualEventLoop: Send, Sync, Clone);

/// A pipeline factory crosses threads while its handler does not. This must compile.
#[test]
fn a_factory_may_create_a_handler_that_is_not_send() {
    struct Same;
    impl netwheel::Codec for Same {
        type Read = Local;
        type Write = Local;
        fn decode(&mut self, _: &mut bytes::Bytes) -> Result<Option<Local>> {
            Ok(None)
        }
        fn encode(&mut self, message: Local, output: &mut OutboundBuffer) -> Result {
            output.put_u32(message.get());
            Ok(())
        }
    }
    fn factory() -> impl Fn(&Peer) -> Pipeline<Local> + Send + Sync + 'static {
        |_| netwheel::Pipeline::codec(Same).handler(Pinned(Rc::default()))
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let _bound = ServerBootstrap::new(&group).pipeline(factory());
    let _connecting = ClientBootstrap::new(&group).pipeline(factory());
    let mut channel = EmbeddedChannel::new(netwheel::Pipeline::codec(Same).handler(Pinned(Rc::default())));
    let handle = channel.channel();
    std::thread::spawn(move || handle.execute(|scope| scope.write(Rc::new(Cell::new(7)))).unwrap())
        .join()
        .unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), &[0, 0, 0, 7][..]);
}
