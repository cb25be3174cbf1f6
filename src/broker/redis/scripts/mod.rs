//! The scripts of `RedisBroker`, in Lua.
//!
//! Each runs in one slot of Redis Cluster. `testing::redis` has a closure for each of them.

use std::time::Duration;

/// The longest life of the metadata of a map without entries, as topic.lua states it in
/// milliseconds.
pub(crate) const EMPTY_MAP_LIFE: Duration = Duration::from_secs(3600);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_life_of_an_empty_map_is_that_of_the_script() {
        let line = format!("\nlocal EMPTY_MAP_LIFE = {}\n", EMPTY_MAP_LIFE.as_millis());
        assert!(TOPS.contains(&line), "topic.lua does not contain {line:?}");
    }
}
