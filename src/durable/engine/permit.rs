//! `Permit`: bounds the operations that the store has not answered.

use crate::{
    error::{Error, Resource, Result},
    sync::Permits,
};
use std::sync::Arc;

/// Returns itself to the semaphore when it is dropped.
#[derive(Debug)]
pub(in crate::durable) struct Permit(Arc<Permits>);

impl Permit {
    pub(in crate::durable) fn take(permits: &Arc<Permits>) -> Result<Self> {
        if permits.take() {
            Ok(Permit(permits.clone()))
        } else {
            Err(Error::Full { resource: Resource::TimerOperations, limit: permits.limit() })
        }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.0.give_back();
    }
}
