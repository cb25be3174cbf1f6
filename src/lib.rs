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
//! - `tokio`: `tokio::runtime::Handle` is an executor ([`Spawn`](crate::executor::Spawn)) for [`Context::spawn`].
//! - `prometheus`: what loops count, in the text format of Prometheus.
//!
//! Features only add.

// Not `forbid`, for the sake of one small module that says why it needs it: `sync::task_cell`.
#![deny(unsafe_code)]
// A run on a manual clock with a seed can be repeated: time and random numbers come from the loops, and
// nothing depends on the order of a hash. Tests may use what clippy.toml lists.
#![cfg_attr(not(test), warn(clippy::disallowed_methods, clippy::iter_over_hash_type))]

mod bootstrap;
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time of the system")]
mod clock;
mod event_loop;
mod id;
mod log_throttle;
mod settings;
mod sync;
mod transport;

pub mod admission;
pub mod buffer;
pub mod channel;
pub mod codec;
pub mod datagram;
pub mod error;
pub mod executor;
pub mod group;
pub mod metrics;
pub mod pipeline;
#[cfg(feature = "prometheus")]
pub mod prometheus;
pub mod relay;
pub mod stage;
pub mod testing;
pub mod timer;
pub mod worker_pool;

pub use bootstrap::{ClientBootstrap, DatagramBootstrap, Server, ServerBootstrap};
pub use channel::{
    group::ChannelGroup,
    handle::Channel,
    links::Pipeline,
    watch::{IdleEvent, IdleState, IdleTimeouts},
};
pub use error::{
    error::{Error, Result},
    send_error::SendError,
};
pub use event_loop::{EventLoop, Peer};
pub use group::event_loop_group::EventLoopGroup;
pub use id::ChannelId;
pub use pipeline::{
    codec::Codec,
    handler::{ChannelContext, Context, Handler},
    handler_ref::HandlerRef,
    stage::{Stage, StageContext},
};
pub use sync::{Completer, Completion};

/// Reports of loops that do not make progress: the watchdog, the phases of a turn, rebuilt polls.
pub mod diagnostics {
    pub use crate::{
        event_loop::{PollRebuild, RebuildCause, Stall, Watchdog},
        sync::LoopPhase,
    };
}

/// Event sources: a program's own file descriptors, polled by an event loop.
///
/// [`EventLoop::register`](crate::EventLoop::register) adds one.
#[cfg(unix)]
pub mod event_source {
    pub use crate::event_loop::{Interest, Readiness, SourceAction, SourceContext, SourceHandle};
}

/// Addresses, and options of sockets and listeners.
pub mod net {
    #[cfg(unix)]
    pub use crate::transport::UnixAddress;
    pub use crate::transport::{
        Address, IntoListener, ListenerOptions, MulticastGroup, TcpOptions, ToAddress, UdpOptions,
    };
}

/// Pools of client connections.
pub mod pool {
    pub use crate::bootstrap::{AcquireTimeout, ChannelPool, ChannelPoolBuilder, PoolOrder, PooledChannel};
}

/// Client connections that are restored when they break.
pub mod reconnect {
    pub use crate::bootstrap::{Backoff, ReconnectBuilder, ReconnectEvent, ReconnectingChannel};
}

/// Options and results of a graceful shutdown.
pub mod shutdown {
    pub use crate::event_loop::{ShutdownOptions, ShutdownReport};
}

/// Clocks, and the delays and periods of scheduled tasks.
pub mod time {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub use crate::clock::BootClock;
    pub use crate::{
        channel::timers::Delay,
        clock::{Clock, SystemClock},
        event_loop::{MissedRuns, Periodic, ScheduledTask},
    };
}

/// Limits on the bytes per second that channels move.
pub mod traffic {
    pub use crate::channel::shaping::{SharedTraffic, TrafficLimits, TrafficShaping};
}

/// The README's code, compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// Likewise.
#[cfg(doctest)]
#[doc = include_str!("../docs/observability.md")]
struct Observability;

/// The items of the crate root, for `use netwheel::prelude::*`.
pub mod prelude {
    pub use crate::{
        Channel, ChannelContext, ChannelGroup, ChannelId, ClientBootstrap, Codec, Completer, Completion,
        Context, DatagramBootstrap, Error, EventLoop, EventLoopGroup, Handler, HandlerRef, IdleEvent,
        IdleState, IdleTimeouts, Peer, Pipeline, Result, SendError, Server, ServerBootstrap, Stage,
        StageContext,
    };
}
