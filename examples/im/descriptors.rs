//! Every connection takes a file descriptor: raises the limit, and says what it is.

use std::fmt;

/// Descriptors that a program needs besides those of its connections: standard streams, polls, wakers, log files.
const RESERVE: u64 = 64;

/// The limit of open files of this process, if there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorLimit(pub(crate) Option<u64>);

impl DescriptorLimit {
    /// Returns how many connections may be open, if there is a limit.
    pub(crate) fn connections(self) -> Option<u64> {
        self.0.map(|limit| limit.saturating_sub(RESERVE))
    }
}

impl fmt::Display for DescriptorLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0, self.connections()) {
            (Some(limit), Some(connections)) if connections > 0 => {
                write!(f, "open files: at most {limit}, which allows about {connections} connections")
            }
            (Some(limit), _) => {
                write!(f, "open files: at most {limit}; it must be more than {RESERVE} for a connection")
            }
            (None, _) => f.write_str("open files: no limit"),
        }
    }
}

/// Raises the limit as far as the system allows, and returns it.
#[cfg(unix)]
pub(crate) fn raise_limit() -> DescriptorLimit {
    use rlimit::{INFINITY, Resource};
    // Asking for more than is allowed raises it as far as it goes.
    if let Err(e) = rlimit::increase_nofile_limit(INFINITY) {
        log::warn!("the limit of open files cannot be raised: {e}");
    }
    match Resource::NOFILE.get_soft() {
        Ok(INFINITY) => DescriptorLimit(None),
        Ok(limit) => DescriptorLimit(Some(limit)),
        Err(e) => {
            log::warn!("the limit of open files is not known: {e}");
            DescriptorLimit(None)
        }
    }
}

/// Where there is no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_limit() -> DescriptorLimit {
    DescriptorLimit(None)
}
