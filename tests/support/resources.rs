//! Memory and descriptors of this process, read from `/proc`. The descriptor limit is a system
//! call.

#[cfg(unix)]
use rlimit::Resource;
use std::fs;
#[cfg(unix)]
use std::{fs::File, net::SocketAddr, os::fd::BorrowedFd};

// ---- memory ------------------------------------------------------------------------------------

/// Returns the resident bytes of this process. They include mapped files, so only differences are
/// meaningful.
pub(crate) fn resident() -> usize {
    of_all_mappings("Rss:")
}

/// Returns the resident bytes of the heap and the stacks.
pub(crate) fn anonymous() -> usize {
    of_all_mappings("Anonymous:")
}

/// Sums over pages. The numbers in `statm` may lag by several pages per thread.
fn of_all_mappings(what: &str) -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(what)).expect("the kernel reports it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

// ---- descriptors -------------------------------------------------------------------------------

/// Returns the number of open descriptors.
pub(crate) fn descriptors() -> usize {
    // One of them belongs to the directory listing itself.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Returns the descriptor of the end of a connection that has these two addresses.
///
/// Queries each descriptor of the process. The kernel's table of connections covers the whole
/// machine, and stays long for a minute after any program has closed many.
#[cfg(unix)]
#[track_caller]
pub(crate) fn descriptor_of(local: SocketAddr, peer: SocketAddr) -> i32 {
    let of_the_two = |descriptor: &i32| {
        // SAFETY: the descriptor was open when it was listed. If it has been closed since, the
        // queries only fail.
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
        .expect("the socket belongs to this process")
}

/// Raises the descriptor limit to the hard limit and returns it. A test process holds both ends of
/// the connections of all its tests.
pub(crate) fn raise_descriptor_limit() -> usize {
    rlimit::increase_nofile_limit(u64::MAX).unwrap().try_into().unwrap_or(usize::MAX)
}

/// Raises the descriptor limit. Panics if it is below `needed`.
#[track_caller]
pub(crate) fn need_descriptors(needed: usize) {
    let may_open = raise_descriptor_limit();
    assert!(
        may_open >= needed,
        "the descriptor limit is {may_open}, but {needed} are needed: raise `ulimit -n`"
    );
}

/// Lowers the descriptor limit to leave room for a given number of descriptors, until dropped. It
/// applies to the whole process, so a test that uses it calls `own_process!`.
#[cfg(unix)]
pub(crate) struct DescriptorLimit {
    soft: u64,
    _taken: Vec<File>,
}

#[cfg(unix)]
impl DescriptorLimit {
    pub(crate) fn leave(more: usize) -> Self {
        let (soft, hard) = Resource::NOFILE.get().unwrap();
        Resource::NOFILE.set(descriptors() as u64 + 200, hard).unwrap();
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len() - more);
        DescriptorLimit { soft, _taken: taken }
    }
}

#[cfg(unix)]
impl Drop for DescriptorLimit {
    fn drop(&mut self) {
        let (_, hard) = Resource::NOFILE.get().unwrap();
        Resource::NOFILE.set(self.soft, hard).unwrap();
    }
}
