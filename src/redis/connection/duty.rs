//! `Duty`: the purpose of a connection.

use crate::{
    codec::RespValue,
    error::{Error, Result},
    redis::server_info::ServerInfo,
};
use std::sync::Arc;

/// Makes the loop of a connection call [`Duty::send`] soon. For any thread.
pub(in crate::redis) type LinkWake = Arc<dyn Fn() + Send + Sync>;

/// A connection that is ready.
#[derive(Clone)]
pub(in crate::redis) struct Link {
    pub(in crate::redis) wake: LinkWake,
    pub(in crate::redis) server: ServerInfo,
}

/// The way to the server, during a callback.
pub(in crate::redis) trait LinkOutput {
    /// Writes a request.
    ///
    /// # Errors
    /// [`Error::Full`] or [`Error::Encode`] if it was not written.
    fn write(&mut self, request: Vec<bytes::Bytes>) -> Result;

    /// Writes a short request even if the output is full.
    ///
    /// # Errors
    /// The reason why nothing more can be written.
    fn write_beyond_limit(&mut self, request: Vec<bytes::Bytes>) -> Result;

    /// Returns whether the pending output is within the water marks. After `false`,
    /// [`Duty::send`] is called when it is again.
    fn is_writable(&self) -> bool;
}

/// The purpose of a connection. All functions are called on the loop of the connection, one after
/// the other: `opened` first, and `lost` last.
pub(in crate::redis) trait Duty: Send + Sync + 'static {
    /// Called when the server has accepted the client. `send` follows.
    fn opened(&self, link: Link);

    /// Writes waiting requests, as long as the output is writable.
    ///
    /// # Errors
    /// The reason to close the connection.
    fn send(&self, output: &mut dyn LinkOutput) -> Result;

    /// Handles a reply.
    ///
    /// # Errors
    /// The reason to close the connection.
    fn reply(&self, reply: RespValue, output: &mut dyn LinkOutput) -> Result;

    /// Handles a push message.
    ///
    /// # Errors
    /// The reason to close the connection.
    fn push(&self, message: Vec<RespValue>) -> Result;

    /// Records that a `PING` was written, whose reply `reply` gets.
    fn heartbeat(&self);

    /// Sends nothing more, because the loop shuts down.
    fn drain(&self);

    /// Fails the requests whose deadlines have passed. Returns the next deadline, in nanoseconds of
    /// the loop, or `u64::MAX`. Called after [`Duty::drain`], because a loop that shuts down
    /// cancels the timers of the lane.
    fn expire(&self) -> u64;

    /// Returns whether the connection is to be closed now, and why.
    fn finished(&self) -> Option<Error>;

    /// Called when the connection has ended, if `opened` was called.
    fn lost(&self, cause: &Error);

    /// Called when an attempt to connect or to log in has failed.
    fn unreachable(&self, cause: &Error);
}
