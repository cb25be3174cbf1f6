//! Replacing the pipeline of a channel that stays open.
//!
//! `replace_pipeline` leaves the new pipeline with the loop (`LoopServices::replacement`) and sets
//! a flag that ends the delivery of messages. When the callback has returned, the core looks at the
//! flag, once per call. It cancels everything that the old pipeline had armed, drops that pipeline,
//! and calls the `active` of the new one. Delivery continues with the rest of the same bytes. Kept
//! bytes cause no event, so they count as undecoded and the channel is carried over. An end of the
//! stream that the old pipeline has received is read once more.
//!
//! A callback that fails replaces nothing, and a channel that closes keeps its pipeline. So each
//! handler whose `active` was called ends exactly once. Either it is dropped, or the channel
//! closes, with a call of `inactive` before the drop.
//!
//! Handles are typed by the pipeline and outlive it. They work on as long as the types stay the
//! same. When the types change, the new ones are stored in the state that handles share. A handle
//! of another type is refused before anything is queued ([`Error::PipelineReplaced`]), and gets its message
//! back. The channel leaves its groups. Mail that was queued before is checked when it arrives, and
//! dropped if its type does not fit.
//!
//! Invariants: a pipeline takes over after the callback that asked for it, never within it. The old
//! pipeline gets no call afterwards, and is dropped once. Undecoded bytes, pending writes with
//! their confirmations, and auto-read stay as they are. Runs on the channel's loop. Owns nothing.

use super::ChannelCore;
use crate::{
    Error, Resource, Result,
    channel::{
        event::Event,
        handle::ChannelShared,
        links::{AnyPipeline, IntoPipeline},
        pipeline_settings::PipelineSettings,
        scope::Scope,
        services::LoopServices,
        state::{ChannelState, InputHalf, Memory, Pending, Readiness},
    },
    error::caught,
    log_throttle::{PANICS, log_throttled},
};
use log::Level;
use std::sync::Arc;

/// The limit of calls that cause one another: pipelines that are replaced in `active`, tasks that are
/// refused in `error`, changes of writability. More are an endless loop.
pub(in crate::channel) const AT_ONCE: usize = 16;

impl<M> Scope<'_, M> {
    /// Has another pipeline take over the channel as soon as the running callback has returned: HTTP gives way to
    /// WebSocket, a login to a session.
    ///
    /// What happens then, in this order:
    ///
    /// 1. The tasks and timeouts of the old pipeline are cancelled, its [`IdleTimeouts`](crate::IdleTimeouts) and
    ///    [`TimeLimits`](crate::TimeLimits) give way to those of the new one, which count from now (the first byte has
    ///    come already, if one has). So do its limits of traffic ([`PipelineBuilder::traffic`](crate::pipeline::PipelineBuilder::traffic)): a new
    ///    one that names none has none.
    /// 2. The old handler, its stages and its codec are dropped, including undelivered messages of
    ///    [`Codec::decode_more`](crate::pipeline::Codec::decode_more). Nothing more is delivered to
    ///    them, not even [`inactive`](crate::Handler::inactive): the channel lives on.
    /// 3. The new handler's [`active`](crate::Handler::active) is called.
    /// 4. Bytes that the old codec has not taken go to the new one, those of the read that is going on at once. If the
    ///    peer had ended its stream already, the new handler is told
    ///    ([`read_closed`](crate::Handler::read_closed)). With auto-read off all that waits for its
    ///    [`read`](Scope::read).
    ///
    /// What was written before is sent before what the new pipeline writes, and completions of
    /// [`write_tracked`](Scope::write_tracked) hold. So do auto-read and the water marks. Handles to the channel
    /// ([`Channel`](crate::Channel), [`Remote`](crate::Remote)) go on working if the new pipeline has the same message type
    /// (the same handler type for a `Remote`); the others answer [`Error::PipelineReplaced`] from then on, and what they had in the
    /// loop's queue is dropped. A channel that has another message type by this leaves its
    /// [groups](crate::ChannelGroup).
    ///
    /// If the running callback fails, nothing is replaced. Asked for twice in one callback, the second one counts, and
    /// the first is dropped. A channel that is closed in the same callback keeps its pipeline.
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
    /// Attributes stay: they are the channel's. Those that the new pipeline brings are added, and take the place of others of their
    /// type. A wire log goes on, unless the new one brings another.
    ///
    /// # Errors
    /// The one that `pipeline` is, if it is a `Result` and making it has failed; [`Closed`](Error::Closed) if the channel is
    /// closing. The pipeline is dropped then. Returned from the callback, as with `?`, it goes to the handler's
    /// [`error`](crate::Handler::error), which closes the channel unless it says otherwise.
    pub fn replace_pipeline(&mut self, pipeline: impl IntoPipeline) -> Result {
        let pipeline: AnyPipeline = pipeline.into_pipeline()?.into();
        if !self.state.status.is_open() {
            drop_pipeline(self.services, self.state, pipeline);
            return Err(Error::Closed);
        }
        self.state.status.set(Pending::REPLACED);
        let unused = take_replacement(self.services);
        self.services.replacement = Some(Box::new(pipeline));
        if let Some(unused) = unused {
            drop_pipeline(self.services, self.state, unused);
        }
        Ok(())
    }
}

impl ChannelCore {
    /// Returns what the channel's handles share.
    pub(crate) fn handle(&mut self, services: &LoopServices) -> Arc<ChannelShared> {
        self.state.share(services, self.links.types().size_hint)
    }

    /// Returns what the channel's handles share, with the types of the current pipeline.
    pub(crate) fn share(&mut self, services: &LoopServices) -> Arc<ChannelShared> {
        let types = self.links.types();
        let shared = self.state.share(services, types.size_hint);
        shared.set_types(types);
        shared
    }

    /// Drops the requested pipeline, because the callback has failed or closed the channel.
    pub(in crate::channel) fn forget_replacement(&mut self, services: &mut LoopServices) {
        if self.state.status.take(Pending::REPLACED)
            && let Some(unused) = take_replacement(services)
        {
            drop_pipeline(services, &self.state, unused);
        }
    }

    /// Installs the requested pipeline, and any further one that its `active` requests.
    #[cold]
    pub(in crate::channel) fn take_over(&mut self, services: &mut LoopServices) {
        for _ in 0..AT_ONCE {
            if !self.state.status.is_open() {
                break;
            }
            if !self.state.status.take(Pending::REPLACED) {
                return;
            }
            let Some(pipeline) = take_replacement(services) else { return };
            self.replace(services, pipeline);
            if self.state.status.is_active() {
                self.state.borrow_outbound(services);
                self.tell_or_fail(services, Event::Active);
            }
            self.resume_input(services);
        }
        if self.state.status.is_open() && self.state.status.has(Pending::REPLACED) {
            self.forget_replacement(services);
            self.fail(services, Error::Full { resource: Resource::PipelineReplacements, limit: AT_ONCE });
            self.state.request_close();
            self.state.want_attention(services);
        }
        self.forget_replacement(services);
    }

    /// Replaces the pipeline, and cancels the tasks and timers of the old one.
    fn replace(&mut self, services: &mut LoopServices, pipeline: AnyPipeline) {
        const WORK: Pending = Pending::TASK_REFUSED.with(Pending::ARM_WATCH).with(Pending::UNDECODED);
        const MEMORIES: Memory = Memory::STUCK.with(Memory::SERVED).with(Memory::LIMITED);
        services.replaced += 1;
        self.state.cancel_tasks(services);
        self.state.end_watch(services);
        self.state.status.unset(WORK);
        self.state.status.unset(MEMORIES);
        let (types, before) = (pipeline.links.types(), self.links.types());
        if let Some(shared) = &self.state.shared {
            shared.set_types(types);
            if types.message != before.message {
                shared.leave_groups();
            }
        }
        let AnyPipeline { links, mut settings } = pipeline;
        let links = std::mem::replace(&mut self.links, links);
        settings.extras.remove_filters();
        let extras = self.state.apply(services, settings);
        let settings = PipelineSettings { extras, ..PipelineSettings::default() };
        drop_pipeline(services, &self.state, AnyPipeline { links, settings });
    }

    /// Resumes the input that the old pipeline has left, without waiting for an event.
    fn resume_input(&mut self, services: &mut LoopServices) {
        if !self.state.partial.is_empty() {
            self.state.status.set(Pending::UNDECODED);
            self.state.want_attention(services);
        }
        if self.state.status.input_ended() {
            self.state.status.set_input(InputHalf::Open);
            // The end is read again, for the new pipeline.
            self.state.status.set(Readiness::MAYBE_READABLE);
            self.state.want_attention(services);
        }
    }
}

/// Takes the requested pipeline.
fn take_replacement(services: &mut LoopServices) -> Option<AnyPipeline> {
    let pipeline = services.replacement.take()?.downcast();
    pipeline.ok().map(|pipeline: Box<AnyPipeline>| *pipeline)
}

/// Drops a pipeline of the program. Logs a panic in that.
fn drop_pipeline(services: &LoopServices, state: &ChannelState, pipeline: AnyPipeline) {
    let (id, name) = (state.id(), (pipeline.links.handler_type())());
    if let Some(message) = caught(|| drop(pipeline)) {
        // The program's logger may panic, too.
        caught(|| {
            log_throttled!(services, PANICS, Level::Error, "channel {id}: dropping its {name}: {message}")
        });
    }
}
