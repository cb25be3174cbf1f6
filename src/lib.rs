//! An event-loop networking framework: event loops, channels, typed pipelines, idle detection, timers.
//!
//! A program registers listeners and connections with an [`EventLoopGroup`]. Each [`EventLoop`] is one thread that
//! turns for ever: poll, ready I/O, tasks within the budget that ioRatio gives, due timers, flush. A connection is
//! a [`Channel`] with a [`Pipeline`] of links whose types have to meet, and a [`Handler`] at its end that lives and
//! dies on one loop, so it needs no lock.
//!
//! ```no_run
//! use netwheel::{codec::LengthField, prelude::*};
//! use std::time::Duration;
//!
//! struct Echo;
//!
//! impl Handler for Echo {
//!     type Read = bytes::Bytes;
//!     type Write = bytes::Bytes;
//!
//!     fn read(&mut self, ctx: &mut Context<'_, Self>, frame: bytes::Bytes) -> Result {
//!         ctx.write(frame)
//!     }
//!
//!     fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
//!         ctx.close();
//!         Ok(())
//!     }
//! }
//!
//! fn main() -> Result {
//!     let group = EventLoopGroup::builder().threads(2).build()?;
//!     let server = ServerBootstrap::new(&group)
//!         .pipeline(|_peer| {
//!             Pipeline::codec(LengthField::u32().max_len(64 * 1024))
//!                 .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
//!                 .handler(Echo)
//!         })
//!         .bind("127.0.0.1:7000")?;
//!     server.closed().wait()
//! }
//! ```
//!
//! [`ServerBootstrap`] and [`ClientBootstrap`] speak TCP and Unix sockets (`UnixAddress`); [`DatagramBootstrap`] speaks UDP.
//!
//! # Features
//!
//! - `json`: the [`stage::Json`](crate::stage) stage.
//! - `tokio`: `tokio::runtime::Handle` is an executor ([`Spawn`]) for [`Context::spawn`].
//! - `prometheus`: what loops count, in the text format of Prometheus.
//!
//! Features only add.

// Not `forbid`, for the sake of one small module that says why it needs it: `sync::task_cell`.
#![deny(unsafe_code)]
// A run on a manual clock with a seed can be repeated: time and random numbers come from the loops, and
// nothing depends on the order of a hash. Tests may use what clippy.toml lists.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::iter_over_hash_type))]

mod bootstrap;
mod datagram;
mod event_loop;
mod group;
#[cfg(feature = "prometheus")]
pub mod prometheus;

mod transport;

pub mod codec;
mod relay;
pub mod stage;
pub mod testing;

mod channel;
pub mod pipeline;

mod admission;
pub mod buffer;
mod metrics;
mod sync;
pub mod timer;
mod worker_pool;

#[allow(clippy::disallowed_methods, reason = "the one place that reads the time of the system")]
mod clock;
mod error;
mod executor;
mod id;
mod log_throttle;
mod settings;

pub use admission::{Admission, IpFilter, IpRule, RejectReason, Rejection};
pub use bootstrap::{
    AcquireTimeout, Backoff, ChannelPool, ChannelPoolBuilder, ClientBootstrap, DatagramBootstrap, PoolOrder,
    PooledChannel, ReconnectBuilder, ReconnectEvent, ReconnectingChannel, Server, ServerBootstrap,
};
pub use channel::{
    Attributes, Broadcast, BroadcastReport, Channel, ChannelGroup, ChannelGroupBuilder, ChannelOptions,
    ChannelStats, IdleEvent, IdleState, IdleTimeouts, InputGuard, Overflow, SharedTraffic, TaskKey,
    TimeLimits, TrafficLimits, TrafficShaping, WireLog,
};
#[cfg(any(target_os = "linux", target_os = "android"))]
pub use clock::BootClock;
pub use clock::{Clock, SystemClock};
pub use datagram::{DatagramChannel, DatagramContext, DatagramHandler, DatagramScope};
pub use error::{BoxError, EncodeError, Error, PeerError, Resource, Result, SendError, SettingError};
pub use event_loop::{
    EventLoop, MissedRuns, Peer, Periodic, PollRebuild, RebuildCause, ScheduledTask, ShutdownOptions,
    ShutdownReport, Stall, Watchdog,
};
#[cfg(unix)]
pub use event_loop::{Interest, Readiness, SourceAction, SourceContext, SourceHandle};
pub use executor::Spawn;
pub use group::{
    Chooser, EventLoopGroup, EventLoopGroupBuilder, LeastConnections, LeastLag, ManualEventLoop, RoundRobin,
};
pub use id::ChannelId;
pub use metrics::{Histogram, LoopMetrics};
pub use pipeline::{AnyHandler, ChannelContext, Context, Handler, HandlerRef, Pipeline};
pub use relay::Relay;
pub use sync::{Completer, Completion, Phase};
#[cfg(unix)]
pub use transport::UnixAddress;
pub use transport::{
    Address, IntoListener, ListenerOptions, MulticastGroup, TcpOptions, ToAddress, UdpOptions,
};
pub use worker_pool::{WorkerMetrics, WorkerPool, WorkerPoolBuilder};

#[cfg(any(doc, doctest))]
pub mod guide;

/// The README's code, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../docs/observability.md")]
struct Observability;

/// What most programs use, for `use netwheel::prelude::*`.
pub mod prelude {
    pub use crate::{
        Channel, ChannelGroup, ClientBootstrap, Completion, Context, Error, EventLoop, EventLoopGroup,
        Handler, IdleEvent, IdleState, IdleTimeouts, Pipeline, Result, Server, ServerBootstrap, TcpOptions,
    };
}
