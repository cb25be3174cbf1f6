//! Datagram channels: UDP on an event loop.
//!
//! A datagram is whole or absent, has an address, and may be lost. So there is nothing to decode or to
//! gather, and the core of a datagram channel is separate from that of streams. The loop knows datagram
//! channels as sources ([`Source`](crate::event_loop::Source)), like listeners.
//!
//! [`DatagramHandler`] is the program's part, [`DatagramContext`] and [`DatagramScope`] are its view of the
//! channel, [`DatagramChannel`] is the handle for other threads. `source` is the loop's side, with `io`
//! and `callbacks`; `state` is what a scope works on; `queue` holds datagrams that wait for the kernel;
//! `shared` is what the handles share with the loop.

mod callbacks;
mod config;
mod context;
mod handle;
mod handler;
mod io;
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
pub(crate) use source::NewDatagramChannel;
