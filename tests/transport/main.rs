//! Sockets: TCP, Unix sockets and datagrams, their options and listeners.

#[path = "../support/mod.rs"]
mod support;

mod connect;
mod data;
mod datagrams;
mod filters;
mod listener_per_loop;
mod proxy_protocol;
mod read_control;
#[cfg(feature = "tls")]
mod relay_ends;
mod reload;
mod socket_options;
#[cfg(feature = "tls")]
mod tls_key_log;
#[cfg(feature = "rustls-023")]
mod tls_secrets;
#[cfg(all(feature = "tls", feature = "http"))]
mod unfinished_responses;
mod unix_sockets;
