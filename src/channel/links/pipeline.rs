//! A finished pipeline: its links, its handler, and the settings that come with them.

use super::ErasedPipeline;
use crate::channel::{
    filter::{Filter, Filters},
    peer::Peer,
};
use crate::{Result, channel::pipeline_settings::PipelineSettings};
use std::{convert::Infallible, fmt, marker::PhantomData};

/// A finished pipeline for one channel: a codec, any number of stages, and a handler.
///
/// `M` is the type of the messages that are written to the channel, as in
/// [`Channel<M>`](crate::Channel). The types of the links are erased.
///
/// [`Pipeline::codec`] starts a pipeline. The [module documentation](crate::pipeline) has a
/// picture of the links and the order of events.
///
/// A pipeline belongs to one channel and is not `Send`. Bootstraps take a factory, which is `Send`,
/// and call it on the channel's loop for each connection.
#[doc(alias = "ChannelPipeline")]
#[doc(alias = "ChannelInitializer")]
pub struct Pipeline<M> {
    pub(crate) links: Box<dyn ErasedPipeline>,
    pub(crate) settings: PipelineSettings,
    pub(crate) message: PhantomData<fn(M)>,
}

impl<M> Pipeline<M> {
    /// Erases the message type, so that one factory can choose between pipelines that write
    /// different messages. See [`AnyPipeline`].
    pub fn into_any(self) -> AnyPipeline {
        AnyPipeline { links: self.links, settings: self.settings }
    }

    /// Gives the channel byte filters; the first one is next to the transport.
    pub(crate) fn filters(mut self, filters: Vec<Box<dyn Filter>>) -> Self {
        self.settings.extras.set_filters(Filters::new(filters, Peer::default()));
        self
    }
}

/// A [`Pipeline`] whose message type is erased, from [`Pipeline::into_any`].
///
/// A pipeline factory returns one type. If it chooses between protocols whose handlers write
/// different messages, it returns this type:
///
/// ```
/// use netwheel::{codec::{Line, RawBytes}, pipeline::AnyPipeline, prelude::*};
/// # struct Text;
/// # impl Handler for Text {
/// #     type Read = bytes::Bytes;
/// #     type Write = bytes::Bytes;
/// #     fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # struct Raw;
/// # impl Handler for Raw {
/// #     type Read = bytes::Bytes;
/// #     type Write = bytes::Bytes;
/// #     fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
///
/// fn pipeline(text: bool) -> AnyPipeline {
///     if text {
///         Pipeline::codec(Line::new()).handler(Text).into_any()
///     } else {
///         Pipeline::codec(RawBytes).handler(Raw).into_any()
///     }
/// }
/// # let _ = (pipeline(true), pipeline(false));
/// ```
///
/// No message can be written through the [`Channel`](crate::Channel) handle that a bootstrap
/// returns for such a pipeline, because its message type is [`Infallible`]. The handle can still be
/// used for everything else, for example to close the channel. The handler gets a typed handle from
/// its context.
pub struct AnyPipeline {
    pub(crate) links: Box<dyn ErasedPipeline>,
    pub(crate) settings: PipelineSettings,
}

impl<M> From<Pipeline<M>> for AnyPipeline {
    fn from(pipeline: Pipeline<M>) -> Self {
        pipeline.into_any()
    }
}

fn debug(
    name: &str,
    links: &dyn ErasedPipeline,
    settings: &PipelineSettings,
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    f.debug_struct(name)
        .field("handler", &(links.handler_type())())
        .field("idle", &settings.idle)
        .field("limits", &settings.limits)
        .field("traffic", &settings.traffic)
        .finish_non_exhaustive()
}

impl<M> fmt::Debug for Pipeline<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("Pipeline", &*self.links, &self.settings, f)
    }
}

impl fmt::Debug for AnyPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        debug("AnyPipeline", &*self.links, &self.settings, f)
    }
}

mod sealed {
    pub trait Sealed {}

    impl<M> Sealed for super::Pipeline<M> {}
    impl Sealed for super::AnyPipeline {}
    impl<P: Sealed> Sealed for crate::Result<P> {}
}

/// The return type of a pipeline factory: [`Pipeline<M>`], [`AnyPipeline`], or a [`Result`] of
/// either.
///
/// An `Err` rejects the connection: it is closed, and the error is logged.
///
/// This trait is sealed.
#[diagnostic::on_unimplemented(
    message = "expected a finished pipeline, found `{Self}`",
    label = "not a finished pipeline",
    note = "a pipeline factory returns `Pipeline<M>`, `AnyPipeline`, or a `Result` of either",
    note = "`.handler(..)` or `.on_read(..)` finishes a `PipelineBuilder`"
)]
pub trait IntoPipeline: sealed::Sealed {
    /// The type of the messages that are written to the channel.
    type Message: 'static;

    /// Returns the pipeline, or the error of the factory.
    #[doc(hidden)]
    fn into_pipeline(self) -> Result<Pipeline<Self::Message>>;
}

impl<M: 'static> IntoPipeline for Pipeline<M> {
    type Message = M;

    fn into_pipeline(self) -> Result<Pipeline<M>> {
        Ok(self)
    }
}

impl IntoPipeline for AnyPipeline {
    type Message = Infallible;

    fn into_pipeline(self) -> Result<Pipeline<Infallible>> {
        Ok(Pipeline { links: self.links, settings: self.settings, message: PhantomData })
    }
}

impl<P: IntoPipeline> IntoPipeline for Result<P> {
    type Message = P::Message;

    fn into_pipeline(self) -> Result<Pipeline<P::Message>> {
        self?.into_pipeline()
    }
}
