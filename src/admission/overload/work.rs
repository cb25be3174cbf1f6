//! The classes of work that an overloaded loop sheds.

/// A class of work that an overloaded event loop sheds. Classes are shed in this order, and
/// admitted again in the reverse order.
///
/// See [`overload_target`](crate::group::EventLoopGroupBuilder::overload_target). Everything else
/// is never shed: pongs, closes, shutdowns, timers, and messages of established channels that the
/// program does not submit to [`Context::admit`](crate::Context::admit).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Work {
    /// An accepted connection. A refused one is reset before its pipeline or its filters are made.
    Accept,
    /// The handshake of the byte filters (TLS) of an accepted connection. A refused connection is
    /// reset.
    Handshake,
    /// A login, or another request that a client can repeat later: an HTTP request that upgrades
    /// the connection, an expensive query. The program submits it to
    /// [`Context::admit`](crate::Context::admit), and sends the hint of a refusal to the client.
    Login,
    /// A broadcast to a group whose messages may be skipped
    /// ([`ChannelGroupBuilder::bulk`](crate::channel::ChannelGroupBuilder::bulk)).
    Bulk,
}

impl Work {
    /// All classes, in the order in which they are shed.
    pub(crate) const ALL: [Work; 4] = [Work::Accept, Work::Handshake, Work::Login, Work::Bulk];

    /// Returns whether a client that is refused learns the hint. A connection may have a farewell.
    pub(super) fn is_told(self) -> bool {
        self == Work::Login
    }
}
