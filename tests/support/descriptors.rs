//! Which descriptor of this program a connection has.

use std::{fs, net::SocketAddr, os::fd::BorrowedFd};

/// The descriptor of the end of a connection that has these two addresses.
///
/// Each descriptor is asked. The kernel's table of connections would tell as well, but it is the whole machine's, and long
/// for a minute after any program on it has closed many.
#[track_caller]
pub(crate) fn of_connection(local: SocketAddr, peer: SocketAddr) -> i32 {
    let of_the_two = |descriptor: &i32| {
        // SAFETY: it was open when it was listed; one that is closed meanwhile only fails to answer.
        let borrowed = unsafe { BorrowedFd::borrow_raw(*descriptor) };
        let socket = socket2::SockRef::from(&borrowed);
        let is = |address: std::io::Result<socket2::SockAddr>, expected: SocketAddr| {
            address.is_ok_and(|address| address.as_socket() == Some(expected))
        };
        is(socket.local_addr(), local) && is(socket.peer_addr(), peer)
    };
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .flatten()
        .filter_map(|entry| entry.file_name().to_string_lossy().parse().ok())
        .find(of_the_two)
        .expect("the socket is ours")
}
