//! A finished pipeline whose message type is erased.

use super::{ErasedPipeline, pipeline_settings::PipelineSettings};
use std::fmt;

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
///
/// [`Infallible`]: std::convert::Infallible
/// [`Pipeline`]: crate::Pipeline
/// [`Pipeline::into_any`]: crate::Pipeline::into_any
pub struct AnyPipeline {
    pub(crate) links: Box<dyn ErasedPipeline>,
    pub(crate) settings: PipelineSettings,
}

impl fmt::Debug for AnyPipeline {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.debug("AnyPipeline", f)
    }
}

impl AnyPipeline {
    pub(in crate::channel) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("handler", &(self.links.handler_type())())
            .field("idle", &self.settings.idle)
            .field("limits", &self.settings.limits)
            .field("traffic", &self.settings.traffic)
            .finish_non_exhaustive()
    }
}
