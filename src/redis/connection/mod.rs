//! Connections: login, heartbeat, and the way to and from a lane.
//!
//! A lane implements [`Duty`]: it provides requests and handles replies. `ConnectionStage` is
//! the end of a pipeline, and calls the lane on the loop of the connection. `LaneConnector` makes
//! connections that reconnect.

mod connector;
mod duty;
mod handshake;
mod heartbeat;
mod stage;

pub(super) use connector::{LaneConnector, RedisTarget, max_reply_bytes};
pub(super) use duty::{Duty, Link, LinkOutput, LinkWake};
pub(super) use handshake::Login;
