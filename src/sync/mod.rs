//! Thread-safe building blocks.
//!
//! They are the mailbox of a loop and its wakeup, a channel, the wait of a store's thread on it,
//! completions, semaphores (`permits`), and gauges for held input and pending output. Smaller parts
//! are lists of waiters, loop ids, random numbers, and the activity of a loop. `Locked` is a lock
//! that is not held while code of the program runs. `primitives` provides their atomics and locks.
//! `loom_tests` contains their models.

mod activity;
#[cfg(any(feature = "durable", feature = "broker-sqlite"))]
mod adaptive_wait;
mod channel;
mod completion;
mod held_input;
mod locked;
#[cfg(all(test, netwheel_loom))]
mod loom_tests;
pub(crate) mod loop_id;
mod mailbox;
mod permits;
mod primitives;
mod random;
mod task_cell;
mod waiters;
mod wake_up;
mod write_gauge;

pub use activity::LoopPhase;
pub(crate) use activity::{Activity, ActivitySnapshot, Occupation, TypeName};
#[cfg(any(feature = "durable", feature = "broker-sqlite"))]
pub(crate) use adaptive_wait::AdaptiveWait;
pub(crate) use channel::{ReceiveError, Receiver, Sender, channel};
pub use completion::{Completer, Completion};
pub(crate) use completion::{Unwanted, cancellable, cancellable_of_all, completion, completion_of_all};
pub(crate) use held_input::HeldInput;
pub(crate) use locked::Locked;
pub(crate) use mailbox::{Inbox, Mailbox, mailbox};
pub(crate) use permits::Permits;
pub(crate) use random::Random;
pub(crate) use task_cell::TaskCell;
pub(crate) use waiters::{Awaited, Waiters};
pub(crate) use wake_up::{Asleep, WakeUp};
pub(crate) use write_gauge::{MessageWeight, ReservedWeight, WriteGauge};
