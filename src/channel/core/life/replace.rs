//! Replacing the pipeline of a channel that stays open.
//!
//! `replace_pipeline` leaves the new pipeline with the loop (`LoopServices::replacement`) and sets
//! a flag that ends the delivery of messages. When the callback has returned, the core checks the
//! flag, once per call. It cancels everything that the old pipeline had armed, drops that pipeline,
//! and calls the `active` of the new one. Delivery continues with the remaining bytes of the same
//! read. Kept bytes cause no event, so they count as undecoded and the channel is carried over. An
//! end of the stream that the old pipeline has received is read once more.
//!
//! A callback that fails replaces nothing, and a channel that closes keeps its pipeline. So each
//! handler whose `active` was called ends exactly once. Either it is dropped, or the channel
//! closes, with a call of `inactive` before the drop.
//!
//! Handles are typed by the pipeline and outlive it. They remain valid as long as the types stay
//! the same. When the types change, the new ones are stored in the state that handles share. A
//! handle of another type is refused before anything is queued ([`Error::PipelineReplaced`]), and
//! gets its message back. The channel leaves its groups. Mail that was queued before is checked
//! when it arrives, and dropped if its type does not fit.
//!
//! A loop notifies each channel of its shutdown once. So a pipeline that takes over afterwards is
//! notified here, behind its `active`.
//!
//! Invariants: a pipeline takes over after the callback that requested it, never within it. The old
//! pipeline is not called afterwards, and is dropped once. Undecoded bytes, pending writes with
//! their confirmations, and auto-read stay as they are. Runs on the channel's loop. Owns nothing.

use super::super::{
    ChannelCore, ChannelState, InputHalf, ReadDemand, any_pipeline::AnyPipeline,
    pipeline_settings::PipelineSettings, services::LoopServices, status::Memory,
};
use crate::{
    channel::{ChannelShared, Pending, Readiness, close_cause::CloseCause, event::Event, extras::Extras},
    error::{Error, Resource, Result, caught},
    log_throttle::{PANICS, log_throttled},
};
use log::Level;
use std::sync::Arc;

/// The limit of calls that cause one another: pipelines that are replaced in `active` or without
/// progress of their input, tasks that are refused in `error`, changes of writability. More calls
/// count as an endless loop.
pub(in crate::channel) const AT_ONCE: usize = 16;

impl ChannelState {
    /// Applies the settings of a pipeline that starts. Returns the extras that were replaced,
    /// because dropping them runs code of the program.
    #[inline]
    pub(in crate::channel::core) fn apply(
        &mut self,
        services: &mut LoopServices,
        settings: PipelineSettings,
    ) -> Extras {
        let PipelineSettings { idle, limits, traffic, extras } = settings;
        let replaced = self.extras.replace_with(extras);
        self.set_idle_timeouts(services, idle);
        self.set_time_limits(services, limits);
        self.set_traffic_shaping(services, traffic);
        replaced
    }

    /// Requests that `pipeline` takes over when the current callback has returned.
    ///
    /// # Errors
    /// [`Error::Closed`] if the channel is closing; the pipeline is dropped.
    pub(crate) fn request_pipeline(&mut self, services: &mut LoopServices, pipeline: AnyPipeline) -> Result {
        if !self.status.is_open() {
            drop_pipeline(services, self, pipeline);
            return Err(Error::Closed);
        }
        self.status.set(Pending::REPLACED);
        if let Some(unused) = services.replacement.replace(Box::new(pipeline)) {
            drop_pipeline(services, self, *unused);
        }
        Ok(())
    }
}

impl ChannelCore {
    /// Returns the state that the channel's handles share.
    pub(crate) fn handle(&mut self, services: &LoopServices) -> Arc<ChannelShared> {
        self.state.share(services, self.links.types().size_hint)
    }

    /// Returns the state that the channel's handles share, with the types of the current pipeline.
    pub(crate) fn share(&mut self, services: &LoopServices) -> Arc<ChannelShared> {
        let types = self.links.types();
        let shared = self.state.share(services, types.size_hint);
        shared.set_types(types);
        shared
    }

    /// Drops the requested pipeline, because the callback has failed or closed the channel.
    pub(in crate::channel) fn forget_replacement(&mut self, services: &mut LoopServices) {
        if self.state.status.take(Pending::REPLACED)
            && let Some(unused) = services.replacement.take()
        {
            drop_pipeline(services, &self.state, *unused);
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
            let Some(pipeline) = services.replacement.take() else { return };
            let is_shutting_down = self.state.status.has(Memory::SHUTTING_DOWN);
            self.replace(services, *pipeline);
            if self.state.status.is_active() {
                self.state.borrow_outbound(services);
                self.notify_or_fail(services, Event::Active);
            }
            if is_shutting_down {
                self.repeat_shutdown(services);
            }
            self.resume_input(services);
        }
        if self.state.status.is_open() && self.state.status.has(Pending::REPLACED) {
            self.forget_replacement(services);
            self.refuse_replacements(services);
        }
        self.forget_replacement(services);
    }

    /// Closes the channel, because its pipelines replace one another without an end.
    #[cold]
    pub(in crate::channel::core) fn refuse_replacements(&mut self, services: &mut LoopServices) {
        self.fail(services, Error::Full { resource: Resource::PipelineReplacements, limit: AT_ONCE });
        self.state.request_close(CloseCause::Failed);
        self.state.want_attention(services);
        self.forget_replacement(services);
    }

    /// Notifies a new pipeline of the shutdown of the loop, unless another one takes over at once.
    fn repeat_shutdown(&mut self, services: &mut LoopServices) {
        self.state.status.set(Memory::SHUTTING_DOWN);
        if self.state.status.is_open() && !self.state.status.has(Pending::REPLACED) {
            self.state.borrow_outbound(services);
            self.notify_or_fail(services, Event::Shutdown);
        }
    }

    /// Replaces the pipeline, and cancels the tasks and timers of the old one.
    fn replace(&mut self, services: &mut LoopServices, pipeline: AnyPipeline) {
        const WORK: Pending = Pending::TASK_REFUSED.with(Pending::ARM_WATCH).with(Pending::UNDECODED);
        const NOTIFIED: Memory = Memory::SHUTTING_DOWN.with(Memory::AGED).with(Memory::ENDS_LATER);
        const FAILURES: Memory = Memory::STUCK.with(Memory::QUEUED_FAILED);
        const MEMORIES: Memory = FAILURES.with(Memory::SERVED).with(Memory::LIMITED).with(NOTIFIED);
        services.replaced += 1;
        self.state.outbound.keep_waiting();
        self.state.keep_written();
        self.state.timing.cancel_tasks(services, &Error::PipelineReplaced);
        self.state.end_watch(services);
        self.state.status.unset(WORK);
        self.state.status.unset(ReadDemand::STAGE_PAUSED);
        self.state.status.unset(MEMORIES);
        let (types, before) = (pipeline.links.types(), self.links.types());
        if let Some(shared) = self.state.shared.get() {
            shared.set_types(types);
            if types.message != before.message {
                shared.leave_groups();
            }
        }
        let AnyPipeline { links, mut settings } = pipeline;
        #[cfg(feature = "simulation")]
        let links = {
            self.links.note_replaced();
            crate::channel::core::links::checked(links)
        };
        let links = std::mem::replace(&mut self.links, links);
        settings.extras.remove_filters();
        let extras = self.state.apply(services, settings);
        let settings = PipelineSettings { extras, ..PipelineSettings::default() };
        drop_pipeline(services, &self.state, AnyPipeline { links, settings });
    }

    /// Resumes the input that the old pipeline has left, without waiting for an event.
    fn resume_input(&mut self, services: &mut LoopServices) {
        if !self.state.inbound.undecoded().is_empty() {
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

/// Drops a pipeline of the program. Logs a panic in that.
fn drop_pipeline(services: &LoopServices, state: &ChannelState, pipeline: AnyPipeline) {
    let (id, name) = (state.id(), (pipeline.links.handler_type())());
    if let Some(message) = caught(|| drop(pipeline)) {
        // The program's logger may panic too.
        caught(|| {
            log_throttled!(services, PANICS, Level::Error, "channel {id}: dropping its {name}: {message}")
        });
    }
}
