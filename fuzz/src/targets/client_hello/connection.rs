//! The constants of `src/tls/connection.rs` that `client_hello.rs` uses.

pub(super) const HEADER: usize = 5;
pub(super) const MAX_PLAIN: usize = 1 << 14;
