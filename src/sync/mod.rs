//! Everything that crosses threads, in small files: the task queue and who waits for room in it, the wake-up,
//! completions, the recursion of their callbacks (`trampoline`), places that are limited, what is held of a channel's input, which loop the calling thread is, and what a loop is
//! doing. `primitives` is what they are made of, `loom_tests` their models.

mod completion;
mod holding;
#[cfg(all(test, netwheel_loom))]
mod loom_tests;
pub(crate) mod loop_id;
mod mailbox;
mod places;
mod primitives;
mod room;
mod task_cell;
mod trampoline;
mod wake_up;
mod whereabouts;
mod write_gauge;

pub use completion::Completion;
pub(crate) use completion::{
    Completer, Unwanted, cancellable, cancellable_of_all, completion, completion_of_all,
};
pub(crate) use holding::Holding;
pub(crate) use mailbox::{Inbox, Mailbox, mailbox};
pub(crate) use places::Places;
pub(crate) use task_cell::TaskCell;
pub(crate) use wake_up::{Asleep, WakeUp};
pub use whereabouts::Phase;
pub(crate) use whereabouts::{Doing, Sight, TypeName, Whereabouts};
pub(crate) use write_gauge::{CalmWeight, WriteGauge};
