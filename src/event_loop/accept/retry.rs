//! When a listener accepts again after an error.
//!
//! Some errors concern one connection, which is gone already (`ECONNABORTED` and similar ones). The
//! listener continues with the next connection. All other errors pause the listener: a lack of
//! descriptors or memory, and errors that are unknown. It retries by a timer, after 10 ms at first
//! and at most half a second, because an edge-triggered poll does not report the backlog again.
//!
//! Invariants: a listener is tried again within half a second, so a server that was out of
//! descriptors recovers soon. It is never tried again immediately, so it does not spin. Pure: times
//! are arguments, in nanoseconds. Runs on the loop's thread.

use std::io::{self, ErrorKind};

/// The first rest: long enough not to spin, short enough for a shortage of a moment.
const FIRST: u64 = 10_000_000;

/// The longest rest.
const LONGEST: u64 = 500_000_000;

/// How a listener fares at accepting.
#[derive(Debug, Default)]
pub(crate) struct AcceptRetry {
    /// In a row.
    failures: u32,
}

impl AcceptRetry {
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// It failed: for how long to rest.
    pub(crate) fn failed(&mut self) -> u64 {
        let rest = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        rest
    }
}

/// Whether accepting failed because of that one connection (or a signal), so that the next one is not to wait: it is
/// gone already, or the network has an error of its own for it.
///
/// Everything else is a want of descriptors or memory, which may be over later, or something that nobody has thought of,
/// which is not to make the loop spin.
pub(crate) fn concerns_one_connection(e: &io::Error) -> bool {
    // accept(2) has the list: these are the network's errors that are already pending on the new socket.
    const EPROTO: i32 = 71;
    let of_linux = cfg!(any(target_os = "linux", target_os = "android"));
    matches!(
        e.kind(),
        ErrorKind::ConnectionAborted
            | ErrorKind::ConnectionReset
            | ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::Interrupted
            | ErrorKind::NetworkDown
            | ErrorKind::NetworkUnreachable
            | ErrorKind::PermissionDenied
            | ErrorKind::TimedOut
    ) || (of_linux && e.raw_os_error() == Some(EPROTO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_to_half_a_second_and_begin_anew_after_a_success() {
        let mut retry = AcceptRetry::default();
        let mut rests = || [(); 9].map(|()| retry.failed() / 1_000_000);
        assert_eq!(rests(), [10, 20, 40, 80, 160, 320, 500, 500, 500]);
        assert_eq!(rests(), [500; 9]);
        retry.failures = u32::MAX;
        assert_eq!(retry.failed(), LONGEST);
        retry.succeeded();
        assert_eq!(retry.failed(), FIRST);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_what_concerns_one_connection_has_the_next_one_not_wait() {
        let concerns = |code| concerns_one_connection(&io::Error::from_raw_os_error(code));
        for (name, code) in
            [("ECONNABORTED", 103), ("EINTR", 4), ("EPROTO", 71), ("EPERM", 1), ("ENETDOWN", 100)]
        {
            assert!(concerns(code), "{name}");
        }
        for (name, code) in
            [("EMFILE", 24), ("ENFILE", 23), ("ENOBUFS", 105), ("ENOMEM", 12), ("EINVAL", 22), ("EIO", 5)]
        {
            assert!(!concerns(code), "{name}");
        }
    }
}
