//! Lanes: the commands of one connection, in all its lives.

mod command_lane;
mod queue;

pub(super) use command_lane::CommandLane;
