//! Transports: the sockets that carry a channel's bytes.
//!
//! With `event_loop` and `datagram` this is the only module that uses mio and socket2. `Stream` and
//! `Listener` are enums; the match on the kind is the only difference on the path of a byte. A Unix
//! peer has no IP address: whatever is keyed by address (filters, limits per address,
//! `peer_address`) ignores it, and whatever counts connections counts it.
//!
//! An address that can be bound or connected is a type, `ToAddress`. `Server<A>` reports its address
//! as the matching type: a TCP server returns a `SocketAddr` without an `Option`, a Unix server a
//! `UnixAddress`, and a server whose transport is chosen at run time an `Address`.
//!
//! On Linux `recvfrom`, `sendto` and `sendmsg` are called without the C library, whose functions
//! are cancellation points and cost two locked instructions each in a process with several threads.
//! Code that is preloaded in front of that library (`LD_PRELOAD`) does not see these calls; strace
//! does. A build with `RUSTFLAGS="--cfg rustix_use_libc"` uses the C library.
//!
//! Everything here is non-blocking and runs on the loop that owns the socket, except opening a
//! socket, which may happen on any thread.

mod address;
mod adoptable;
mod listener;
mod options;
mod stream;
mod tcp;
mod udp;
#[cfg(unix)]
pub(crate) mod unix;

pub(crate) use address::Resolve;
pub use address::{Address, ToAddress};
pub use adoptable::IntoListener;
pub(crate) use listener::Listener;
pub(crate) use options::socket_options;
pub use options::{ListenerOptions, TcpOptions};
pub(crate) use stream::Stream;
pub(crate) use udp::UdpSocket;
pub use udp::{MulticastGroup, UdpOptions};
#[cfg(unix)]
pub use unix::UnixAddress;
