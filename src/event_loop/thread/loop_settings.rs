//! The settings that all loops of a group share.

use crate::{
    channel::driver::HANDSHAKES_PER_TURN,
    clock::{Clock, nanos},
    error::Result,
    event_loop::{
        budget::{Budget, DEFAULT_MAX_IO_TIME, DEFAULT_MAX_TASK_TIME},
        closing::DEFAULT_MAX_LINGERING,
        poll::DEFAULT_REBUILD_THRESHOLD,
    },
    executor::Executor,
    machine,
    settings::check_range,
};
use std::{ops::RangeInclusive, sync::Arc, time::Duration};

/// The range of `overload_target`. Below a millisecond, the scheduling of the system dominates.
const OVERLOAD_TARGETS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);

/// The settings of [`EventLoopGroupBuilder`](crate::group::EventLoopGroupBuilder) that apply to
/// each loop.
#[derive(Debug, Clone)]
pub(crate) struct LoopSettings {
    pub(crate) io_ratio: u32,
    pub(crate) max_task_time: Duration,
    pub(crate) max_io_time: Duration,
    pub(crate) handshakes_per_turn: usize,
    /// `None` without overload control.
    pub(crate) overload_target: Option<Duration>,
    pub(crate) max_pending_tasks: usize,
    pub(crate) max_scheduled_tasks: usize,
    pub(crate) max_connections: usize,
    pub(crate) max_lingering: usize,
    pub(crate) max_event_sources: usize,
    pub(crate) max_outbound: usize,
    pub(crate) wheel_tick: Duration,
    pub(crate) wheel_slots: usize,
    pub(crate) rebuild_threshold: u32,
    pub(crate) busy_poll: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) executor: Executor,
}

impl Default for LoopSettings {
    fn default() -> Self {
        LoopSettings {
            io_ratio: 50,
            max_task_time: DEFAULT_MAX_TASK_TIME,
            max_io_time: DEFAULT_MAX_IO_TIME,
            handshakes_per_turn: HANDSHAKES_PER_TURN,
            overload_target: None,
            max_pending_tasks: 1 << 20,
            max_scheduled_tasks: 1 << 20,
            max_connections: 1 << 20,
            max_lingering: DEFAULT_MAX_LINGERING,
            max_event_sources: 1 << 14,
            max_outbound: 1 << 30,
            wheel_tick: Duration::from_millis(100),
            wheel_slots: 512,
            rebuild_threshold: DEFAULT_REBUILD_THRESHOLD,
            busy_poll: Duration::ZERO,
            clock: machine::default_clock(),
            executor: Executor::default(),
        }
    }
}

impl LoopSettings {
    /// Refuses the first setting that is out of its range. The wheel checks its own settings.
    pub(crate) fn check(&self) -> Result {
        check_range("io_ratio", self.io_ratio, 1..=100, "1 to 100 percent")?;
        check_range("handshakes_per_turn", self.handshakes_per_turn, 1.., "1 or more")?;
        check_range("max_pending_tasks", self.max_pending_tasks, 16.., "16 tasks or more")?;
        check_range("max_scheduled_tasks", self.max_scheduled_tasks, 16.., "16 tasks or more")?;
        check_range("max_connections", self.max_connections, 1.., "1 connection or more")?;
        check_range("max_event_sources", self.max_event_sources, 1.., "1 event source or more")?;
        check_range("max_outbound", self.max_outbound, 1.., "1 byte or more")?;
        if let Some(target) = self.overload_target {
            check_range("overload_target", target, OVERLOAD_TARGETS, "1 ms to 10 s")?;
        }
        check_range("max_task_time", nanos(self.max_task_time), 1.., "more than zero")?;
        check_range("max_io_time", nanos(self.max_io_time), 1.., "more than zero")
    }

    /// Returns the budget of a turn's tasks. The settings have been checked.
    pub(super) fn budget(&self) -> Budget {
        Budget { io_ratio: self.io_ratio as u8, cap: nanos(self.max_task_time) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::tests::{check_limits_page, in_words};

    #[test]
    fn the_documentation_states_the_defaults() {
        let settings = LoopSettings::default();
        let in_a_turn = [
            ("handshakes_per_turn", in_words(settings.handshakes_per_turn)),
            ("max_pending_tasks", in_words(settings.max_pending_tasks)),
            ("max_scheduled_tasks", in_words(settings.max_scheduled_tasks)),
            ("max_event_sources", in_words(settings.max_event_sources)),
            ("max_outbound", "1 GiB".to_owned()),
            ("max_task_time", format!("{} ms", settings.max_task_time.as_millis())),
            ("max_io_time", format!("{} ms", settings.max_io_time.as_millis())),
        ];
        for (setting, default) in in_a_turn {
            check_limits_page("Limits of a loop", setting, &default);
        }
        let section = "Accepting connections";
        check_limits_page(
            section,
            "EventLoopGroupBuilder::max_connections",
            &in_words(settings.max_connections),
        );
        check_limits_page(section, "EventLoopGroupBuilder::max_lingering", &in_words(settings.max_lingering));
        assert_eq!(settings.max_outbound, 1 << 30);
    }
}
