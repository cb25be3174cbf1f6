//! Builders of event loop groups, and the choice of the loop that serves the next channel.
//!
//! See [`EventLoopGroup`].

// Groups of event loops, and the choice of the loop that serves the next channel.
//
// Invariants: a group has at least one loop. `next` returns one of them for every result of the
// chooser. The group owns no channel. Its loops live until they are shut down, not until the last
// handle is dropped.

mod builder;
mod chooser;
pub(crate) mod event_loop_group;
mod manual;

pub use builder::EventLoopGroupBuilder;
pub use chooser::{Chooser, LeastConnections, LeastLag, RoundRobin};
pub(crate) use event_loop_group::EventLoopGroup;
pub use manual::ManualEventLoop;
