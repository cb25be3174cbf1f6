//! Groups of channels and of event loops: broadcast, choosers, admission, shutdown.

#[path = "../support/mod.rs"]
mod support;

mod admission;
mod broadcast;
mod channel_group;
mod chooser;
mod event_loop_group;
mod ip_filter;
mod overload;
#[cfg(all(feature = "tls", feature = "websocket"))]
mod overload_tls;
mod shutdown;
mod shutdown_paced;
mod shutdown_replies;
