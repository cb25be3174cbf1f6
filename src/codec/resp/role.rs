//! `Role`: the side of a connection.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Decodes requests and encodes replies.
    Server {
        /// Whether a line of text is a request.
        inline: bool,
    },
    /// Encodes requests and decodes replies.
    Client,
}
