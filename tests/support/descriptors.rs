//! Which descriptor of this program a connection has.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::{fs, net::SocketAddr};

/// The descriptor of the end of a connection that has these two ports.
#[track_caller]
pub(crate) fn of_connection(local: SocketAddr, peer: SocketAddr) -> i32 {
    let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
    let port = |address: &str| u16::from_str_radix(address.rsplit(':').next().unwrap(), 16).ok();
    let inode = table
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .find(|row| port(row[1]) == Some(local.port()) && port(row[2]) == Some(peer.port()))
        .expect("the connection is listed")[9]
        .to_owned();
    let name = format!("socket:[{inode}]");
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .find(|entry| fs::read_link(entry.path()).is_ok_and(|to| to.to_string_lossy() == name))
        .and_then(|entry| entry.file_name().to_string_lossy().parse().ok())
        .expect("the socket is ours")
}
