//! The handshake of a client as a byte filter.
//!
//! Invariants: the filter finishes with the last byte of the response, so the first frames go to
//! the codec. A refusal is reported once, behind the part of its body that is kept.

use super::{ClientHandshake, HandshakeError, client::WebSocketClient};
use crate::{
    Result,
    channel::filter::{Filter, FilterContext, FilterState},
    http::{Upgrade, UpgradeReader, put_upgrade},
};
use std::sync::Arc;

/// A [`Filter`] that makes the handshake of a client, and then leaves the channel.
///
/// [`WebSocketClient::filter`] creates it.
#[derive(Debug)]
pub struct HandshakeFilter {
    handshake: ClientHandshake,
    target: Arc<str>,
    reader: UpgradeReader,
    is_finished: bool,
}

impl HandshakeFilter {
    pub(super) fn new(client: &WebSocketClient, target: Arc<str>) -> Self {
        let reader = UpgradeReader::new(HandshakeError::MAX_BODY);
        HandshakeFilter { handshake: client.handshake(), target, reader, is_finished: false }
    }

    fn handle(&mut self, ctx: &mut FilterContext<'_>, upgrade: Upgrade) -> Result {
        match upgrade {
            Upgrade::Pending => {}
            Upgrade::Switched(response) => {
                ctx.set_info(self.handshake.check(response)?);
                self.is_finished = true;
            }
            Upgrade::Refused(response) => return Err(HandshakeError::Refused(response).into()),
        }
        Ok(())
    }
}

impl Filter for HandshakeFilter {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        let request = self.handshake.request(&self.target);
        put_upgrade(&request, self.handshake.host(), ctx.output())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let (consumed, upgrade) = self.reader.read(input)?;
        self.handle(ctx, upgrade)?;
        Ok(consumed)
    }

    fn end_of_input(&mut self, ctx: &mut FilterContext<'_>, _: usize) -> Result {
        let upgrade = self.reader.end_of_input()?;
        self.handle(ctx, upgrade)
    }

    fn state(&self) -> FilterState {
        if self.is_finished { FilterState::Finished } else { FilterState::Handshaking }
    }
}
