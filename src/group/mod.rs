//! Groups of event loops, and which of them serves the next channel.
//!
//! Always holds: a group has at least one loop; `next` goes round them in order. The group owns no channel; its
//! loops live until they are shut down, not until the last handle is dropped.

mod builder;

pub use builder::EventLoopGroupBuilder;

use crate::{
    Completion, Error, Result,
    event_loop::{EventLoop, LoopMetrics, ShutdownOptions, ShutdownReport, ShutdownRequest},
    sync::completion_of_all,
};
use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

/// Event loops that share the channels of a program; can be cloned, sent and shared.
///
/// Dropping the last handle does not end the loops: [`shutdown_gracefully`](EventLoopGroup::shutdown_gracefully)
/// does.
///
/// ```
/// use netwheel::EventLoopGroup;
/// use std::time::Duration;
///
/// let group = EventLoopGroup::builder().threads(2).name("worker").io_ratio(50).build()?;
/// let answer = group.next().schedule(Duration::from_millis(1), || 6 * 7)?;
/// assert_eq!(answer.completion().wait()?, 42);
/// group.shutdown_gracefully(Duration::ZERO, Duration::from_secs(1)).wait()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct EventLoopGroup {
    inner: Arc<Inner>,
}

struct Inner {
    loops: Vec<EventLoop>,
    next: AtomicUsize,
}

impl EventLoopGroup {
    /// A group with the default settings.
    ///
    /// # Errors
    /// If the operating system gives no poll.
    pub fn new() -> Result<Self> {
        Self::builder().build()
    }

    /// Settings first.
    pub fn builder() -> EventLoopGroupBuilder {
        EventLoopGroupBuilder::new()
    }

    fn of(loops: Vec<EventLoop>) -> Self {
        EventLoopGroup { inner: Arc::new(Inner { loops, next: AtomicUsize::new(0) }) }
    }

    /// The loop whose turn it is to get a channel: each in order, round and round.
    pub fn next(&self) -> &EventLoop {
        let loops = &self.inner.loops;
        let step = |n: usize| Some((n + 1) % loops.len());
        // Counted modulo the size, so that the order holds for ever and not only until a counter wraps.
        let n = self.inner.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, step);
        &loops[n.unwrap_or(0)]
    }

    /// All loops.
    pub fn event_loops(&self) -> &[EventLoop] {
        &self.inner.loops
    }

    /// The counters of each loop.
    pub fn metrics(&self) -> Vec<LoopMetrics> {
        self.inner.loops.iter().map(EventLoop::metrics).collect()
    }

    /// Shuts every loop down as [`EventLoop::shutdown_gracefully`] does; completes when all have ended.
    ///
    /// The defaults of [`ShutdownOptions`], as Netty's, are a quiet period of 2 s and a timeout of 15 s; zero and a
    /// second end an idle group at once.
    pub fn shutdown_gracefully(&self, quiet: Duration, timeout: Duration) -> Completion {
        match ShutdownOptions::new().quiet(quiet).timeout(timeout).check() {
            Ok(request) => {
                self.request_shutdown(request);
                self.terminated()
            }
            Err(e) => Completion::ready(Err(e)),
        }
    }

    /// Shuts every loop down as [`EventLoop::shut_down`] does; completes when all have ended, with what came of it in
    /// all of them together, or with the first failure if there was one.
    ///
    /// Each loop spreads its own channels over the same [`window`](ShutdownOptions::window).
    ///
    /// An error ([`Error::Setting`]) if the options contradict each other; the loops go on then.
    pub fn shut_down(&self, options: ShutdownOptions) -> Completion<ShutdownReport> {
        let request = match options.check() {
            Ok(request) => request,
            Err(e) => return Completion::ready(Err(e)),
        };
        self.request_shutdown(request);
        let (completer, completion) = completion_of_all(self.loop_ids());
        let group = self.clone();
        self.terminated().on_complete(move |ended| completer.complete(ended.map(|()| group.report())));
        completion
    }

    fn request_shutdown(&self, request: ShutdownRequest) {
        for event_loop in &self.inner.loops {
            event_loop.shared.shut_down(request);
        }
    }

    fn report(&self) -> ShutdownReport {
        let mut all = ShutdownReport::default();
        for event_loop in &self.inner.loops {
            all.merge(&event_loop.shared.report());
        }
        all
    }

    fn loop_ids(&self) -> Box<[u32]> {
        self.inner.loops.iter().map(|event_loop| event_loop.shared.id).collect()
    }

    /// Completes when every loop has ended, with the first failure if there was one.
    pub fn terminated(&self) -> Completion {
        let (completer, completion) = completion_of_all(self.loop_ids());
        let left = Mutex::new((self.inner.loops.len(), None::<Error>, Some(completer)));
        let left = Arc::new(left);
        for event_loop in &self.inner.loops {
            let left = left.clone();
            event_loop.terminated().on_complete(move |result| {
                let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                left.0 -= 1;
                if let Err(e) = result {
                    left.1.get_or_insert(e);
                }
                if left.0 == 0
                    && let Some(completer) = left.2.take()
                {
                    let result = left.1.take().map_or(Ok(()), Err);
                    drop(left);
                    completer.complete(result);
                }
            });
        }
        completion
    }
}

impl fmt::Debug for EventLoopGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLoopGroup").field("loops", &self.inner.loops).finish()
    }
}
