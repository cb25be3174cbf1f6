//! Transports: what carries a channel's bytes.
//!
//! With `event_loop` and `datagram` this is the only place that names mio and socket2. Everything here is non-blocking and runs
//! on the loop that owns the socket, except opening one, which may happen on any thread.

mod address;
mod adoptable;
mod listener;
mod listener_options;
mod options;
#[cfg(unix)]
mod socket_file;
pub(crate) mod socket_options;
mod stream;
mod tcp;
mod udp;
#[cfg(unix)]
pub(crate) mod unix;
#[cfg(unix)]
mod unix_address;

pub(crate) use address::Resolve;
pub use address::{Address, Endpoint};
pub use adoptable::Adoptable;
pub(crate) use listener::Listener;
pub use listener_options::ListenerOptions;
pub use options::TcpOptions;
#[cfg(unix)]
pub(crate) use socket_file::SocketFile;
pub(crate) use stream::Stream;
pub(crate) use udp::UdpSocket;
pub use udp::{MulticastGroup, UdpOptions};
#[cfg(unix)]
pub use unix_address::UnixAddress;
