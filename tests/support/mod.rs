//! The test kit of all integration tests.

#![allow(dead_code, reason = "each test binary uses a part of it")]

pub(crate) mod auto_read;
pub(crate) mod datagrams;
pub(crate) mod decode;
pub(crate) mod descriptor_limit;
pub(crate) mod descriptors;
pub(crate) mod handlers;
pub(crate) mod limited;
pub(crate) mod logs;
pub(crate) mod loops;
pub(crate) mod memory;
pub(crate) mod named;
pub(crate) mod nobody;
pub(crate) mod process;
pub(crate) mod recorder;
pub(crate) mod streams;
pub(crate) mod tcp;
pub(crate) mod timers;
