//! Rate limits of one client, enforced by backpressure.
//!
//! The requests of a fast client are not refused. The server stops reading from the client until
//! its debt is paid off, if necessary between two messages of the same read. Later requests wait in
//! the client's own socket.

use crate::{session::Session, token_bucket::TokenBucket};
use netwheel::{channel::InputGuard, prelude::*};
use std::time::Duration;

/// Burst size, as seconds of the client's rate.
const BURST: u32 = 2;
/// Cost of a lookup in requests. It is high because a lookup occupies a thread.
const LOOKUP: u32 = 10;
/// Cost of a request for which the store is asked.
const STORED: u32 = 5;

/// Rate limits of one client; zero disables a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rates {
    /// Requests per second.
    pub(crate) requests: u32,
    /// Deliveries per second that the client causes. A message to a room costs one per member.
    pub(crate) deliveries: u32,
    /// Pause after each message to a room in which a member does not keep up.
    pub(crate) congestion: Duration,
}

/// The cost of one request.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    requests: u32,
    deliveries: u32,
    congested: bool,
}

impl Cost {
    /// Returns the basic cost of every request.
    pub(crate) fn request() -> Self {
        Cost { requests: 1, ..Cost::default() }
    }

    /// Returns the additional cost of a lookup.
    pub(crate) fn lookup() -> Self {
        Cost { requests: LOOKUP - 1, ..Cost::default() }
    }

    /// Returns the additional cost of a request for which the store is asked.
    pub(crate) fn stored() -> Self {
        Cost { requests: STORED - 1, ..Cost::default() }
    }

    /// Returns the additional cost of a request that causes deliveries.
    pub(crate) fn deliveries(deliveries: usize) -> Self {
        Cost { deliveries: u32::try_from(deliveries).unwrap_or(u32::MAX), ..Cost::default() }
    }

    /// Returns the additional cost of a message to a room in which a member does not keep up.
    pub(crate) fn congestion() -> Self {
        Cost { congested: true, ..Cost::default() }
    }
}

/// Rate limit state of one client.
pub(crate) struct Pace {
    requests: TokenBucket,
    deliveries: TokenBucket,
    congestion: Duration,
    /// Cost of the current request.
    due: Cost,
    /// Held while reading is paused.
    pause: Option<InputGuard>,
}

impl Pace {
    pub(crate) fn new(rates: Rates) -> Self {
        let bucket = |rate: u32| TokenBucket::new(rate, rate.saturating_mul(BURST));
        let (requests, deliveries) = (bucket(rates.requests), bucket(rates.deliveries));
        Pace { requests, deliveries, congestion: rates.congestion, due: Cost::default(), pause: None }
    }

    /// Adds to the cost of the current request.
    pub(crate) fn charge(&mut self, cost: Cost) {
        self.due.requests = self.due.requests.saturating_add(cost.requests);
        self.due.deliveries = self.due.deliveries.saturating_add(cost.deliveries);
        self.due.congested |= cost.congested;
    }

    /// Refunds the basic cost of the current request.
    pub(crate) fn refund_request(&mut self) {
        self.due.requests = self.due.requests.saturating_sub(1);
    }

    /// Charges the cost of the current request, and pauses reading if the client is then in debt.
    pub(crate) fn settle(&mut self, ctx: &mut Context<'_, Session>) {
        let Cost { requests, deliveries, congested } = std::mem::take(&mut self.due);
        let now = ctx.now();
        let mut debt = self.requests.charge(requests, now).max(self.deliveries.charge(deliveries, now));
        if congested {
            debt = debt.max(self.congestion);
        }
        if !debt.is_zero() && self.pause.is_none() {
            self.pause = Some(ctx.pause_reading());
            ctx.schedule(debt, |me, _| {
                me.pace.pause = None;
                Ok(())
            });
        }
    }
}
