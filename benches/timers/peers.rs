//! Timer stores of other crates.

use crate::stores::{MS, Store};
use hierarchical_hash_wheel_timer::{
    IdOnlyTimerEntry,
    wheels::{Skip, cancellable::QuadWheelWithOverflow},
};
use std::{future::poll_fn, hint::black_box, sync::OnceLock, task::Poll, time::Duration};
use tokio::{
    runtime::{Builder, EnterGuard, Runtime},
    task::coop::unconstrained,
};
use tokio_util::time::{DelayQueue, delay_queue};

/// tokio's, with a paused clock. It stays in the runtime's context, like code that runs on one.
pub(crate) struct Delays {
    queue: DelayQueue<u64>,
    _context: EnterGuard<'static>,
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    let paused = || Builder::new_current_thread().enable_time().start_paused(true).build();
    RUNTIME.get_or_init(|| paused().expect("a runtime"))
}

impl Store for Delays {
    type Handle = delay_queue::Key;

    fn new() -> Self {
        let context = runtime().enter();
        Delays { queue: DelayQueue::new(), _context: context }
    }

    fn start(&mut self, delay: u64, id: u64) -> delay_queue::Key {
        self.queue.insert(id, Duration::from_nanos(delay))
    }

    fn cancel(&mut self, key: delay_queue::Key, _id: u64) {
        black_box(self.queue.remove(&key));
    }

    fn rearm(&mut self, key: &mut delay_queue::Key, delay: u64, _id: u64) {
        self.queue.reset(key, Duration::from_nanos(delay));
    }

    fn advance(&mut self, by: u64) -> usize {
        runtime().block_on(unconstrained(async {
            tokio::time::advance(Duration::from_nanos(by)).await;
            let mut expired = 0;
            poll_fn(|cx| {
                while let Poll::Ready(Some(id)) = self.queue.poll_expired(cx) {
                    black_box(id.into_inner());
                    expired += 1;
                }
                Poll::Ready(expired)
            })
            .await
        }))
    }
}

/// Four levels of 256 slots of 1 ms. A timer is found by its id, in a hash map.
pub(crate) struct QuadWheel(QuadWheelWithOverflow<IdOnlyTimerEntry<u64>>);

impl Store for QuadWheel {
    type Handle = ();

    fn new() -> Self {
        QuadWheel(QuadWheelWithOverflow::new())
    }

    fn start(&mut self, delay: u64, id: u64) {
        let entry = IdOnlyTimerEntry::new(id, Duration::from_nanos(delay));
        self.0.insert(entry).expect("the delay is in range");
    }

    fn cancel(&mut self, (): (), id: u64) {
        self.0.cancel(&id).expect("the timer is pending");
    }

    fn rearm(&mut self, (): &mut (), delay: u64, id: u64) {
        self.cancel((), id);
        self.start(delay, id);
    }

    fn advance(&mut self, by: u64) -> usize {
        let (mut left, mut expired) = ((by / MS) as u32, 0);
        while left > 0 {
            match self.0.can_skip() {
                Skip::Empty => break,
                Skip::Millis(empty) if empty > 0 => {
                    self.0.skip(empty.min(left));
                    left -= empty.min(left);
                }
                _ => {
                    expired += self.0.tick().len();
                    left -= 1;
                }
            }
        }
        expired
    }
}
