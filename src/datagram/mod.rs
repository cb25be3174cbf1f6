//! Datagram channels: UDP on an event loop.
//!
//! A core of its own beside that of streams: a datagram is whole or not there, has an address, and may be lost, so there is
//! nothing to decode, to gather or to order behind a slow peer. Shared with streams are loop, timers, poll, guard and
//! shutdown.
//!
//! [`DatagramHandler`] is what the program writes, [`DatagramContext`] and [`DatagramScope`] what it is given,
//! [`DatagramChannel`] the handle for other threads. `source` is the loop's side: socket, reads, writes, the end; `state` what
//! a scope works on; `queue` what waits for the kernel.

mod config;
mod context;
mod handle;
mod handler;
mod queue;
mod scope;
mod shared;
mod source;
mod state;

pub(crate) use config::DatagramConfig;
pub use context::DatagramContext;
pub use handle::DatagramChannel;
pub use handler::DatagramHandler;
pub(crate) use handler::{DatagramLinks, TypedHandler};
pub use scope::DatagramScope;
pub(crate) use shared::{DatagramGuard, DatagramShared};
pub(crate) use source::Opening;
