//! The cores on which the threads of a pool may run.

/// The cores that the threads may run on: a thread inherits those of the one that starts it, which may be an event loop
/// that is pinned to one.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) struct Cores(Option<rustix::thread::CpuSet>);

#[cfg(any(target_os = "linux", target_os = "android"))]
impl Cores {
    pub(super) fn of_this_thread() -> Self {
        Cores(rustix::thread::sched_getaffinity(None).ok())
    }

    pub(super) fn allow_this_thread(&self) {
        if let Some(cores) = &self.0
            && let Err(e) = rustix::thread::sched_setaffinity(None, cores)
        {
            log::warn!("a worker's thread runs where the thread may that started it: {e:#}");
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) struct Cores;

#[cfg(not(any(target_os = "linux", target_os = "android")))]
impl Cores {
    pub(super) fn of_this_thread() -> Self {
        Cores
    }

    pub(super) fn allow_this_thread(&self) {}
}
