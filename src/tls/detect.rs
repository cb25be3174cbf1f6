//! `Detect`: TLS and plaintext on one port.
//!
//! Invariant: the bytes that decide are not consumed.

use super::filter::TlsFilter;
use crate::{
    channel::filter::{Filter, FilterContext, FilterState},
    error::Result,
};

/// The first bytes of a TLS connection: the type of a handshake record, and the major version.
const TLS: [u8; 2] = [0x16, 0x03];

/// A prefix filter that makes way for TLS or for plaintext.
pub(super) struct Detect {
    /// `None` once it has decided.
    tls: Option<TlsFilter>,
}

impl Detect {
    pub(super) fn new(tls: TlsFilter) -> Self {
        Detect { tls: Some(tls) }
    }
}

impl Filter for Detect {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let seen = &input[..input.len().min(TLS.len())];
        if seen == TLS {
            if let Some(tls) = self.tls.take() {
                ctx.insert_above(tls);
            }
        } else if !TLS.starts_with(seen) {
            self.tls = None;
        }
        Ok(0)
    }

    fn state(&self) -> FilterState {
        if self.tls.is_some() { FilterState::Handshaking } else { FilterState::Finished }
    }
}
