//! CPU affinity of the threads of a pool.

/// The cores allowed for the threads of a pool. A thread inherits the affinity of the thread that
/// starts it, which may be an event loop pinned to one core.
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
            log::warn!(
                "cannot set the CPU affinity of a worker thread, which keeps that of its parent: {e:#}"
            );
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
