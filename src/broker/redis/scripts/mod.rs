//! The scripts of `RedisBroker`, in Lua.
//!
//! Each runs in one slot of Redis Cluster. `testing::redis` has a closure for each of them.

macro_rules! script {
    ($($file:literal),+) => {
        concat!($(include_str!($file)),+)
    };
}

pub(crate) const PUBLISH: &str = script!("topic.lua", "publish.lua");
pub(crate) const READ: &str = script!("topic.lua", "read.lua");
pub(crate) const TOPS: &str = script!("topic.lua", "tops.lua");
pub(crate) const CHANGE: &str = script!("topic.lua", "map.lua", "change.lua");
pub(crate) const SNAPSHOT: &str = script!("topic.lua", "snapshot.lua");
pub(crate) const SWEEP: &str = script!("topic.lua", "map.lua", "sweep.lua");
pub(crate) const RENEW: &str = script!("renew.lua");
pub(crate) const LOST: &str = script!("lost.lua");

/// All scripts.
pub(crate) const ALL: [&str; 8] = [PUBLISH, READ, TOPS, CHANGE, SNAPSHOT, SWEEP, RENEW, LOST];
