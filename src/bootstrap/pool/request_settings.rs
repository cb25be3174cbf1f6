//! The settings of a request to a pool, and the source of its connections.

use super::service::PoolService;
use crate::{
    bootstrap::Backoff,
    error::Result,
    group::EventLoopGroup,
    http::{Call, StatusCode},
};
use std::{sync::Arc, time::Duration};

/// The settings of a [`PoolRequest`](super::PoolRequest).
pub(super) struct RequestSettings {
    pub(super) source: Arc<dyn RequestSource>,
    pub(super) timeout: Duration,
    pub(super) attempt_timeout: Duration,
    pub(super) retries: u32,
    /// The statuses with which an attempt has failed.
    pub(super) statuses: Vec<StatusCode>,
    pub(super) backoff: Backoff,
    pub(super) is_idempotent: bool,
}

/// A pool that is about to be used, so its source keeps it.
pub(super) struct PoolInUse {
    pub(super) pool: Arc<PoolService<Call>>,
    /// The source counts its clones.
    pub(super) _in_use: Option<Arc<()>>,
}

/// The pool of a request.
pub(super) trait RequestSource: Send + Sync {
    /// Returns the pool for the next attempt.
    ///
    /// # Errors
    /// An error if the source has no pool for the request.
    fn pool(&self) -> Result<PoolInUse>;

    /// Returns whether the source is closed, so that a retry would fail.
    fn is_closed(&self) -> bool;

    fn group(&self) -> &EventLoopGroup;
}
