//! A connected channel whose filters are being established.
//!
//! Invariant: the callback of the attempt is called exactly once. Runs on the loop's thread.

use super::counts::{count_established, count_failed};
use crate::{
    channel::{AnyPipeline, ChannelShared, Establish, Peer},
    error::{Error, Result},
    event_loop::{
        connection::{ChildSetup, ConnectCallback, Connection},
        shared::LoopShared,
    },
};
use std::sync::Arc;

pub(in crate::event_loop) struct ConnectedChannel {
    setup: Arc<ChildSetup>,
    callback: Box<dyn ConnectCallback>,
    shared: Arc<LoopShared>,
}

impl ConnectedChannel {
    pub(in crate::event_loop) fn new(
        connection: &Connection,
        callback: Box<dyn ConnectCallback>,
        shared: Arc<LoopShared>,
    ) -> Self {
        ConnectedChannel { setup: connection.setup.clone(), callback, shared }
    }
}

impl Establish for ConnectedChannel {
    fn announced(&mut self, _peer: &Peer) -> Result {
        Ok(())
    }

    fn pipeline(&mut self, peer: &Peer) -> Result<AnyPipeline> {
        if !self.callback.is_wanted() {
            return Err(Error::Cancelled);
        }
        self.setup.make_pipeline(peer)
    }

    fn established(self: Box<Self>, share: &mut dyn FnMut() -> Arc<ChannelShared>) {
        count_established(&self.shared.metrics);
        self.shared.metrics.connected.add(1);
        self.callback.connected(share());
    }

    fn failed(self: Box<Self>, error: Error) {
        count_failed(&self.shared.metrics, &error);
        self.shared.metrics.connect_errors.add(1);
        // A channel that is closed by the shutdown of its loop has no error of its own.
        let shut_down = matches!(error, Error::Closed) && self.shared.is_shutdown_requested();
        self.callback.failed(if shut_down { Error::ShutDown } else { error });
    }
}
