//! The test kit of all integration tests.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod channels;
pub(crate) mod codecs;
pub(crate) mod datagrams;
#[cfg(feature = "simulation")]
pub(crate) mod draw;
pub(crate) mod journal;
pub(crate) mod line_client;
pub(crate) mod logs;
pub(crate) mod loops;
pub(crate) mod nobody;
pub(crate) mod process;
pub(crate) mod random;
pub(crate) mod recorder;
pub(crate) mod resources;
pub(crate) mod servers;
pub(crate) mod streams;
pub(crate) mod tcp;
pub(crate) mod timers;
#[cfg(feature = "tls")]
pub(crate) mod tls_peer;
pub(crate) mod wait;
