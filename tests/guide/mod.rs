//! The code of the guide: its tests, and tests that run its programs.

mod codec;
#[cfg(feature = "rusqlite-040")]
mod durable_timers;
mod echo;
mod filter;
mod gateway;
#[cfg(feature = "http")]
mod http;
mod login;
#[cfg(all(feature = "postgres-019", feature = "http"))]
mod orders;
mod programs;
mod relogin;
mod timers;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "websocket")]
mod websocket;
