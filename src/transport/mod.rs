//! Transports: what carries a channel's bytes.
//!
//! With `event_loop` this is the only place that names mio and socket2. Everything here is non-blocking and runs
//! on the loop that owns the socket, except opening one, which may happen on any thread.

mod listener;
mod listener_options;
mod options;
mod stream;
pub(crate) mod tcp;

pub(crate) use listener::Listener;
pub use listener_options::ListenerOptions;
pub use options::TcpOptions;
pub(crate) use stream::Stream;
