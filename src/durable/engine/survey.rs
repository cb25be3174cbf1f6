//! `Survey`: finds periodic timers whose next run a wrong clock has put far away.
//!
//! While a clock is years ahead, the next runs of periodic timers are years away, and stay there
//! when the clock is right again. So the periodic timers of the store are looked through at the
//! start, after the clock was set back, and after a takeover: a page at a time, in the background.

use super::{
    Engine, Now, State,
    message::{EngineStep, Purpose},
    run::{RunPhase, TimerRun},
};
use crate::{
    clock::nanos,
    durable::store::{Change, DueKey, TimerRow},
};
use std::time::Duration;

/// The pause after a search that failed.
const PAUSE: Duration = Duration::from_millis(100);

/// How far beyond the next run of its schedule a timer may wait, in milliseconds: a day. A smaller
/// jump back costs this much at most, and no run is repeated.
const TOLERANCE: i64 = 24 * 3600 * 1000;

/// The largest number of timers in an answer of the store.
const PAGE: usize = 32;

/// What is left to look through.
#[derive(Debug, Default)]
pub(super) struct Survey {
    /// Timers behind this one are looked through next. `None` if nothing is left.
    after: Option<DueKey>,
    /// The size of the page that the store is asked for.
    asked: Option<usize>,
    /// Whether to begin again after the answer.
    is_outdated: bool,
    /// When the next page may be asked for, in nanoseconds of the loop.
    next_at: u64,
}

impl Survey {
    /// Returns when to ask for the next page, in nanoseconds of the loop.
    pub(super) fn next_at(&self) -> Option<u64> {
        let is_wanted = self.is_outdated || self.after.is_some();
        (is_wanted && self.asked.is_none()).then_some(self.next_at)
    }
}

impl Engine {
    /// Looks through all periodic timers, from the beginning.
    pub(super) fn start_survey(&mut self) {
        self.survey.is_outdated = true;
    }

    /// Asks for the next page, if there is room for the changes of its timers.
    pub(super) fn continue_survey(&mut self, now: Now, steps: &mut Vec<EngineStep>) {
        if self.survey.asked.is_some() || self.survey.next_at > now.monotonic || !self.may_fire(now) {
            return;
        }
        if std::mem::take(&mut self.survey.is_outdated) {
            self.survey.after = Some(DueKey::end_of(now.wall.saturating_add(TOLERANCE)));
        }
        let room = self.limits.max_running.saturating_sub(self.runs.len()).min(PAGE);
        if room == 0 {
            self.survey.next_at = now.monotonic.saturating_add(nanos(PAUSE));
            return;
        }
        if let Some(after) = self.survey.after {
            self.survey.asked = Some(room);
            steps.push(EngineStep::Survey { after, limit: room });
        }
    }

    /// Takes a page: timers without their payloads. `None` if the store could not be asked.
    pub(super) fn surveyed(&mut self, rows: Option<Vec<TimerRow>>, now: Now, steps: &mut Vec<EngineStep>) {
        let Some(limit) = self.survey.asked.take() else { return };
        self.survey.next_at = now.monotonic.saturating_add(nanos(PAUSE));
        let Some(rows) = rows.filter(|_| matches!(self.state, State::Active)) else { return };
        self.survey.after = rows.last().filter(|_| rows.len() >= limit).map(|row| row.key);
        let repaired = rows.into_iter().filter(|row| self.bring_forward(row, now, steps)).count();
        if repaired > 0 {
            self.metrics.repaired.add(repaired as u64);
            log::warn!(
                "{repaired} periodic timers waited for a time far beyond their schedules, which a wrong \
                 clock has set; they go on with their next runs"
            );
        }
    }

    /// Moves a timer to the next run of its schedule, if it waits for a much later one.
    fn bring_forward(&mut self, row: &TimerRow, now: Now, steps: &mut Vec<EngineStep>) -> bool {
        let id = row.key.id;
        if self.runs.contains(id) || self.changing.contains_key(&id) || !self.is_own(row) {
            return false;
        }
        let schedule = row.schedule.as_deref().and_then(|text| self.schedules.get(text).ok());
        let next = schedule.and_then(|schedule| schedule.first_after(row.scheduled, now.wall));
        let Some(next) = next.filter(|next| row.scheduled.saturating_sub(*next) > TOLERANCE) else {
            return false;
        };
        self.window.remove(id);
        let change = Change::SkipTo { held: row.held(), next };
        let run = TimerRun::new(row.clone());
        debug_assert_eq!(run.phase, RunPhase::End, "no handler is called");
        self.runs.insert(run);
        steps.push(EngineStep::Change { id, change, purpose: Purpose::End });
        true
    }
}
