//! The loop that is measured, and its load.

use netwheel::{EventLoop, EventLoopGroup, Result, group::EventLoopGroupBuilder, shutdown::ShutdownOptions};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::channel,
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// Duration of a task.
pub(crate) const TASK: Duration = Duration::from_micros(2);

/// Interval at which tasks are submitted.
const BEAT: Duration = Duration::from_millis(1);

/// Time before each measurement.
const WARM_UP: Duration = Duration::from_millis(100);

/// One loop on the first core.
pub(crate) struct Stage {
    pub(crate) group: EventLoopGroup,
    pub(crate) event_loop: EventLoop,
}

impl Stage {
    pub(crate) fn new(ratio: u32) -> Result<Self> {
        Self::of(EventLoopGroup::builder().io_ratio(ratio))
    }

    pub(crate) fn of(builder: EventLoopGroupBuilder) -> Result<Self> {
        let group = builder.threads(1).build()?;
        let event_loop = group.next().clone();
        event_loop.execute(|| pin(|cores| cores.first().copied()))?;
        Ok(Stage { group, event_loop })
    }

    /// Waits until the load is steady.
    pub(crate) fn warm_up(&self) {
        thread::sleep(WARM_UP);
    }

    pub(crate) fn end(&self) {
        let ended = self
            .group
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(5)));
        drop(ended.wait());
    }
}

/// Pins the calling thread to the last core, so that it does not take time from the loop.
pub(crate) fn pin_load() {
    pin(|cores| cores.last().copied());
}

fn pin(choose: impl FnOnce(Vec<core_affinity::CoreId>) -> Option<core_affinity::CoreId>) {
    let core = core_affinity::get_core_ids().and_then(choose);
    if !core.is_some_and(core_affinity::set_for_current) {
        eprintln!("a thread is not pinned: the results will be worse");
    }
}

/// Keeps the calling thread busy for `time`.
pub(crate) fn compute(time: Duration) {
    let begin = Instant::now();
    while begin.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// A background load that runs until it is dropped.
pub(crate) struct Running {
    goes_on: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Running {
    /// Calls `step` repeatedly, on a new thread on the last core.
    pub(crate) fn repeat(mut step: impl FnMut(&Arc<AtomicBool>) + Send + 'static) -> Self {
        let goes_on = Arc::new(AtomicBool::new(true));
        let running = goes_on.clone();
        let thread = thread::spawn(move || {
            pin_load();
            while running.load(Ordering::Relaxed) {
                step(&running);
            }
        });
        Running { goes_on, thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.goes_on.store(false, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the load's thread has not panicked");
        }
    }
}

/// Submits tasks that would take `percent` of the loop's time, whether the loop has run the earlier
/// ones or not. Tasks that are left when this ends take no time.
pub(crate) fn offer_tasks(event_loop: &EventLoop, percent: u32) -> Running {
    let (event_loop, begun, mut given) = (event_loop.clone(), Instant::now(), 0);
    Running::repeat(move |goes_on| {
        let due = begun.elapsed().mul_f64(f64::from(percent) / 100.0).as_nanos() / TASK.as_nanos();
        while given < due {
            given += 1;
            let goes_on = goes_on.clone();
            // If the queue is full, the loop has enough to do.
            let _ = event_loop.execute(move || {
                if goes_on.load(Ordering::Relaxed) {
                    compute(TASK);
                }
            });
        }
        thread::sleep(BEAT);
    })
}

/// Floods the loop with tasks, each of which submits itself again.
pub(crate) fn flood_with_tasks(event_loop: &EventLoop) -> Running {
    fn again(event_loop: EventLoop, goes_on: Arc<AtomicBool>) {
        if goes_on.load(Ordering::Relaxed) {
            compute(TASK);
            let me = event_loop.clone();
            let _ = event_loop.execute(move || again(me, goes_on));
        }
    }
    let goes_on = Arc::new(AtomicBool::new(true));
    for _ in 0..256 {
        let (me, goes_on) = (event_loop.clone(), goes_on.clone());
        let _ = event_loop.execute(move || again(me, goes_on));
    }
    Running { goes_on, thread: None }
}

/// Runs `task` on the loop, and returns its result.
pub(crate) fn on<T: Send + 'static>(event_loop: &EventLoop, task: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    event_loop.execute(move || drop(sender.send(task()))).expect("the queue has room");
    receiver.recv().expect("the task runs")
}
