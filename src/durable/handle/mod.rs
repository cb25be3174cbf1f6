//! What a program uses: the builder, and the handle of running timers.

mod backup;
mod builder;
mod commands;
mod start;
mod timers;
mod topics;
mod when;

pub use builder::DurableTimersBuilder;
pub use start::StartTimer;
pub use timers::DurableTimers;
pub use when::When;
