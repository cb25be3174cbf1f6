//! A finished pipeline: its links, its handler, and the settings that come with them.

use crate::{
    channel::{
        core::any_pipeline::AnyPipeline,
        filter::{Filter, Filters},
        peer::Peer,
    },
    error::Result,
};
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
    any: AnyPipeline,
    message: PhantomData<fn(M)>,
}

impl<M> Pipeline<M> {
    pub(crate) fn new(any: AnyPipeline) -> Self {
        Pipeline { any, message: PhantomData }
    }

    /// Erases the message type, so that one factory can choose between pipelines that write
    /// different messages. See [`AnyPipeline`].
    pub fn into_any(self) -> AnyPipeline {
        self.any
    }

    /// Gives the channel byte filters; the first one is next to the transport.
    pub(crate) fn filters(mut self, filters: Vec<Box<dyn Filter>>) -> Self {
        self.any.settings.extras.set_filters(Filters::new(filters, Peer::default()));
        self
    }
}

impl<M> From<Pipeline<M>> for AnyPipeline {
    fn from(pipeline: Pipeline<M>) -> Self {
        pipeline.into_any()
    }
}

impl<M> fmt::Debug for Pipeline<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.any.debug("Pipeline", f)
    }
}

mod sealed {
    pub trait Sealed {}

    impl<M> Sealed for super::Pipeline<M> {}
    impl Sealed for crate::channel::core::any_pipeline::AnyPipeline {}
    impl<P: Sealed> Sealed for crate::error::Result<P> {}
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
        Ok(Pipeline::new(self))
    }
}

impl<P: IntoPipeline> IntoPipeline for Result<P> {
    type Message = P::Message;

    fn into_pipeline(self) -> Result<Pipeline<P::Message>> {
        self?.into_pipeline()
    }
}
