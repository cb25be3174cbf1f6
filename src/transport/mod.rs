//! Transports: the sockets that carry a channel's bytes.
//!
//! Besides `event_loop` and `datagram`, only this module uses mio and socket2. `Stream` and
//! `Listener` are enums, and the match on the kind is the only difference in the data path. A Unix
//! peer has no IP address. Features keyed by address (filters, limits per address, `peer_address`)
//! ignore it, but connection limits count it.
//!
//! An `ToAddress` is a type of address that can be bound or connected. `Server<A>` reports its
//! address as the matching type. A TCP server returns a `SocketAddr`, a Unix server a
//! `UnixAddress`, and a server whose transport is chosen at run time an `Address`.
//!
//! On Linux `recvfrom`, `sendto` and `sendmsg` bypass the C library. Its functions are cancellation
//! points, which cost two locked instructions each in a multithreaded process. Code preloaded in
//! front of the C library (`LD_PRELOAD`) therefore does not see these calls, but strace does. A
//! build with `RUSTFLAGS="--cfg rustix_use_libc"` uses the C library.
//!
//! All sockets are non-blocking and are used on the loop that owns them. They may be opened on any
//! thread.

mod address;
mod adoptable;
mod listener;
mod options;
mod stream;
mod tcp;
mod udp;
#[cfg(unix)]
pub(crate) mod unix;

pub(crate) use address::resolve;
pub use address::{Address, ToAddress};
pub use adoptable::IntoListener;
pub(crate) use listener::Listener;
pub(crate) use options::socket_options;
pub use options::{ListenerOptions, TcpOptions};
pub(crate) use stream::Stream;
pub(crate) use tcp::BINDING;
pub(crate) use udp::UdpSocket;
pub use udp::{MulticastGroup, UdpOptions};
#[cfg(unix)]
pub use unix::UnixAddress;
