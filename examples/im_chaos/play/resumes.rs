//! The faults that are resumes. A third of the bots resume, in all rooms and on all nodes, and the
//! journal states the expected answers.

use super::Play;
use crate::bots::{Resume, Status};
use netwheel::Result;
use std::time::Duration;

/// Messages of each room that are missed before a resume after trimming. It is more than the
/// history and the recent messages in the memory of a node.
const MISSED: u64 = 250;
/// Resumes immediately one after the other.
const REPEATED: u32 = 10;

impl Play<'_> {
    /// Resumes while all are silent. Every resume must recover, and bring nothing.
    pub(super) fn resume_twice(&mut self) -> Result {
        self.crowd.talk(false);
        self.until("falling silent", self.options.settle, |status| status.waiting == 0)?;
        self.drain()?;
        (0..2).try_for_each(|_| self.resume(Resume::Own))?;
        self.crowd.talk(true);
        Ok(())
    }

    /// Resumes while the node perhaps has not noticed the end of the last connection. Every resume
    /// must recover.
    pub(super) fn resume_at_once(&mut self) -> Result {
        let bots = self.options.bots / 3;
        self.crowd.hurry(bots, true);
        (0..REPEATED).try_for_each(|_| self.resume(Resume::Own))?;
        self.crowd.hurry(bots, false);
        Ok(())
    }

    /// Resumes after missed messages have left the history. No resume may recover.
    pub(super) fn resume_after_trimming(&mut self) -> Result {
        let bots = self.options.bots / 3;
        self.crowd.stay_away(bots);
        self.mark("leave");
        self.crowd.reset(bots);
        // One message is expected by all members of its room.
        let enough = self.crowd.status().expected + MISSED * u64::from(self.options.bots);
        let limit =
            Duration::from_secs_f64(3.0 * MISSED as f64 * f64::from(self.options.rooms) / self.options.rate);
        let is_enough = move |status: Status| status.expected >= enough;
        self.until("the history is trimmed", limit, is_enough)?.ok_or("the bots are too slow to trim")?;
        self.crowd.plan_resumes(bots, Resume::Trimmed);
        self.mark("resume");
        self.crowd.call_back();
        self.until_resumed()
    }

    /// Resumes with a position that the member cannot have. No resume may recover.
    pub(super) fn resume_oddly(&mut self) -> Result {
        self.fault.resume().map_or(Ok(()), |how| self.resume(how))
    }

    fn resume(&mut self, how: Resume) -> Result {
        let bots = self.options.bots / 3;
        self.crowd.plan_resumes(bots, how);
        self.mark("resume");
        self.crowd.reset(bots);
        self.until_resumed()
    }

    fn until_resumed(&mut self) -> Result {
        // Bots that are not back are counted at the end.
        self.until("resuming", self.options.settle, |status| status.resuming == 0).map(drop)
    }
}
