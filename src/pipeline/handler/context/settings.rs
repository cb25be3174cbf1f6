//! Settings of the channel that may change while it is open.

use super::Context;
use crate::{
    channel::{IdleState, IdleTimeouts, TimeLimits, TrafficShaping, WireLog},
    pipeline::handler::Handler,
};

impl<H: Handler> Context<'_, H> {
    /// Returns the idle timeouts of the channel.
    pub fn idle_timeouts(&self) -> IdleTimeouts {
        self.state.timing.idle_timeouts()
    }

    /// Sets the idle timeouts of the channel.
    ///
    /// If the channel had idle timeouts before, the idle time so far counts for the new ones.
    /// Otherwise idle time starts now.
    pub fn set_idle_timeouts(&mut self, timeouts: IdleTimeouts) {
        self.state.set_idle_timeouts(self.services, timeouts);
    }

    /// Resets all idle timers, as if bytes had just been read and written. Does not reset
    /// [`IdleEvent::first`](crate::IdleEvent::first).
    ///
    /// Use it for a sign of life that is not bytes, such as a renewed lease in a database. It takes
    /// a few stores, whether the channel has idle timeouts or not.
    pub fn reset_idle(&mut self) {
        for kind in [IdleState::Reader, IdleState::Writer] {
            self.reset_idle_of(kind);
        }
    }

    /// Resets the idle timers of one kind. Does not reset
    /// [`IdleEvent::first`](crate::IdleEvent::first).
    pub fn reset_idle_of(&mut self, kind: IdleState) {
        let now = self.services.now;
        self.state.reset_idle_of(kind, now);
    }

    /// Returns the time limits of the channel.
    pub fn time_limits(&self) -> TimeLimits {
        self.state.timing.time_limits()
    }

    /// Sets the time limits of the channel.
    ///
    /// The time that has passed counts for a limit that was set before. A new limit counts from
    /// now.
    pub fn set_time_limits(&mut self, limits: TimeLimits) {
        self.state.set_time_limits(self.services, limits);
    }

    /// Returns the traffic limits of the channel.
    pub fn traffic(&self) -> TrafficShaping {
        self.state.traffic_shaping()
    }

    /// Sets the traffic limits of the channel: [`TrafficLimits`](crate::traffic::TrafficLimits), a
    /// [`SharedTraffic`](crate::traffic::SharedTraffic), or both.
    ///
    /// Bytes that wait for the old limits continue under the new ones when this callback has
    /// returned, and at once without limits. The used part of the channel's own limits stays used.
    pub fn set_traffic(&mut self, shaping: impl Into<TrafficShaping>) {
        self.state.set_traffic_shaping(self.services, shaping.into());
    }

    /// Starts, changes or ends (`None`) the log of the channel's events and bytes.
    pub fn set_wire_log(&mut self, wire_log: impl Into<Option<WireLog>>) {
        self.state.extras.set_wire_log(wire_log.into());
    }
}
