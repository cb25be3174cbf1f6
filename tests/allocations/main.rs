//! Allocation counts. The counters are process-wide, so each test runs in its own process.

#[path = "../support/mod.rs"]
mod support;

mod broadcast;
mod codecs;
mod echo;
mod heap;
mod heap_returns;
mod idle_events;
mod one_million;
mod proxy_headers;
mod reading;
mod tasks;
#[cfg(feature = "tls")]
mod tls;
#[cfg(feature = "websocket")]
mod websocket;
