//! Applies the settings of a pipeline.

use super::ChannelState;
use crate::channel::{extras::Extras, pipeline_settings::PipelineSettings, services::LoopServices};

impl ChannelState {
    /// Applies the settings of a pipeline that starts. Returns the extras that were replaced,
    /// because dropping them runs code of the program.
    #[inline]
    pub(in crate::channel) fn apply(
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
}
