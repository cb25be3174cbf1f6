//! The handshake of a client as a byte filter.
//!
//! Invariants: the filter finishes with the last byte of the response, so the first frames go to
//! the codec. A refusal is reported once, behind the part of its body that is kept.

use super::{
    client::{ClientHandshake, WebSocketClient},
    handshake_error::HandshakeError,
};
use crate::{
    channel::filter::{Filter, FilterContext, FilterState},
    error::Result,
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

impl WebSocketClient {
    /// Returns a byte filter that makes the handshake for `target`, such as `/chat`.
    ///
    /// [`ClientBootstrap::websocket`](crate::ClientBootstrap::websocket) adds it to each connection
    /// of a client. Use it directly in tests, or with
    /// [`Context::start_filter`](crate::Context::start_filter) on a connection through a proxy. It
    /// stores an [`Accepted`](crate::websocket::Accepted) as
    /// [info](crate::filter::FilterContext::set_info).
    pub fn filter(&self, target: &str) -> HandshakeFilter {
        HandshakeFilter::new(self, target.into())
    }
}

impl HandshakeFilter {
    fn new(client: &WebSocketClient, target: Arc<str>) -> Self {
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
