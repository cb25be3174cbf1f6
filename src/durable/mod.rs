//! Timers that survive the program: stored before `start` completes, fired through an event loop.
//!
//! [`DurableTimers`] is the handle of a program. It is built with a store and [`Topic`]s. A timer is
//! a topic, a time and a payload; closures are never stored. The default store is an SQLite file
//! ([`SqliteStore`]), for one process. The guide has a chapter about it
//! ([`guide::durable_timers`](crate::guide::durable_timers)).
//!
//! # Guarantees
//!
//! - A completed start is on disk. A crash, or a power failure if the disk keeps its word, does not
//!   lose the timer.
//! - A timer fires at least once ([`Delivery::AtLeastOnce`]), or at most once
//!   ([`Delivery::AtMostOnce`]), as its topic says. Twice only if the program died between the call
//!   of the handler and the storage of its answer.
//! - Never early by the wall clock. If the wall clock is set, timers follow it within a second.
//! - The next run of a periodic timer is stored in the same transaction that ends the current one.
//! - What a late timer does is stated by its topic ([`Late`]).
//! - A `cancel` that returned `true` is never followed by a run.
//!
//! # Order
//!
//! Timers fire in the order of their due times, and those of the same millisecond in the order of
//! their starts. A handler is called for one timer after the other, on one event loop. Answers that
//! come later, and retries, do not keep that order.
//!
//! # Thread
//!
//! The store has a thread of its own, named `netwheel-timers`, on which starts and ends share
//! transactions. Handlers run on an event loop.

mod builder;
#[cfg(feature = "prometheus")]
mod collector;
mod cron;
mod driver;
mod due;
mod engine;
mod id;
mod late;
mod metrics;
mod permit;
mod retry;
mod schedule;
mod start;
pub mod store;
mod timers;
mod topic;
mod unix_millis;
mod writer;

pub use builder::DurableTimersBuilder;
#[cfg(feature = "prometheus")]
pub use collector::DurableCollector;
pub use cron::{Cron, CronError, CronField};
pub use due::Due;
pub use id::TimerId;
pub use late::Late;
pub use metrics::DurableMetrics;
pub use retry::Retry;
pub use start::{StartTimer, When};
pub use store::{
    SqliteStore, StoreError, StoreTransaction, TimerFilter, TimerInfo, TimerState, TimerStore, TopicCounts,
};
pub use timers::DurableTimers;
pub use topic::{Delivery, Topic};

/// The crate `rusqlite`, in the version of this crate's API.
pub use rusqlite;

use metrics::Metrics;
