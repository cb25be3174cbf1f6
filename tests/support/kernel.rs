//! What the kernel holds of a connection: bytes that came and were not read yet, connections that wait for accept.
//! Tests wait for it, so as to know what the next turn of a loop will find.

#![allow(dead_code, reason = "each test file uses a part of it")]
#![cfg(target_os = "linux")]

use std::{
    collections::HashMap,
    fs,
    net::SocketAddr,
    time::{Duration, Instant},
};

const PATIENCE: Duration = Duration::from_secs(60);

/// Of each socket at this local port, by remote port: what waits to be read, or to be accepted.
fn waiting(port: u16) -> HashMap<u16, usize> {
    let table = fs::read_to_string("/proc/net/tcp").unwrap();
    // Most rows are of others: they are not taken apart.
    let local = format!(" {:08X}:{port:04X} ", u32::from_ne_bytes([127, 0, 0, 1]));
    let row = |line: &str| {
        let (_, rest) = line.split_once(&local)?;
        let mut fields = rest.split_whitespace();
        let remote = u16::from_str_radix(fields.next()?.rsplit(':').next()?, 16).ok()?;
        let queued = usize::from_str_radix(fields.nth(1)?.rsplit(':').next()?, 16).ok()?;
        Some((remote, queued))
    };
    table.lines().filter_map(row).collect()
}

#[track_caller]
fn wait_until<T>(what: &str, port: u16, is_met: impl Fn(&HashMap<u16, usize>) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(found) = is_met(&waiting(port)) {
            return found;
        }
        assert!(begun.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::yield_now();
    }
}

/// Waits until so many bytes at least wait at `server` that came from each of `clients`; how many do now. Looking is
/// slow, whatever is found.
#[track_caller]
pub(crate) fn await_bytes(server: SocketAddr, clients: &[SocketAddr], bytes: usize) -> usize {
    wait_until("bytes", server.port(), |waiting| {
        let queued = |client: &SocketAddr| waiting.get(&client.port()).copied().unwrap_or(0);
        clients.iter().map(queued).min().filter(|least| *least >= bytes)
    })
}

/// Waits until so many connections wait to be accepted at `server`.
#[track_caller]
pub(crate) fn await_connections(server: SocketAddr, connections: usize) {
    wait_until("connections", server.port(), |waiting| {
        waiting.get(&0).copied().filter(|queued| *queued >= connections)
    });
}
