//! Models of this room: loom runs each of them under every order of steps, and every value that a load may see,
//! that the memory model allows.
//!
//! ```sh
//! RUSTFLAGS="--cfg netwheel_loom" cargo test --profile loom --lib --target-dir target/loom sync::
//! ```
//!
//! Complete up to [`PREEMPTIONS`] involuntary switches between threads (fewer where that would take minutes): a lost
//! wake-up takes one or two. `LOOM_MAX_PREEMPTIONS` sets another number for all. loom takes sequentially consistent
//! loads and stores for acquire and release; of fences it knows the full meaning. What a loop does around these
//! structures is written out here as it is in `event_loop` (`turn`, `shared`, `shutdown`); if that changes, change
//! [`Loop`].

mod completion;
mod held_input;
mod mailbox;
mod permits;
mod wake_up;
mod write_gauge;

use super::{Inbox, Mailbox, WakeUp, mailbox::mailbox};
use loom::{
    sync::{Condvar, Mutex},
    thread::{self, JoinHandle},
};
use std::sync::Arc;

/// Involuntary switches in one run.
const PREEMPTIONS: usize = 3;

/// Runs `body` in every way.
fn model(body: impl Fn() + Send + Sync + 'static) {
    model_up_to(PREEMPTIONS, body);
}

fn model_up_to(preemptions: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(body);
}

/// A poll, as far as its waker goes: sleeps until it was woken, and counts.
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

/// What the handles of a loop share with it, and what they do: `LoopShared`.
struct Shared {
    mailbox: Mailbox<u32>,
    wake_up: WakeUp,
    poll: Poll,
}

impl Shared {
    /// Gives the loop something that is wanted at `when`; whether that wrote to the waker.
    fn submit(&self, entry: u32, when: u64) -> bool {
        self.mailbox.put(entry).expect("there is room");
        self.wake_if_asleep(when)
    }

    fn wake_if_asleep(&self, when: u64) -> bool {
        let wakes = self.wake_up.must_wake(when).is_some();
        if wakes {
            self.poll.wake();
        }
        wakes
    }

    /// Submits, with a waker whose writes fail. Returns whether a write was tried.
    fn submit_with_broken_waker(&self, entry: u32, when: u64) -> bool {
        self.mailbox.put(entry).expect("there is room");
        let asleep = self.wake_up.must_wake(when);
        asleep.inspect(|asleep| self.wake_up.restore(*asleep)).is_some()
    }
}

/// The loop's thread: `Turn`.
struct Loop {
    shared: Arc<Shared>,
    inbox: Inbox<u32>,
    /// What came out, in order.
    taken: Vec<u32>,
}

impl Loop {
    fn new(limit: usize) -> Self {
        let (mailbox, inbox) = mailbox(limit);
        let poll = Poll { woken: Mutex::new((false, 0)), changed: Condvar::new() };
        Loop { shared: Arc::new(Shared { mailbox, wake_up: WakeUp::new(), poll }), inbox, taken: Vec::new() }
    }

    /// Another thread that has the handle.
    fn beside<T: 'static>(&self, f: impl FnOnce(&Shared) -> T + 'static) -> JoinHandle<T> {
        let shared = self.shared.clone();
        thread::spawn(move || f(&shared))
    }

    /// Sleeps, unless something waits, until it is woken.
    fn sleep(&self, deadline: Option<u64>) {
        self.shared.wake_up.about_to_sleep(deadline);
        if self.inbox.is_empty() {
            self.shared.poll.sleep();
        }
        self.shared.wake_up.awake();
    }

    /// Takes what waits, up to `most`.
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

    /// Turns until `entries` came out in all.
    fn turn_until(&mut self, entries: usize) {
        while self.taken.len() < entries {
            self.sleep(None);
            self.run_tasks(usize::MAX);
        }
    }

    /// The end of the loop: refuses, and takes what was accepted.
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
