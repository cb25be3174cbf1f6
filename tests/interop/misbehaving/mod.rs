//! Servers that misbehave, written in Python, and our clients.

mod http;
#[cfg(feature = "deflate")]
mod websocket;

use crate::support::process::{Process, are_installed};
use std::net::SocketAddr;

/// Starts a server of this directory, unless Python is missing.
fn start(program: &str) -> Option<(Process, SocketAddr)> {
    if !are_installed(&["python3"]) {
        return None;
    }
    let mut process = Process::start(&["python3", "-c", program]);
    let port: u16 = process.stdout.wait_for("listening on ").trim().parse().unwrap();
    Some((process, SocketAddr::from(([127, 0, 0, 1], port))))
}
