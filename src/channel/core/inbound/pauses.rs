//! Pauses of reading that stages request.

use super::super::{ChannelState, ReadDemand};

impl ChannelState {
    /// Pauses reading until the same stage resumes it.
    pub(crate) fn pause_reading(&mut self, stage: u32) {
        self.timing.tasks_mut().set_paused(stage, true);
        self.status.set(ReadDemand::STAGE_PAUSED);
    }

    /// Lets the pause of a stage notice that the peer has gone.
    #[cfg(feature = "http")]
    pub(crate) fn watch_for_end(&mut self, stage: u32) {
        self.timing.tasks_mut().watch_for_end(stage);
    }

    /// Returns whether each stage that pauses reading watches for the end of the stream.
    #[cold]
    pub(in crate::channel) fn watches_for_end(&self) -> bool {
        self.status.has(ReadDemand::STAGE_PAUSED)
            && self.timing.tasks().is_some_and(|tasks| tasks.watches_for_end())
    }

    /// Ends the pause of a stage. Reading resumes when no other stage pauses it.
    pub(crate) fn resume_reading(&mut self, stage: u32, now: u64) {
        let Some(tasks) = self.timing.existing_tasks_mut() else { return };
        if tasks.is_paused(stage) && !tasks.set_paused(stage, false) {
            self.let_read(now, |status| status.unset(ReadDemand::STAGE_PAUSED));
        }
    }

    /// Returns whether the stage pauses reading.
    pub(crate) fn pauses_reads(&self, stage: u32) -> bool {
        self.timing.tasks().is_some_and(|tasks| tasks.is_paused(stage))
    }
}
