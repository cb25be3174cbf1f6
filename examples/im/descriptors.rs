//! Every connection takes a file descriptor: raises the limit, and says what it is.

/// Descriptors that a program needs besides those of its connections: standard streams, polls, wakers, log files.
const RESERVE: u64 = 64;

/// Raises the limit as far as the system allows; how many connections may then be open, if there is a limit.
#[cfg(unix)]
pub(crate) fn raise_limit() -> Option<u64> {
    use rlimit::{INFINITY, Resource};
    // Asking for more than is allowed raises it as far as it goes.
    if let Err(e) = rlimit::increase_nofile_limit(INFINITY) {
        log::warn!("the limit of open files cannot be raised: {e}");
    }
    match Resource::NOFILE.get_soft() {
        Ok(INFINITY) => None,
        Ok(limit) => Some(limit.saturating_sub(RESERVE)),
        Err(e) => {
            log::warn!("the limit of open files is not known: {e}");
            None
        }
    }
}

/// Where there is no such limit.
#[cfg(not(unix))]
pub(crate) fn raise_limit() -> Option<u64> {
    let _ = RESERVE;
    None
}

/// One line for the user.
pub(crate) fn describe(connections: Option<u64>) -> String {
    match connections {
        None => "open files: no limit".to_owned(),
        Some(n) => format!("open files: at most {}, which allows about {n} connections", n + RESERVE),
    }
}
