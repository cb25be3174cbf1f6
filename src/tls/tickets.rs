//! The keys of session tickets.
//!
//! Invariant: a ticket is accepted until its key was rotated twice by time, or renewed once by the
//! program.

use super::provider::ticketer;
use crate::error::{Error, Result};
use rustls::server::ProducesTickets;
use std::sync::{Arc, PoisonError, RwLock};

#[derive(Debug)]
pub(super) struct Tickets(RwLock<Arc<dyn ProducesTickets>>);

impl Tickets {
    pub(super) fn new() -> Result<Self> {
        ticketer().map(|ticketer| Tickets(RwLock::new(ticketer))).map_err(Error::other)
    }

    /// Replaces the keys, so that no ticket issued before is accepted.
    pub(super) fn renew(&self) -> Result {
        let new = ticketer().map_err(Error::other)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    fn current(&self) -> Arc<dyn ProducesTickets> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl ProducesTickets for Tickets {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        self.current().lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        self.current().encrypt(plain)
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        self.current().decrypt(cipher)
    }
}
