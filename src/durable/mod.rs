//! Timers that survive the program: stored before `start` completes, fired through an event loop.
//!
//! [`DurableTimers`] is the handle of a program. It is built with a store and [`Topic`]s. A timer
//! is a topic, a time and a payload; closures are never stored. The store of one process is an
//! SQLite file (`SqliteStore`, feature `durable-sqlite`). Several nodes share a database of
//! PostgreSQL (`PostgresStore`, feature `durable-postgres`). Tests of a program use a
//! [`MemoryDisk`], which can crash and fail. A [`TimerStore`] of the program works too. The guide
//! has a chapter with a complete program ([`guide::durable_timers`](crate::guide::durable_timers)).
//!
//! # Guarantees
//!
//! - A completed start is on disk. The timer survives a crash, and a power failure if the disk
//!   honours `fsync`.
//! - A timer fires at least once ([`Delivery::AtLeastOnce`]), or at most once
//!   ([`Delivery::AtMostOnce`]), as its topic states. A run is repeated only if the program or the
//!   store stopped after the handler was called and before its answer was stored.
//! - Rows that a handler writes with [`Due::done_with`] are stored exactly once.
//! - Never early by the wall clock. If the wall clock is set, timers follow it within a second.
//! - The next run of a periodic timer is stored in the same transaction that ends the current one.
//! - Each topic has a policy for late timers ([`Late`]).
//! - A `cancel` that returned `true` is never followed by a run. In a store of several nodes, this
//!   holds for runs that the owner of the timer has not begun.
//!
//! # Order
//!
//! Timers fire in the order of their due times, and those of the same millisecond in the order of
//! their starts. A handler is called for one timer after the other, on one event loop. Answers that
//! come later, and retries, do not keep that order. Timers that run at most once, and those whose
//! attempt is noted after a crash, wait for a transaction first, so later ones may overtake them.
//!
//! # Thread
//!
//! The store has a thread of its own, named `netwheel-timers`, on which starts and ends share
//! transactions. Handlers run on an event loop.

mod backoff;
mod cron;
mod dead_work;
mod driver;
mod engine;
mod handle;
mod id;
mod metrics;
mod policy;
mod port;
mod request;
mod schedule;
mod starting;
pub mod store;
mod timer_clock;
mod topic;
mod unix_millis;

pub use cron::{Cron, CronError, CronField};
pub use handle::{DurableTimers, DurableTimersBuilder, StartTimer, When};
pub use id::TimerId;
pub use metrics::DurableMetrics;
pub use policy::{Delivery, Late, Retry};
#[cfg(feature = "durable-sqlite")]
pub use store::SqliteStore;
pub use store::{
    MemoryDatabase, MemoryDisk, MemoryStore, MemoryTransaction, StartIn, StoreError, StoreTransaction,
    TimerFilter, TimerInfo, TimerState, TimerStore, TopicCounts,
};
#[cfg(feature = "durable-postgres")]
pub use store::{PostgresStore, PostgresStoreBuilder};
pub use topic::{Due, Topic};

/// The crate `postgres`, in the version of this crate's API.
#[cfg(feature = "postgres-019")]
pub use postgres;
/// The crate `rusqlite`, in the version of this crate's API.
#[cfg(feature = "rusqlite-040")]
pub use rusqlite;
