//! Where a client finds the server: `HOST:PORT`, or `unix:PATH`, as the server prints it.

use netwheel::{Result, UnixAddress};

/// The Unix socket that `text` names; none if it is something else.
///
/// # Errors
/// If the path cannot be that of a socket.
pub(crate) fn unix(text: &str) -> Result<Option<UnixAddress>> {
    text.strip_prefix("unix:").map(UnixAddress::path).transpose()
}
