//! An event-loop networking framework for servers with many long-lived connections.
//!
//! It follows Netty's model: event loops, channels, pipelines, handlers, idle detection, scheduled
//! tasks and hashed wheel timers. The compiler checks that the parts of a pipeline fit together.
//! Every queue, buffer and loop has a limit.
//!
//! The shortest server echoes lines:
//!
//! ```no_run
//! use netwheel::{codec::Line, prelude::*};
//!
//! fn main() -> Result {
//!     let group = EventLoopGroup::new()?;
//!     let server = ServerBootstrap::new(&group)
//!         .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
//!         .bind("127.0.0.1:7000")?;
//!     server.closed().wait()
//! }
//! ```
//!
//! # Where to begin
//!
//! - The [`guide`] leads from this program to a server on the open internet.
//! - [`guide::names`] lists the names of Netty, tokio and SwiftNIO with their counterparts here.
//! - [`guide::testing`] shows how to test handlers in virtual time, without sockets.
//!
//! # Main types
//!
//! | type | purpose |
//! |---|---|
//! | [`EventLoopGroup`], [`EventLoop`] | threads that poll sockets, call handlers, and run tasks and timers |
//! | [`ServerBootstrap`], [`ClientBootstrap`], [`DatagramBootstrap`] | builders of servers, client connections and UDP channels |
//! | [`Pipeline`], [`Codec`], [`Stage`], [`Handler`] | the way from bytes to the logic of a program and back |
//! | [`Context`], [`StageContext`] | the channel during a callback: write, schedule, offload, close |
//! | [`Channel`], [`HandlerRef`], [`ChannelGroup`] | handles for other threads and channels |
//! | [`Completion`], [`Completer`] | a result that arrives later: wait for it, await it, or add a callback |
//! | [`timer::HashedWheelTimer`] | a timer for programs without event loops |
//! | `durable::DurableTimers` | timers that survive a restart (feature `durable`) |
//!
//! A handler is created, called and dropped on the loop of its channel. It therefore needs neither
//! locks nor `Send`, and it must not block: see [`Context::offload`] and [`Context::spawn`].
//!
#![doc = include_str!("../docs/features.md")]
// Shows the required feature beside each item on docs.rs, which sets `docsrs` and uses nightly.
#![cfg_attr(docsrs, feature(doc_cfg))]
// Not `forbid`, for the sake of one small module that says why it needs it: `sync::task_cell`.
#![deny(unsafe_code)]
// A run on a manual clock with a seed can be repeated: time and random numbers come from the loops,
// and nothing depends on the order of a hash. Tests may use what clippy.toml lists.
#![cfg_attr(
    not(test),
    warn(clippy::disallowed_methods, clippy::disallowed_types, clippy::iter_over_hash_type)
)]

mod bootstrap;
#[allow(clippy::disallowed_methods, reason = "the one place that reads the time of the system")]
#[allow(clippy::disallowed_types, reason = "`machine::Mutex` is in a higher layer")]
mod clock;
mod event_loop;
mod id;
mod log_throttle;
mod lookup;
mod machine;
mod settings;
#[cfg(any(feature = "durable-sqlite", feature = "broker-sqlite"))]
mod sqlite;
mod sync;
mod transport;

pub mod admission;
#[cfg(feature = "broker")]
pub mod broker;
pub mod buffer;
pub mod channel;
pub mod codec;
pub mod datagram;
#[cfg(feature = "durable")]
pub mod durable;
pub mod error;
pub mod executor;
pub mod group;
#[cfg(feature = "http")]
pub mod http;
pub mod metrics;
pub mod pipeline;
#[cfg(feature = "prometheus")]
pub mod prometheus;
pub mod proxy;
#[cfg(feature = "redis")]
pub mod redis;
pub mod relay;
pub mod stage;
pub mod testing;
pub mod timer;
#[cfg(feature = "tls")]
pub mod tls;
#[cfg(feature = "tower")]
pub mod tower;
#[cfg(feature = "websocket")]
pub mod websocket;
pub mod worker_pool;

/// The crate `bytes`, in the version of this crate's API.
pub use bytes;

pub use bootstrap::{ClientBootstrap, DatagramBootstrap, Server, ServerBootstrap};
pub use channel::{
    core::links::Pipeline,
    group::ChannelGroup,
    handle::Channel,
    peer::Peer,
    watch::{IdleEvent, IdleState, IdleTimeouts},
};
pub use error::{
    error::{Error, Result},
    send_error::SendError,
};
pub use event_loop::EventLoop;
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

/// Byte filters: transformations between a channel's socket and its codec.
///
/// A [`Filter`](filter::Filter) sees the bytes of the wire below it, and the plaintext above it. It
/// does no I/O: it is given received bytes, and the bytes that it produces are sent. TLS
/// (`ServerBootstrap::tls`) and the PROXY protocol are filters. Filters belong to the channel, so
/// they survive a replaced pipeline. [`ServerBootstrap::filter`](crate::ServerBootstrap::filter)
/// and [`ClientBootstrap::filter`](crate::ClientBootstrap::filter) add one to each connection;
/// several filters stack, the first one next to the socket.
///
/// # What the channel does
/// - Nothing of the program is called before every filter is established: the pipeline is made
///   then, and `active` is called. A handshake that fails, or takes longer than
///   `handshake_timeout`, closes the channel. A client's `connect` fails with its cause.
/// - Outbound messages stay plaintext until they are flushed. Limits, water marks, and the messages
///   dropped for a slow peer, count plaintext. At most 64 KiB of sealed bytes wait for the socket.
///   [`write_tracked`](crate::Channel::write_tracked) completes when the kernel has taken the
///   sealed bytes.
/// - Idle times, traffic limits and byte counters measure the wire. Bytes that are kept for filters
///   have the limit `max_inbound`, but not less than 80 KiB.
/// - After an error nothing is opened any more. What the filter has sent (an alert) is written, and
///   then the channel fails.
pub mod filter {
    pub use crate::channel::filter::{Filter, FilterContext, FilterState, FilterWaker};
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
    #[cfg(feature = "http")]
    pub use crate::bootstrap::{HttpAgent, HttpAgentBuilder, PoolRequest};
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
        channel::timers::{Delay, MissedRuns, Periodic, ScheduledTask},
        clock::{Clock, SystemClock},
        machine::default_clock,
    };
}

/// Limits on the bytes per second that channels move.
pub mod traffic {
    pub use crate::channel::shaping::{SharedTraffic, TrafficLimits, TrafficShaping};
}

#[cfg(any(doc, doctest))]
#[allow(rustdoc::invalid_rust_codeblocks, reason = "excerpts of programs end in the middle of an item")]
pub mod guide;

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
