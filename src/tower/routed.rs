//! `Routed`: who answers a request.

use crate::{
    error::Result,
    http::{Part, Request, Response},
    pipeline::ChannelContext,
};

/// The result of [`TowerServer::route`](super::TowerServer::route): who answers a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Routed {
    /// The service gets the request.
    Service,
    /// The closure has answered the request, or will. The body of the request is dropped.
    Answered,
}

/// The closure that sees each request before the service.
pub(super) type RouteFn =
    dyn Fn(&mut ChannelContext<'_, Part<Response>>, &Request) -> Result<Routed> + Send + Sync;
