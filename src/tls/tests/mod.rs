//! TLS between a client and a server in memory.

mod handshakes;
mod pair;
