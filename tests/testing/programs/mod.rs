//! Programs in simulated machines: one scenario in each file, with its checks. `support` has what
//! they share.

#[cfg(feature = "http")]
mod http_pool;
mod reconnecting;
mod support;
#[cfg(feature = "tls")]
pub(crate) mod tls_relay;
#[cfg(feature = "websocket")]
mod websocket;
