//! Child processes under strace, stopped by signals or short of descriptors, and their resident
//! memory. Each test starts such a process, or runs in one with `own_process!`.

mod accept_exhaustion;
mod affinity;
mod busy_syscalls;
mod datagrams_blocked;
mod descriptors;
mod idle_server_syscalls;
mod idle_timer_syscalls;
mod io_faults;
mod misbehaving_peers;
mod poll_faults;
mod poll_storms;
#[cfg(feature = "json")]
mod rss;
mod sigstop;
mod slow_reader;
mod socket_activation;
mod worker_threads;
