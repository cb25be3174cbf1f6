//! `MapTopic`: a map that nodes share, with a replica on each node that follows it.
//!
//! `state` has the replica (`follower`) and the entries of this node (`holdings`), both without
//! I/O. `core` has the map of a node, and its pump, which carries out their steps on one thread at
//! a time. No lock is held while code of the program runs.

mod builder;
mod core;
mod event;
mod follower;
mod handle;
mod hold_caller;
mod holding;
mod holdings;
mod loading;
mod operations;
mod pump;
mod replica;
mod settings;
mod state;
#[cfg(test)]
mod tests;
mod unused;

pub use builder::MapBuilder;
pub use event::MapEvent;
pub use handle::MapTopic;
