//! UDP: channels that send and receive whole datagrams.
//!
//! Open one with [`DatagramBootstrap`](crate::DatagramBootstrap). The program implements
//! [`DatagramHandler`]; its callbacks get a [`DatagramContext`]. Other threads use a
//! [`DatagramChannel`].

// Datagram channels: UDP on an event loop.
//
// A datagram is whole or absent, has an address, and may be lost. So there is nothing to decode or
// to gather, and the core of a datagram channel is separate from that of streams. Each datagram is
// one system call with an error of its own. The loop handles datagram channels as sources
// (`Source`), like listeners. Events, mail, timers, the panic guard,
// a rebuild and a shutdown find them by key. A datagram channel is not a connection: loads,
// choosers and limits of connections do not count it, but a shutdown does.
//
// # Sending
// A send reaches the kernel within the call, so that its error is the result of the call. Only if
// the kernel accepts no more is the datagram queued, with all later ones after it. The weight of
// the queue is limited, and counted in the loop's budget of pending output. A datagram beyond the
// limit is returned to the caller. A queued datagram goes to the address that it was sent to, even
// if the peer changes.
//
// # Errors of earlier datagrams
// On a connected socket the kernel reports the failure of an earlier datagram (ICMP) as the error
// of a later call. A receive passes it to the handler. A send tries once more. If that does not
// fail alike, the first error is kept, and the handler receives it when the running callback has
// returned. Other errors of receiving go to the handler too. Sixteen in a row close the channel,
// because it would fail forever.
//
// # Receiving
// A receive uses the loop's read buffer of 64 KiB, which holds any datagram of IPv4 and IPv6. Only
// jumbograms (RFC 2675) are longer, and common networks do not carry them. A disconnect makes
// Linux release a port that it had chosen itself, so the socket is bound to it again.
//
// # Modules
// `DatagramHandler` is the program's part, `DatagramContext` is its view of the
// channel, and `DatagramChannel` is the handle for other threads. `source` is the
// loop's side, with `io` and `callbacks`. `state` is the part that a context works on, and `queue`
// holds waiting datagrams. `shared` is the state that the handles share with the loop.

mod callbacks;
mod config;
mod handle;
mod handler;
mod io;
mod queue;
mod shared;
mod source;
mod state;

pub(crate) use config::DatagramConfig;
pub use handle::DatagramChannel;
pub use handler::{AnyDatagramHandler, DatagramContext, DatagramHandler};
pub(crate) use handler::{DatagramInbox, DatagramLinks, TypedHandler};
pub(crate) use shared::{DatagramGuard, DatagramShared};
pub(crate) use source::NewDatagramChannel;
