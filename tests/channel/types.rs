//! Which types may cross threads: what crosses is a handle, what belongs to a channel stays on its loop.
//!
//! Nothing here runs: the assertions hold if this file compiles.

use netwheel::{
    Attributes, Channel, ChannelGroup, ChannelId, ChannelOptions, ChannelStats, ClientBootstrap, Completion,
    Context, Error, EventLoop, EventLoopGroup, EventLoopGroupBuilder, Handler, Histogram, IdleEvent,
    IdleTimeouts, LoopMetrics, ManualEventLoop, Peer, Pipeline, Result, ScheduledTask, Scope, SendError,
    Server, ServerBootstrap, TaskKey, TcpOptions, WireLog, WorkerMetrics, WorkerPool,
    buffer::{OutboundBuffer, WaterMark},
    pipeline::StageContext,
    testing::{EmbeddedChannel, ManualClock},
    timer::{ScheduledQueue, Wheel},
};
use static_assertions::{assert_impl_all, assert_not_impl_any};
use std::{cell::Cell, hash::Hash, rc::Rc};

/// A message and a handler that must not leave their thread.
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
// Even where the messages do not: such a handle can do everything but `write`.
assert_impl_all!(Channel<Local>: Send, Sync, Clone, Eq, Hash);
assert_impl_all!(ChannelGroup<String>: Send, Sync, Clone, Default, std::fmt::Debug);
assert_impl_all!(ChannelGroup<Local>: Send, Sync, Clone);
assert_impl_all!(ScheduledTask<String>: Send, Sync);
#[cfg(unix)]
assert_impl_all!(netwheel::SourceHandle<String>: Send, Sync, Clone, std::fmt::Debug);
assert_impl_all!(ChannelId: Send, Sync, Copy, Ord, Hash);
assert_impl_all!(TaskKey: Send, Sync, Copy, Eq, Hash);
assert_impl_all!(ManualClock: Send, Sync, Clone);

// A completion carries its value across; it can be waited for, and be polled.
assert_impl_all!(Completion<()>: Send, Sync, Unpin, std::future::Future);
assert_impl_all!(Completion<Channel<Local>>: Send, Sync);
assert_not_impl_any!(Completion<Local>: Send, Sync);
assert_not_impl_any!(Completion<()>: Clone);

// Errors can go anywhere, and be boxed with all others.
assert_impl_all!(Error: Send, Sync, std::error::Error);
assert_impl_all!(SendError<String>: Send, Sync, std::error::Error);
assert_not_impl_any!(SendError<Local>: Send, Sync);

// Values of a channel that may be asked for elsewhere.
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
assert_impl_all!(Peer: Send, Sync, Copy);
assert_impl_all!(ServerBootstrap: Send, Sync, Clone);
assert_impl_all!(ClientBootstrap: Send, Sync, Clone);
assert_impl_all!(OutboundBuffer: Send, Sync);
assert_impl_all!(Wheel<u64>: Send, Sync);
assert_impl_all!(ScheduledQueue<u64>: Send, Sync);

// What belongs to a channel stays on its loop, whatever its messages are.
assert_not_impl_any!(Pipeline<String>: Send, Sync);
assert_not_impl_any!(Context<'static, Pinned>: Send, Sync);
assert_not_impl_any!(Scope<'static, String>: Send, Sync);
assert_not_impl_any!(StageContext<'static, String>: Send, Sync);
assert_not_impl_any!(EmbeddedChannel<String>: Send, Sync);
assert_not_impl_any!(Attributes: Send, Sync);

// E-32: a loop that is driven by hand stays with its owner's thread; its handles do not have to.
assert_not_impl_any!(ManualEventLoop: Send, Sync, Clone);

/// A pipeline factory crosses threads, the handler that it makes does not: this must compile.
#[test]
fn a_factory_may_make_what_cannot_be_sent() {
    struct Same;
    impl netwheel::pipeline::Codec for Same {
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
