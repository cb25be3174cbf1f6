//! Lanes: the commands of one connection, in all its lives.

mod command_lane;
mod lane_state;
mod queue;
mod sending;
mod transaction_replies;

pub(super) use command_lane::CommandLane;
