//! The two ends of a connection.

/// The end of the connection that this endpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Reads masked frames, and ends the TCP connection first.
    Server,
    /// Writes masked frames.
    Client,
}
