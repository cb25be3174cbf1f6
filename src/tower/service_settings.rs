//! `ServiceSettings`: the settings that all connections of a server share.

use super::routed::RouteFn;
use std::sync::Arc;

/// The settings that all connections of a server share.
#[derive(Clone)]
pub(super) struct ServiceSettings {
    pub(super) polls_on_loop: bool,
    pub(super) route: Option<Arc<RouteFn>>,
}
