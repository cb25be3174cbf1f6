//! The faults in which Redis is killed.

use super::{Play, VICTIM};
use netwheel::Result;
use std::time::Duration;

impl Play<'_> {
    /// Kills Redis, and starts it with the data that its persistence has kept.
    pub(super) fn kill_redis(&mut self) -> Result {
        // Some users are away, and have not received the lost messages. The node of the publishers
        // has no members.
        let node = if self.fault.has_publishers() { VICTIM + 1 } else { VICTIM };
        self.crowd.plan_to_stay_away(node, 4);
        self.cluster.nodes[node].front.reset_all();
        self.go_on("some users leave", Duration::from_secs(1))?;
        if let Some(redis) = &self.cluster.redis {
            redis.keep_file()?;
        }
        self.go_on("talking", Duration::from_secs(1))?;
        self.mark("kill");
        if let Some(redis) = &mut self.cluster.redis {
            redis.kill();
        }
        self.go_on("Redis is dead", self.options.down)?;
        if let Some(redis) = &mut self.cluster.redis {
            redis.restart()?;
        }
        self.mark("start");
        // Others talk before these users return.
        self.go_on("Redis is back", self.options.duration)
    }
}
