//! Memory and descriptors of this process. Reads `/proc`, except for the descriptor limit.

#[cfg(unix)]
use rlimit::Resource;
use std::fs;
#[cfg(unix)]
use std::{fs::File, net::SocketAddr, os::fd::BorrowedFd};

// ---- memory ------------------------------------------------------------------------------------

/// Bytes of this process that are in memory. Files that are mapped are among them, so differences are what counts.
pub(crate) fn resident() -> usize {
    of_all_mappings("Rss:")
}

/// Bytes of the heap and the stacks that are in memory.
pub(crate) fn anonymous() -> usize {
    of_all_mappings("Anonymous:")
}

/// Counted page by page; the numbers in `statm` may be late by some pages for each thread.
fn of_all_mappings(what: &str) -> usize {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let line = rollup.lines().find_map(|line| line.strip_prefix(what)).expect("the kernel counts it");
    let kib: usize = line.trim().trim_end_matches(" kB").parse().unwrap();
    kib * 1024
}

// ---- descriptors -------------------------------------------------------------------------------

/// Returns the number of open descriptors.
pub(crate) fn descriptors() -> usize {
    // The listing's own is one of them.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// The descriptor of the end of a connection that has these two addresses.
///
/// Each descriptor is asked. The kernel's table of connections would tell as well, but it is the whole machine's, and long
/// for a minute after any program on it has closed many.
#[cfg(unix)]
#[track_caller]
pub(crate) fn descriptor_of(local: SocketAddr, peer: SocketAddr) -> i32 {
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

/// Raises the descriptor limit to the hard limit and returns it. A process holds both ends of the
/// connections of all tests that run in it.
pub(crate) fn raise_descriptor_limit() -> usize {
    rlimit::increase_nofile_limit(u64::MAX).unwrap().try_into().unwrap_or(usize::MAX)
}

/// Raises the descriptor limit; panics if it is below `needed`.
#[track_caller]
pub(crate) fn need_descriptors(needed: usize) {
    let may_open = raise_descriptor_limit();
    assert!(may_open >= needed, "only {may_open} descriptors, {needed} are needed: raise `ulimit -n`");
}

/// A descriptor limit that leaves room for a given number of descriptors until dropped. It applies to
/// the whole process, so a test that uses it calls `own_process!`.
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
