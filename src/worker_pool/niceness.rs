//! Scheduling priority of the threads of a pool.

/// Sets the niceness of the current thread. On Linux each thread has its own.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) fn set_niceness_of_this_thread(niceness: u8) {
    if let Err(e) = rustix::process::setpriority_process(None, niceness.into()) {
        log::warn!(
            "cannot set the niceness of a worker thread to {niceness}, which keeps that of its parent: {e:#}"
        );
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) fn set_niceness_of_this_thread(_: u8) {}
