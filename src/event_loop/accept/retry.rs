//! When a listener accepts again after an error.
//!
//! Some errors concern one connection, which is gone already (`ECONNABORTED` and similar ones). The
//! listener continues with the next connection. All other errors pause the listener: a lack of
//! descriptors or memory, and errors that are unknown. It retries by a timer, after 10 ms at first
//! and at most half a second, because an edge-triggered poll does not report the backlog again.
//!
//! Invariants: a listener is retried within half a second, so a server that ran out of descriptors
//! recovers soon. It is never retried immediately, so it does not spin. Pure: times are arguments,
//! in nanoseconds. Runs on the loop's thread.

use std::io::{self, ErrorKind};

/// The first pause: long enough not to spin, short enough for a brief shortage.
const FIRST: u64 = 10_000_000;

/// The longest pause.
const LONGEST: u64 = 500_000_000;

/// The consecutive failures of a listener.
#[derive(Debug, Default)]
pub(crate) struct AcceptRetry {
    /// Failures since the last success.
    failures: u32,
}

impl AcceptRetry {
    pub(crate) fn succeeded(&mut self) {
        self.failures = 0;
    }

    /// Records a failure. Returns the time to pause.
    pub(crate) fn failed(&mut self) -> u64 {
        let rest = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        rest
    }
}

/// Returns whether accepting failed because of one connection or a signal, so that the next
/// connection need not wait. The failed connection is gone, or has a pending network error of its
/// own.
///
/// All other errors pause the listener. They are a lack of descriptors or memory, which may end
/// later, or unknown errors, which must not make the loop spin.
pub(crate) fn concerns_one_connection(e: &io::Error) -> bool {
    // accept(2) lists these network errors, which are already pending on the new socket.
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
    fn pauses_grow_to_half_a_second_and_restart_after_a_success() {
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
    fn only_errors_of_one_connection_do_not_pause_the_listener() {
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
