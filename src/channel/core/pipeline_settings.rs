//! The settings that a pipeline brings to its channel.

use crate::channel::{IdleTimeouts, TimeLimits, extras::Extras, shaping::TrafficShaping};

/// The settings made with the methods of [`Pipeline`](crate::Pipeline), besides the links.
#[derive(Debug, Default)]
pub(crate) struct PipelineSettings {
    pub(crate) idle: IdleTimeouts,
    pub(crate) limits: TimeLimits,
    pub(crate) traffic: TrafficShaping,
    pub(crate) extras: Extras,
}
