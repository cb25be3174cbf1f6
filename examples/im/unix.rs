//! Parses the address of the server: `HOST:PORT`, or `unix:PATH` as the server prints it.

use netwheel::{Result, net::UnixAddress};

/// Returns the Unix socket address in `text`, or `None` if `text` does not start with `unix:`.
///
/// # Errors
/// Fails if the path is not valid for a Unix socket.
pub(crate) fn unix(text: &str) -> Result<Option<UnixAddress>> {
    text.strip_prefix("unix:").map(UnixAddress::path).transpose()
}
