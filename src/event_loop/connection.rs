//! A connection before it is a channel.
//!
//! Invariant: a connection counts towards the load of its loop until its socket is closed, because
//! the [`Assignment`] is dropped after the stream. Created by listeners and by attempts to
//! connect, used on the loop that serves the channel.

use super::load::Assignment;
use crate::{
    Error, Result,
    channel::{AnyPipeline, ChannelConfig, ChannelShared, driver::Ready, peer::Peer},
    error::panic_message,
    transport::{Stream, TcpOptions},
};
use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// Makes the pipeline of a new connection, on the connection's loop.
pub(crate) type PipelineFactory = dyn Fn(&Peer) -> Result<AnyPipeline> + Send + Sync;

/// The settings of the connections of one listener, or of one attempt to connect.
pub(crate) struct ChildSetup {
    pub(crate) factory: Box<PipelineFactory>,
    pub(crate) config: Arc<ChannelConfig>,
    pub(crate) options: TcpOptions,
}

/// A socket that is connected, or will be, and the settings of its channel.
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Declared after the stream, so that it is dropped when the socket is closed.
    pub(crate) assignment: Assignment,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) setup: Arc<ChildSetup>,
}

/// A connection that an attempt to connect has established.
pub(crate) struct Established {
    pub(crate) connection: Connection,
    pub(crate) pipeline: AnyPipeline,
    pub(crate) callback: Box<dyn ConnectCallback>,
    /// The event that reported the connection. The channel needs the other conditions in it, which
    /// are not reported again.
    pub(crate) ready: Ready,
}

/// Receives the result of an attempt to connect.
pub(crate) trait ConnectCallback: Send {
    /// Returns whether the connection is still wanted. Called before the pipeline is made.
    fn is_wanted(&self) -> bool;

    /// Receives the channel, before its handler's `active` is called.
    fn connected(self: Box<Self>, shared: Arc<ChannelShared>);

    /// Receives the error that the attempt has failed with.
    fn failed(self: Box<Self>, error: Error);
}

impl Connection {
    /// Sets the socket options of a connected socket, and creates its pipeline. A panic in the
    /// factory is returned as an error.
    pub(super) fn make_pipeline(&mut self) -> Result<AnyPipeline> {
        let Connection { stream, setup, peer, local, .. } = self;
        stream.apply(&setup.options).map_err(|e| Error::io("setting a socket's options", e))?;
        let peer = Peer::new(*peer, *local);
        match catch_unwind(AssertUnwindSafe(|| (setup.factory)(&peer))) {
            Ok(result) => result,
            Err(panic) => Err(Error::panicked(panic_message(panic))),
        }
    }
}
