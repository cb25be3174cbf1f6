//! The settings of embedded loops and channels.
//!
//! Invariant: a setting, its default and its range are the same for a loop and for a channel,
//! because the builder of a channel contains the builder of its loop.

use super::{embedded::EmbeddedChannel, embedded_loop::EmbeddedLoop};
use crate::{
    channel::{
        ChannelConfig, ChannelOptions, HANDSHAKE_TIMEOUT, Pipeline, check_handshake_timeout, filter::Filter,
    },
    clock::ManualClock,
    error::Result,
};
use std::{fmt, time::Duration};

/// A builder for an [`EmbeddedLoop`]. Returned by [`EmbeddedLoop::builder`].
///
/// | setting | default |
/// |---|---|
/// | `channel_options` | [`ChannelOptions::new`] |
/// | `handshake_timeout` | 10 s, at least 1 ms |
/// | `clock` | a new [`ManualClock`] |
/// | `wheel_tick` | 1 ms |
///
/// ```
/// use netwheel::testing::{EmbeddedLoop, ManualClock};
/// use std::time::Duration;
///
/// let clock = ManualClock::new();
/// let tick = Duration::from_millis(100);
/// let event_loop = EmbeddedLoop::builder().clock(clock.clone()).wheel_tick(tick).build()?;
/// assert_eq!(event_loop.channels(), 0);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct EmbeddedLoopBuilder {
    options: ChannelOptions,
    handshake_timeout: Duration,
    clock: ManualClock,
    wheel_tick: Duration,
}

/// A builder for an [`EmbeddedChannel`]. Returned by [`EmbeddedChannel::builder`].
///
/// It has the settings of [`EmbeddedLoopBuilder`], with the same defaults.
///
/// ```
/// use netwheel::{
///     bytes::Bytes, channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedChannel,
/// };
///
/// let echo = Pipeline::codec(Line::new()).on_read(|ctx, line: Bytes| ctx.write(line));
/// let options = ChannelOptions::new().max_outbound(4096);
/// let mut channel = EmbeddedChannel::builder(echo).channel_options(options).build()?;
/// channel.write_inbound(b"hi\n")?;
/// assert_eq!(channel.read_outbound(), &b"hi\n"[..]);
/// # Ok::<(), netwheel::Error>(())
/// ```
#[must_use]
pub struct EmbeddedChannelBuilder<M> {
    pipeline: Pipeline<M>,
    filters: Vec<Box<dyn Filter>>,
    event_loop: EmbeddedLoopBuilder,
}

impl EmbeddedLoop {
    /// Returns a builder with default settings.
    pub fn builder() -> EmbeddedLoopBuilder {
        EmbeddedLoopBuilder::new()
    }
}

impl<M: 'static> EmbeddedChannel<M> {
    /// Returns a builder with default settings for a channel with this pipeline.
    pub fn builder(pipeline: Pipeline<M>) -> EmbeddedChannelBuilder<M> {
        EmbeddedChannelBuilder::new(pipeline)
    }
}

impl EmbeddedLoopBuilder {
    fn new() -> Self {
        EmbeddedLoopBuilder {
            options: ChannelOptions::new(),
            handshake_timeout: HANDSHAKE_TIMEOUT,
            clock: ManualClock::new(),
            wheel_tick: Duration::from_millis(1),
        }
    }

    /// Sets the channel options: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the limit for the handshakes of a channel's byte filters, including filters that a
    /// handler starts. The default is 10 s.
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.handshake_timeout = timeout;
        self
    }

    /// Sets the clock, which other objects may share. The default is a new clock.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.clock = clock;
        self
    }

    /// Sets the granularity of idle timeouts and coarse delays. An idle event is late by at most
    /// this time. The default is 1 ms, which is shorter than the default of a group, so that a test
    /// sees idle events at their exact times.
    pub fn wheel_tick(mut self, tick: Duration) -> Self {
        self.wheel_tick = tick;
        self
    }

    /// Creates the loop, without channels.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if a setting is out of range.
    pub fn build(self) -> Result<EmbeddedLoop> {
        let handshake_timeout = check_handshake_timeout(self.handshake_timeout)?;
        let config = ChannelConfig { handshake_timeout, ..self.options.build()? };
        EmbeddedLoop::create(config, self.clock, self.wheel_tick)
    }
}

impl<M: 'static> EmbeddedChannelBuilder<M> {
    fn new(pipeline: Pipeline<M>) -> Self {
        EmbeddedChannelBuilder { pipeline, filters: Vec::new(), event_loop: EmbeddedLoopBuilder::new() }
    }

    /// Adds a byte filter. Several filters stack, the first one next to the peer. The handler's
    /// `active` is called when all of them are established.
    pub fn filter(mut self, filter: impl Filter) -> Self {
        self.filters.push(Box::new(filter));
        self
    }

    /// Sets the limit for the handshakes of all filters together. See
    /// [`EmbeddedLoopBuilder::handshake_timeout`].
    pub fn handshake_timeout(mut self, timeout: Duration) -> Self {
        self.event_loop = self.event_loop.handshake_timeout(timeout);
        self
    }

    /// Sets the channel options: water marks, limits, budgets.
    pub fn channel_options(mut self, options: ChannelOptions) -> Self {
        self.event_loop = self.event_loop.channel_options(options);
        self
    }

    /// Sets the clock, which other objects may share. The default is a new clock.
    pub fn clock(mut self, clock: ManualClock) -> Self {
        self.event_loop = self.event_loop.clock(clock);
        self
    }

    /// Sets the granularity of idle timeouts and coarse delays. See
    /// [`EmbeddedLoopBuilder::wheel_tick`].
    pub fn wheel_tick(mut self, tick: Duration) -> Self {
        self.event_loop = self.event_loop.wheel_tick(tick);
        self
    }

    /// Creates a connected channel. The handler's `active` has been called when this returns,
    /// unless a filter is not established yet.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if a setting is out of range. The pipeline is then
    /// dropped, and its handler is not called.
    pub fn build(self) -> Result<EmbeddedChannel<M>> {
        let EmbeddedChannelBuilder { mut pipeline, filters, event_loop } = self;
        if !filters.is_empty() {
            pipeline = pipeline.filters(filters);
        }
        Ok(EmbeddedChannel::of(event_loop.build()?, pipeline))
    }
}

impl<M> fmt::Debug for EmbeddedChannelBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddedChannelBuilder").field("event_loop", &self.event_loop).finish_non_exhaustive()
    }
}
