//! Timers of a channel: tasks, idle timeouts, time limits, traffic limits, the close timeout.
//!
//! The timers themselves are on the heap and the wheel of the loop. Each has a [`ChannelTimer`], by
//! which [`ChannelCore::handle_timer`] finds the due work.

mod schedule;
mod shaping;
pub(crate) mod tasks;
mod watch;

use super::{ChannelCore, services::LoopServices};
use crate::{
    channel::{ChannelTimer, close_cause::CloseCause, watch::Watch},
    log_throttle::{UNSENT, log_throttled},
};
use log::Level;
use tasks::Tasks;

/// What a channel waits for. The shaper of a channel with traffic limits is in its extras.
#[derive(Default)]
pub(crate) struct Timing {
    /// Idle timeouts, time limits and stage timers.
    watch: Option<Box<Watch>>,
    /// Scheduled tasks, the close timeout, and the pauses of stages.
    tasks: Option<Box<Tasks>>,
}

impl Timing {
    pub(super) fn tasks(&self) -> Option<&Tasks> {
        self.tasks.as_deref()
    }

    pub(super) fn existing_tasks_mut(&mut self) -> Option<&mut Tasks> {
        self.tasks.as_deref_mut()
    }

    pub(super) fn tasks_mut(&mut self) -> &mut Tasks {
        self.tasks.get_or_insert_default()
    }
}

impl ChannelCore {
    /// Handles an expired timer of the channel.
    pub(crate) fn handle_timer(&mut self, services: &mut LoopServices, timer: ChannelTimer) {
        match timer {
            ChannelTimer::Task(slot) => self.handle_task(services, slot),
            ChannelTimer::Watch => self.handle_watch(services),
            ChannelTimer::Shaper => self.state.shaper_is_due(services),
            ChannelTimer::Handshake => self.handle_handshake_timeout(services),
            ChannelTimer::CloseTimeout => self.handle_close_timeout(services),
        }
    }

    /// Closes a channel whose peer has not accepted all pending bytes in time.
    fn handle_close_timeout(&mut self, services: &mut LoopServices) {
        let id = self.state.id();
        log_throttled!(
            services,
            UNSENT,
            Level::Debug,
            "channel {id}: closed before its peer accepted all bytes"
        );
        self.state.request_close_now(CloseCause::TimedOut);
        self.state.want_attention(services);
    }
}
