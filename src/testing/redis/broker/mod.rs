//! The scripts of `RedisBroker`, in Rust: closures in the places of `src/broker/redis/scripts/`.
//!
//! Each file has the steps of the script with its name, in the same order. `tests/broker/` plays
//! the same calls with both.

mod calls;
mod change;
mod leases;
mod map;
mod publish;
mod read;
mod snapshot;
mod sweep;
mod topic;
mod tops;

use super::server::RedisServer;
use crate::broker::scripts;

impl RedisServer {
    /// Registers the scripts of [`RedisBroker`](crate::broker::RedisBroker), so that programs with
    /// such a broker can be simulated.
    #[must_use]
    pub fn broker_scripts(self) -> Self {
        self.script(scripts::PUBLISH, publish::publish)
            .script(scripts::READ, read::read)
            .script(scripts::TOPS, tops::tops)
            .script(scripts::CHANGE, change::change)
            .script(scripts::SNAPSHOT, snapshot::snapshot)
            .script(scripts::SWEEP, sweep::sweep)
            .script(scripts::RENEW, leases::renew)
            .script(scripts::LOST, leases::lost)
    }
}
