//! The builder that adds stages and the handler to a codec.

use super::{
    ChannelContext, Staged,
    handler::Handler,
    links::{Assembled, Links},
    read_fn::ReadFn,
    stage::Stage,
};
use crate::{
    channel::{
        AnyPipeline, Exchanges, IdleTimeouts, Pipeline, PipelineSettings, TimeLimits, TrafficShaping, WireLog,
    },
    error::Result,
};
use std::sync::Arc;

/// An unfinished pipeline, to which stages and a handler are added.
///
/// [`Pipeline::codec`] returns one. [`handler`](PipelineBuilder::handler) and
/// [`on_read`](PipelineBuilder::on_read) finish it.
///
/// `L` is the type of the codec and stages so far. [`Links`] shows how a function returns an
/// unfinished pipeline without naming that type.
///
/// ```
/// # use netwheel::prelude::*;
/// # use netwheel::codec::LengthField;
/// # use std::time::Duration;
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// let pipeline = Pipeline::codec(LengthField::u32())
///     .idle(IdleTimeouts::new().reader(Duration::from_secs(60)))
///     .handler(Echo);
/// ```
#[must_use = "an unfinished pipeline does nothing; finish it with `.handler(..)` or `.on_read(..)`"]
pub struct PipelineBuilder<L> {
    pub(super) links: L,
    pub(super) settings: PipelineSettings,
}

impl<L> PipelineBuilder<L> {
    /// Sets the channel's [`IdleTimeouts`]. The default is none.
    pub fn idle(mut self, timeouts: IdleTimeouts) -> Self {
        self.settings.idle = timeouts;
        self
    }

    /// Sets the channel's [`TimeLimits`], which close a channel that is too slow. The default is
    /// none.
    pub fn time_limits(mut self, limits: TimeLimits) -> Self {
        self.settings.limits = limits;
        self
    }

    /// Logs the channel's events, and its bytes as a hex dump. See [`WireLog`].
    pub fn wire_log(mut self, wire_log: WireLog) -> Self {
        self.settings.extras.set_wire_log(Some(wire_log));
        self
    }

    /// Inserts a value into the channel's [`Attributes`](crate::channel::Attributes). Replaces an
    /// earlier value of the same type.
    pub fn attribute<T: 'static>(mut self, value: T) -> Self {
        self.settings.extras.attributes_mut().insert(value);
        self
    }

    /// Limits how many bytes per second the channel reads and writes. The default is no limit.
    ///
    /// Takes [`TrafficLimits`](crate::traffic::TrafficLimits) for this channel,
    /// [`SharedTraffic`](crate::traffic::SharedTraffic) for several channels together, or both.
    pub fn traffic(mut self, shaping: impl Into<TrafficShaping>) -> Self {
        self.settings.traffic = shaping.into();
        self
    }

    /// Reports to pools whether the channel is between two exchanges.
    #[cfg_attr(not(feature = "http"), expect(dead_code, reason = "for HTTP clients"))]
    pub(crate) fn exchanges(mut self, exchanges: Arc<Exchanges>) -> Self {
        self.settings.extras.set_exchanges(exchanges);
        self
    }
}

impl<L: Links> PipelineBuilder<L> {
    /// Adds a stage behind the codec and the stages so far.
    ///
    /// The stage must read the messages that the links before it produce (`S::ReadIn = L::Read`),
    /// and write messages that they accept (`S::WriteOut = L::Write`). A pipeline has at most 32
    /// stages; more do not compile.
    pub fn stage<S>(self, stage: S) -> PipelineBuilder<Staged<L, S>>
    where
        S: Stage<ReadIn = L::Read, WriteOut = L::Write>,
    {
        PipelineBuilder { links: Staged { before: self.links, stage }, settings: self.settings }
    }

    /// Adds the handler, which finishes the pipeline.
    ///
    /// The handler must read the messages that the links before it produce (`H::Read = L::Read`),
    /// and write messages that they accept (`H::Write = L::Write`).
    pub fn handler<H>(self, handler: H) -> Pipeline<H::Write>
    where
        H: Handler<Read = L::Read, Write = L::Write>,
    {
        let PipelineBuilder { links, settings } = self;
        Pipeline::new(AnyPipeline { links: Box::new(Assembled { links, handler }), settings })
    }

    /// Finishes the pipeline with a closure that is called with each message.
    ///
    /// The closure is a [`Handler`] whose other callbacks have their defaults: an error closes the
    /// channel, and so do an idle event and the end of the peer's stream. Implement `Handler`
    /// instead if the program needs another callback, or state that timers and tasks use.
    ///
    /// ```
    /// use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
    ///
    /// let echo = Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line));
    ///
    /// let mut channel = EmbeddedChannel::new(echo);
    /// channel.write_inbound(b"hello\n")?;
    /// assert_eq!(channel.read_outbound(), &b"hello\n"[..]);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// The closure may own state. Each channel has a closure of its own:
    ///
    /// ```
    /// # use netwheel::{codec::Line, prelude::*, testing::EmbeddedChannel};
    /// # let pipeline = || {
    /// let mut lines = 0;
    /// Pipeline::codec(Line::new()).on_read(move |ctx, line| {
    ///     lines += 1;
    ///     ctx.write(format!("line {lines} has {} bytes", line.len()).into())
    /// })
    /// # };
    /// # let mut channel = EmbeddedChannel::new(pipeline());
    /// # channel.write_inbound(b"a\nbc\n")?;
    /// # assert_eq!(channel.read_outbound(), &b"line 1 has 1 bytes\nline 2 has 2 bytes\n"[..]);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    pub fn on_read<F>(self, on_read: F) -> Pipeline<L::Write>
    where
        F: FnMut(&mut ChannelContext<'_, L::Write>, L::Read) -> Result + 'static,
    {
        self.handler(ReadFn::new(on_read))
    }
}
