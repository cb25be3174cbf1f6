//! How channels end: the order of events (docs/endings.md), lingering sockets, and connection
//! counts.

#[path = "../support/loops.rs"]
mod loops;
#[path = "../support/recorder.rs"]
mod recorder;
#[cfg(target_os = "linux")]
#[path = "../support/strace.rs"]
mod strace;

mod counting;
mod lingering;
mod table;
