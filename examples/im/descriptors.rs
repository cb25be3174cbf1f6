//! Raises the limit of open files (every connection needs a file descriptor) and reports it.

use std::fmt;

/// Descriptors reserved for other uses: standard streams, polls, wakers, log files.
const RESERVE: u64 = 64;

/// The limit of open files of this process; `None` if there is no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DescriptorLimit(pub(crate) Option<u64>);

impl DescriptorLimit {
    /// Returns the maximum number of connections, or `None` if there is no limit.
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
    // A request above the hard limit raises the soft limit to the hard limit.
    if let Err(e) = rlimit::increase_nofile_limit(INFINITY) {
        log::warn!("cannot raise the limit of open files: {e}");
    }
    match Resource::NOFILE.get_soft() {
        Ok(INFINITY) => DescriptorLimit(None),
        Ok(limit) => DescriptorLimit(Some(limit)),
        Err(e) => {
            log::warn!("cannot read the limit of open files: {e}");
            DescriptorLimit(None)
        }
    }
}

/// Reports no limit, because this platform does not have one.
#[cfg(not(unix))]
pub(crate) fn raise_limit() -> DescriptorLimit {
    DescriptorLimit(None)
}
