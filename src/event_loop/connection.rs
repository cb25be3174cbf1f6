//! A connection before it is a channel.
//!
//! Invariant: a connection counts towards the load of its loop until its socket is closed, because
//! the [`Assignment`] is dropped after the stream. Created by listeners and by attempts to
//! connect, used on the loop that serves the channel.

use super::{filter_setup::FilterSetup, load::Assignment};
use crate::{
    channel::{AnyPipeline, ChannelConfig, ChannelShared, Peer, driver::Ready, filter::Filters},
    error::{Error, Result, panic_message},
    transport::{Stream, TcpOptions},
};
use std::{
    net::SocketAddr,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
    time::Duration,
};

/// Makes the pipeline of a new connection, on the connection's loop.
pub(crate) type PipelineFactory = dyn Fn(&Peer) -> Result<AnyPipeline> + Send + Sync;

/// The settings of the connections of one listener, or of one attempt to connect.
pub(crate) struct ChildSetup {
    pub(crate) factory: Box<PipelineFactory>,
    pub(crate) config: Arc<ChannelConfig>,
    pub(crate) options: TcpOptions,
    /// `None` without filters.
    pub(crate) filters: Option<FilterSetup>,
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
    pub(crate) start: ChannelStart,
    pub(crate) callback: Box<dyn ConnectCallback>,
    /// The event that reported the connection. The channel needs the other conditions in it, which
    /// are not reported again.
    pub(crate) ready: Ready,
}

/// The first step of a new channel.
pub(crate) enum ChannelStart {
    Pipeline(AnyPipeline),
    /// The pipeline is made when they are established.
    Filters(Box<Filters>),
}

/// Receives the result of an attempt to connect.
pub(crate) trait ConnectCallback: Send {
    /// Returns whether the connection is still wanted. Called before filters and the pipeline are
    /// made.
    fn is_wanted(&self) -> bool;

    /// Receives the channel, before its handler's `active` is called.
    fn connected(self: Box<Self>, shared: Arc<ChannelShared>);

    /// Receives the error that the attempt has failed with.
    fn failed(self: Box<Self>, error: Error);
}

impl Connection {
    /// Makes the following close reset the connection, if its transport can do that. For a
    /// connection that the program has not rejected: its end must not look like that of an empty
    /// response.
    #[cold]
    pub(super) fn reset_on_close(&self, loop_name: &str) {
        if self.stream.can_linger()
            && let Err(e) = self.stream.linger(Duration::ZERO)
        {
            log::debug!("{loop_name}: a connection is closed without a reset: {e}");
        }
    }

    /// Sets the socket options of a connected socket, and creates its pipeline. A panic in the
    /// factory is returned as an error.
    pub(super) fn make_pipeline(&mut self) -> Result<AnyPipeline> {
        self.apply_options()?;
        self.setup.make_pipeline(&self.peer())
    }

    /// Sets the socket options, and creates the filters or, without any, the pipeline.
    pub(super) fn make_start(&mut self) -> Result<ChannelStart> {
        match &self.setup.filters {
            None => self.make_pipeline().map(ChannelStart::Pipeline),
            Some(_) => self.make_filters().map(ChannelStart::Filters),
        }
    }

    /// Sets the socket options, and creates the filters.
    pub(super) fn make_filters(&mut self) -> Result<Box<Filters>> {
        self.apply_options()?;
        let filters = match &self.setup.filters {
            Some(setup) => caught_result(|| setup.make(&self.peer()))?,
            None => Vec::new(),
        };
        Ok(Box::new(Filters::new(filters, self.peer())))
    }

    fn apply_options(&mut self) -> Result {
        self.stream.apply(&self.setup.options).map_err(|e| Error::io("setting a socket's options", e))
    }

    fn peer(&self) -> Peer {
        Peer::new(self.peer, self.local).with_host(self.setup.config.host.clone())
    }
}

impl ChildSetup {
    /// Calls the program's factory. A panic in it is returned as an error.
    pub(super) fn make_pipeline(&self, peer: &Peer) -> Result<AnyPipeline> {
        caught_result(|| (self.factory)(peer))
    }
}

fn caught_result<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(result) => result,
        Err(panic) => Err(Error::panicked(panic_message(panic))),
    }
}
