//! The sockets of a loop's channels: what the loop adds to their drivers.
//!
//! Always holds: a channel's socket leaves the poll before it is closed, or lingers there without the channel.
//! Runs on the loop's thread.

use super::{
    linger::{Ended, Leaving},
    lingering::{Lingering, begin_lingering},
    selector::Selector,
    sources::ChannelSlot,
};
use crate::{
    channel::{
        ChannelCore, ChannelTimer, LoopServices, Readiness,
        driver::{LoopIo, Next, Ready},
    },
    log_throttle::{BROKEN, log_throttled},
    metrics::Metrics,
};
use log::Level;
use std::{
    ops::{Deref, DerefMut},
    time::Duration,
};

/// Everything of a loop that handling one source's I/O needs, besides the source.
pub(crate) struct Io {
    pub(crate) selector: Selector,
    /// What the drivers of channels need.
    pub(crate) drivers: LoopIo,
    /// Channels that are closed, and for which `inactive` has not been called yet.
    pub(crate) inactive: Vec<Ended>,
    pub(crate) lingering: Lingering,
}

impl Deref for Io {
    type Target = LoopIo;

    #[inline]
    fn deref(&self) -> &LoopIo {
        &self.drivers
    }
}

impl DerefMut for Io {
    #[inline]
    fn deref_mut(&mut self) -> &mut LoopIo {
        &mut self.drivers
    }
}

impl ChannelSlot {
    #[inline]
    pub(crate) fn handle_ready(&mut self, io: &mut Io, metrics: &Metrics, ready: Ready) {
        let next = self.driver.handle_ready(io, ready);
        self.proceed(io, metrics, next);
    }

    pub(crate) fn activate(&mut self, io: &mut Io, metrics: &Metrics) {
        let next = self.driver.activate(io);
        self.proceed(io, metrics, next);
    }

    pub(crate) fn read(&mut self, io: &mut Io, metrics: &Metrics) {
        let next = self.driver.read(io);
        self.proceed(io, metrics, next);
    }

    pub(crate) fn attend(&mut self, io: &mut Io, metrics: &Metrics) {
        let next = self.driver.attend(io);
        self.proceed(io, metrics, next);
    }

    pub(crate) fn handle_timer(&mut self, io: &mut Io, metrics: &Metrics, timer: ChannelTimer) {
        let next = self.driver.handle_timer(io, timer);
        self.proceed(io, metrics, next);
    }

    /// Calls into the core, then does what cannot wait until the end of the turn.
    #[inline]
    pub(crate) fn call(
        &mut self,
        io: &mut Io,
        metrics: &Metrics,
        f: impl FnOnce(&mut ChannelCore, &mut LoopServices),
    ) {
        let next = self.driver.call(io, f);
        self.proceed(io, metrics, next);
    }

    #[inline]
    fn proceed(&mut self, io: &mut Io, metrics: &Metrics, next: Next) {
        if next == Next::Close {
            self.close(io, metrics);
        }
    }

    /// Closes the channel and its socket; after a graceful close the socket may linger. `inactive`
    /// is called later in the turn, never from here.
    pub(crate) fn close(&mut self, io: &mut Io, metrics: &Metrics) {
        let Some(stream) = self.driver.transport.take() else { return };
        let core = &mut self.driver.core;
        let reset = core.state.status.resets().then_some(Duration::ZERO);
        let linger = reset.or(core.state.config.linger).filter(|_| stream.can_linger());
        if reset.is_some()
            && linger.is_some()
            && let Err(e) = stream.linger(Duration::ZERO)
        {
            let (services, id) = (&io.services, core.state.id());
            log_throttled!(services, BROKEN, Level::Debug, "channel {id}: closed without a reset: {e}");
        }
        // The end of the stream would come before the reset, and the peer take it for a good one.
        let resets = linger.is_some_and(|time| time.is_zero());
        // A stream that was read to its end has nothing more: there to close it is to end it.
        let unread =
            !core.state.status.has(Readiness::HANG_UP) || core.state.status.has(Readiness::MAYBE_READABLE);
        let gracefully = unread && !core.state.status.closes_at_once() && !resets;
        let kept = if gracefully { begin_lingering(core, stream, io, linger.is_none()) } else { Err(stream) };
        let socket = match kept {
            Ok(socket) => Leaving::Lingers(socket),
            Err(mut stream) => {
                if let Err(e) = io.selector.deregister(stream.source()) {
                    let (services, id) = (&io.services, core.state.id());
                    log_throttled!(services, BROKEN, Level::Debug, "channel {id}: leaving the poll: {e}");
                }
                match linger.filter(|time| !time.is_zero()) {
                    Some(time) => Leaving::Blocks(stream, time),
                    None => Leaving::Closed,
                }
            }
        };
        metrics.channels.set(metrics.channels.read().saturating_sub(1));
        metrics.channels_closed.add(1);
        let unsent = core.state.pending_bytes();
        if unsent > 0 {
            metrics.closes_unsent.add(1);
            metrics.bytes_unsent.add(unsent as u64);
        }
        core.handle_closed(&mut io.services);
        io.inactive.push(Ended { key: core.state.key(), socket });
    }
}
