//! An accepted connection whose filters are being established.
//!
//! Invariant: a connection whose announced address is not admitted gets no pipeline. Runs on the
//! loop's thread.

use super::counts::{count_established, count_failed};
use crate::{
    admission::{AddressChange, Rejection},
    channel::{AnyPipeline, ChannelShared, Establish, Peer},
    error::{Error, Result, caught},
    event_loop::{
        accept::count_rejection,
        connection::{ChildSetup, Connection},
        shared::LoopShared,
    },
    log_throttle::{LogAt, TURNING_AWAY, log_throttled},
};
use log::Level;
use std::sync::Arc;

pub(in crate::event_loop) struct AcceptedChannel {
    setup: Arc<ChildSetup>,
    address: Option<AddressChange>,
    shared: Arc<LoopShared>,
}

impl AcceptedChannel {
    pub(in crate::event_loop) fn new(connection: &mut Connection, shared: Arc<LoopShared>) -> Self {
        let setup = connection.setup.clone();
        let gate = setup.filters.as_ref().and_then(|filters| filters.gate.as_ref());
        let address = gate.map(|gate| gate.address_change(connection.assignment.admitted_mut()));
        AcceptedChannel { setup, address, shared }
    }

    /// Asks the gate about the announced address.
    fn admit(&self, peer: &Peer) -> Result {
        let (Some(change), Some(address)) = (&self.address, peer.address()) else { return Ok(()) };
        let Err(reason) = change.change(address.ip()) else { return Ok(()) };
        let LoopShared { name, log, time, metrics, .. } = &*self.shared;
        let (topic, level) = count_rejection(metrics, reason);
        let rejection = Rejection::new(Some(address), reason);
        let panicked = caught(|| change.settings().notify(&rejection));
        let at = LogAt { log, now: time.now() };
        log_throttled!(at, topic, level, "{name}: {rejection}");
        if let Some(message) = panicked {
            log_throttled!(
                at,
                TURNING_AWAY,
                Level::Error,
                "{name}: the rejection callback panicked: {message}"
            );
        }
        Err(Error::other(rejection.to_string()))
    }
}

impl Establish for AcceptedChannel {
    fn announced(&mut self, peer: &Peer) -> Result {
        self.admit(peer)
    }

    fn pipeline(&mut self, peer: &Peer) -> Result<AnyPipeline> {
        self.setup.make_pipeline(peer)
    }

    fn established(self: Box<Self>, _share: &mut dyn FnMut() -> Arc<ChannelShared>) {
        count_established(&self.shared.metrics);
    }

    fn failed(self: Box<Self>, error: Error) {
        count_failed(&self.shared.metrics, &error);
    }
}
