//! The settings that a pipeline brings to its channel.

use super::{
    extras::Extras, idle::IdleTimeouts, limits::TimeLimits, services::LoopServices, shaping::TrafficShaping,
    state::ChannelState,
};

/// What a program sets with the methods of [`Pipeline`](crate::Pipeline), besides the links.
#[derive(Debug, Default)]
pub(crate) struct PipelineSettings {
    pub(crate) idle: IdleTimeouts,
    pub(crate) limits: TimeLimits,
    pub(crate) traffic: TrafficShaping,
    /// `None` if the pipeline uses none of them.
    pub(super) extras: Option<Box<Extras>>,
}

impl PipelineSettings {
    pub(crate) fn extras_mut(&mut self) -> &mut Extras {
        self.extras.get_or_insert_default()
    }
}

impl ChannelState {
    /// Applies the settings of a pipeline that begins. Returns the extras that its own extras have
    /// replaced, because dropping them runs code of the program.
    pub(super) fn apply(
        &mut self,
        services: &mut LoopServices,
        settings: PipelineSettings,
    ) -> Option<Box<Extras>> {
        let PipelineSettings { idle, limits, traffic, extras } = settings;
        let replaced = self.add_extras(extras);
        self.set_idle(services, idle);
        self.set_time_limits(services, limits);
        self.set_traffic_shaping(services, traffic);
        replaced
    }
}
