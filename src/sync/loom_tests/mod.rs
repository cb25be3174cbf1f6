//! Models of this module. loom runs each model under every interleaving, and with every value that
//! a load may return, that the memory model allows.
//!
//! ```sh
//! RUSTFLAGS="--cfg netwheel_loom" cargo test --profile loom --lib --target-dir target/loom sync::
//! ```
//!
//! The exploration is complete up to [`PREEMPTIONS`] involuntary switches between threads (fewer
//! where it would take minutes). A lost wakeup takes one or two. `LOOM_MAX_PREEMPTIONS` overrides
//! the number for all models. loom treats sequentially consistent loads and stores as acquire and
//! release, but models fences exactly.
//!
//! The code that a loop runs around these structures is repeated here from `event_loop` (`turn`,
//! `shared`, `shutdown`). If that code changes, change [`Loop`].

mod channel;
mod completion;
mod held_input;
mod mailbox;
mod permits;
mod wake_up;
mod write_gauge;

use super::{
    mailbox::{Inbox, Mailbox, mailbox},
    wake_up::WakeUp,
};
use loom::{
    sync::{Condvar, Mutex},
    thread::{self, JoinHandle},
};
use std::sync::Arc;

/// The maximum number of involuntary switches in one run.
const PREEMPTIONS: usize = 3;

/// Runs `body` in every interleaving.
fn model(body: impl Fn() + Send + Sync + 'static) {
    model_up_to(PREEMPTIONS, body);
}

fn model_up_to(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

/// A model of a poll's waker: sleeps until it is woken, and counts the writes.
struct Poll {
    woken: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Poll {
    fn wake(&self) {
        let mut woken = self.woken.lock().unwrap();
        *woken = (true, woken.1 + 1);
        self.changed.notify_one();
    }

    fn sleep(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !woken.0 {
            woken = self.changed.wait(woken).unwrap();
        }
        woken.0 = false;
    }

    fn writes(&self) -> usize {
        self.woken.lock().unwrap().1
    }
}

/// A model of `LoopShared`, the state that handles share with the loop.
struct Shared {
    mailbox: Mailbox<u32>,
    wake_up: WakeUp,
    poll: Poll,
}

impl Shared {
    /// Submits an entry that is due at `when`. Returns whether it wrote to the waker.
    fn submit(&self, entry: u32, when: u64) -> bool {
        self.mailbox.put(entry).expect("there is space");
        self.wake_if_asleep(when)
    }

    fn wake_if_asleep(&self, when: u64) -> bool {
        let wakes = self.wake_up.must_wake(when).is_some();
        if wakes {
            self.poll.wake();
        }
        wakes
    }

    /// Submits with a waker that fails every write. Returns whether a write was attempted.
    fn submit_with_broken_waker(&self, entry: u32, when: u64) -> bool {
        self.mailbox.put(entry).expect("there is space");
        let asleep = self.wake_up.must_wake(when);
        asleep.inspect(|asleep| self.wake_up.restore(*asleep)).is_some()
    }
}

/// A model of `Turn`, the loop's thread.
struct Loop {
    shared: Arc<Shared>,
    inbox: Inbox<u32>,
    /// The entries taken out, in order.
    taken: Vec<u32>,
}

impl Loop {
    fn new(limit: usize) -> Self {
        let (mailbox, inbox) = mailbox(limit);
        let poll = Poll { woken: Mutex::new((false, 0)), changed: Condvar::new() };
        Loop { shared: Arc::new(Shared { mailbox, wake_up: WakeUp::new(), poll }), inbox, taken: Vec::new() }
    }

    /// Runs `f` on another thread that has the handle.
    fn beside<T: 'static>(&self, f: impl FnOnce(&Shared) -> T + 'static) -> JoinHandle<T> {
        let shared = self.shared.clone();
        thread::spawn(move || f(&shared))
    }

    /// Sleeps until woken, unless entries are waiting.
    fn sleep(&self, deadline: Option<u64>) {
        self.shared.wake_up.about_to_sleep(deadline);
        if self.inbox.is_empty() {
            self.shared.poll.sleep();
        }
        self.shared.wake_up.awake();
    }

    /// Takes waiting entries, up to `most`.
    fn run_tasks(&mut self, most: usize) {
        let before = self.taken.len();
        while self.taken.len() - before < most
            && let Some(entry) = self.inbox.take()
        {
            self.taken.push(entry);
        }
        if self.taken.len() > before {
            self.shared.mailbox.announce_room();
        }
    }

    /// Runs turns until `entries` were taken out in total.
    fn turn_until(&mut self, entries: usize) {
        while self.taken.len() < entries {
            self.sleep(None);
            self.run_tasks(usize::MAX);
        }
    }

    /// Ends the loop: closes the mailbox and takes the accepted entries.
    fn finish(&mut self) {
        self.shared.mailbox.close();
        while let Some(entry) = self.inbox.take() {
            self.taken.push(entry);
        }
    }

    fn sorted(mut self) -> Vec<u32> {
        self.taken.sort_unstable();
        self.taken
    }
}
