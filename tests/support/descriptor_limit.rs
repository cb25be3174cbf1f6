//! A program that has no more descriptors than a test leaves it. The limit is the whole program's, so one test at a time.

use rlimit::Resource;
use std::fs::{self, File};

/// Descriptors that the program has open.
pub(crate) fn descriptors() -> usize {
    // The listing's own is one of them.
    fs::read_dir("/proc/self/fd").unwrap().count() - 1
}

/// Leaves room for `more` descriptors, until dropped.
pub(crate) struct Limit {
    soft: u64,
    _taken: Vec<File>,
}

impl Limit {
    pub(crate) fn leave(more: usize) -> Self {
        let (soft, hard) = Resource::NOFILE.get().unwrap();
        Resource::NOFILE.set(descriptors() as u64 + 200, hard).unwrap();
        let mut taken: Vec<_> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
        taken.truncate(taken.len() - more);
        Limit { soft, _taken: taken }
    }
}

impl Drop for Limit {
    fn drop(&mut self) {
        let (_, hard) = Resource::NOFILE.get().unwrap();
        Resource::NOFILE.set(self.soft, hard).unwrap();
    }
}
