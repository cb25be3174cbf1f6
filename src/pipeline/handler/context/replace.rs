//! Replacing the pipeline of a channel that stays open.

use super::Context;
use crate::{
    channel::{AnyPipeline, IntoPipeline},
    error::Result,
    pipeline::handler::Handler,
};

impl<H: Handler> Context<'_, H> {
    /// Replaces the pipeline of the channel as soon as the running callback has returned. For
    /// example, HTTP is replaced by WebSocket, or a login by a session.
    ///
    /// The replacement happens in this order:
    ///
    /// 1. The tasks and timeouts of the old pipeline are cancelled. Its
    ///    [`IdleTimeouts`](crate::IdleTimeouts), [`TimeLimits`](crate::channel::TimeLimits) and
    ///    [traffic limits](crate::pipeline::PipelineBuilder::traffic) are replaced by those of the
    ///    new one, which may be none. They count from now. The first byte counts as received if it
    ///    was.
    /// 2. The old handler, its stages and its codec are dropped, including undelivered messages of
    ///    [`Codec::decode_more`](crate::pipeline::Codec::decode_more). They receive no further
    ///    event, not even [`inactive`](Handler::inactive), because the channel stays open.
    /// 3. The new handler's [`active`](Handler::active) is called.
    /// 4. Bytes that the old codec has not taken go to the new one, at once if they belong to the
    ///    current read. If the peer has ended its stream already, the new handler's
    ///    [`read_closed`](Handler::read_closed) is called. With auto-read off all of this waits for
    ///    [`read`](Context::read).
    ///
    /// Messages that were written before are sent first, and completions of
    /// [`write_tracked`](Context::write_tracked) stay valid. Auto-read and the water marks do not
    /// change. A [`Channel`](crate::Channel) handle works on if the new pipeline writes the same
    /// type of messages, and a [`HandlerRef`](crate::HandlerRef) if it has the same type of
    /// handler. Other handles fail with [`Error::PipelineReplaced`](crate::Error::PipelineReplaced)
    /// from then on, and their mail in the loop's queue is dropped. With another type of messages
    /// the channel leaves its [groups](crate::ChannelGroup).
    ///
    /// Attributes belong to the channel and stay. The attributes of the new pipeline are added and
    /// replace those of the same type. A wire log continues unless the new pipeline brings another.
    ///
    /// If the running callback fails, nothing is replaced. The second of two requests in one
    /// callback counts, and the first is dropped. A channel that is closed in the same callback
    /// keeps its pipeline.
    ///
    /// ```
    /// # use netwheel::{codec::{LengthField, Line}, prelude::*};
    /// # use bytes::Bytes;
    /// struct Login;
    /// struct Session { user: Bytes }
    ///
    /// impl Handler for Login {
    ///     type Read = Bytes;
    ///     type Write = Bytes;
    ///
    ///     fn read(&mut self, ctx: &mut Context<'_, Self>, user: Bytes) -> Result {
    ///         ctx.write("welcome".into())?;
    ///         // Lines until here, frames from the next byte on.
    ///         ctx.replace_pipeline(Pipeline::codec(LengthField::u32()).handler(Session { user }))
    ///     }
    /// }
    /// # impl Handler for Session {
    /// #     type Read = Bytes;
    /// #     type Write = Bytes;
    /// #     fn read(&mut self, ctx: &mut Context<'_, Self>, m: Bytes) -> Result { ctx.write(m) }
    /// # }
    /// # let mut channel = netwheel::testing::EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Login));
    /// # channel.write_inbound(b"me\n\0\0\0\x02hi")?;
    /// # assert_eq!(channel.read_outbound(), &b"welcome\n\0\0\0\x02hi"[..]);
    /// # Ok::<(), netwheel::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Closed`](crate::Error::Closed) if the channel is closing, in which case the pipeline is
    /// dropped, or the error of `pipeline` if it is a `Result`. If the callback returns the error,
    /// it goes to [`Handler::error`], which closes the channel by default.
    pub fn replace_pipeline(&mut self, pipeline: impl IntoPipeline) -> Result {
        let pipeline: AnyPipeline = pipeline.into_pipeline()?.into();
        self.state.request_pipeline(self.services, pipeline)
    }
}
