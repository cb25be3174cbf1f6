//! A pipeline that is ready for its channel: its links and the settings that come with them.

use super::Links;
#[cfg(test)]
use crate::channel::filter::{Filter, Filters};
use crate::{Result, channel::pipeline_settings::PipelineSettings};
use std::{fmt, marker::PhantomData};

/// A whole pipeline for one channel, to which messages of type `M` are written.
///
/// It is not `Send`: bootstraps take a factory, which is, and call it on the channel's loop.
pub struct Pipeline<M> {
    pub(crate) links: Box<dyn Links>,
    pub(crate) settings: PipelineSettings,
    pub(crate) message: PhantomData<fn(M)>,
}

#[cfg(test)]
impl<M> Pipeline<M> {
    /// Gives the channel byte filters; the first one is next to the transport.
    pub(crate) fn filters(mut self, filters: Vec<Box<dyn Filter>>) -> Self {
        self.settings.extras.set_filters(Filters::new(filters));
        self
    }
}

/// A pipeline whose message type is forgotten.
pub(crate) struct AnyPipeline {
    pub(crate) links: Box<dyn Links>,
    pub(crate) settings: PipelineSettings,
}

impl<M> From<Pipeline<M>> for AnyPipeline {
    fn from(pipeline: Pipeline<M>) -> Self {
        AnyPipeline { links: pipeline.links, settings: pipeline.settings }
    }
}

impl<M> fmt::Debug for Pipeline<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipeline")
            .field("handler", &(self.links.handler_type())())
            .field("idle", &self.settings.idle)
            .field("limits", &self.settings.limits)
            .field("traffic", &self.settings.traffic)
            .finish_non_exhaustive()
    }
}

/// What a pipeline factory may answer: a pipeline, or the reason why this connection gets none.
pub trait IntoPipeline {
    /// What is written to the channel.
    type Message: 'static;

    /// The pipeline.
    ///
    /// # Errors
    /// The connection is closed, and the error logged.
    fn into_pipeline(self) -> Result<Pipeline<Self::Message>>;
}

impl<M: 'static> IntoPipeline for Pipeline<M> {
    type Message = M;

    fn into_pipeline(self) -> Result<Pipeline<M>> {
        Ok(self)
    }
}

impl<M: 'static> IntoPipeline for Result<Pipeline<M>> {
    type Message = M;

    fn into_pipeline(self) -> Result<Pipeline<M>> {
        self
    }
}
