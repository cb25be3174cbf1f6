//! The reminders that all bots have asked for.

use super::{arrivals::Arrivals, support::Violations};
use netwheel::testing::simulation::sometimes;
use std::ops::Range;

/// How long a reminder that is due may take when all is calm.
const MOST_DELAY_MS: u64 = 5000;

pub(super) struct Reminders {
    violations: Violations,
    all: Vec<Reminder>,
    /// Reminders that arrive once: their acknowledgements were stored.
    calm: Range<usize>,
}

struct Reminder {
    user: u32,
    /// The number that the server has given it, and its time, once the server has confirmed it.
    set: Option<(u64, u64)>,
    /// Whether the bot has asked to forget it. The answer may be lost.
    may_be_forgotten: bool,
    is_forgotten: bool,
    arrivals: Arrivals,
}

impl Reminders {
    pub(super) fn new(violations: Violations) -> Self {
        Reminders { violations, all: Vec::new(), calm: 0..0 }
    }

    pub(super) fn begin(&mut self, user: u32) -> u64 {
        self.all.push(Reminder {
            user,
            set: None,
            may_be_forgotten: false,
            is_forgotten: false,
            arrivals: Arrivals::default(),
        });
        self.all.len() as u64 - 1
    }

    /// Records that the server has confirmed a reminder.
    pub(super) fn set(&mut self, id: u64, number: u64, due: u64) {
        sometimes("reminder set");
        let reminder = self.all.get_mut(id as usize);
        let is_right = reminder.is_some_and(|reminder| reminder.set.replace((number, due)).is_none());
        self.violations.unless(is_right, || format!("reminder {id} was set twice, or not asked for"));
    }

    /// Records that the bot asks to forget a reminder.
    pub(super) fn forgets(&mut self, id: u64) {
        if let Some(reminder) = self.all.get_mut(id as usize) {
            reminder.may_be_forgotten = true;
        }
    }

    /// Records that the server has confirmed that it has forgotten a reminder.
    pub(super) fn forgotten(&mut self, number: u64) {
        // The last one: numbers are used again if the clock is set back before a restart.
        let mut all = self.all.iter_mut().rev();
        let reminder = all.find(|reminder| reminder.set.is_some_and(|set| set.0 == number));
        let is_right = reminder.is_some_and(|reminder| {
            let is_first = !std::mem::replace(&mut reminder.is_forgotten, true);
            is_first && reminder.arrivals.total() == 0
        });
        self.violations.unless(is_right, || format!("reminder {number} is forgotten, but has ended"));
        sometimes("reminder forgotten");
    }

    pub(super) fn arrives(&mut self, bot: u32, session: u32, text: &str, number: u64, id: u64) {
        let index: Option<usize> = text.strip_prefix("reminder ").and_then(|index| index.parse().ok());
        let Some((index, reminder)) = index.and_then(|index| Some((index, self.all.get_mut(index)?))) else {
            return self.violations.add(format!("{text:?} was not asked for"));
        };
        sometimes("reminder fired");
        let is_within_limits = reminder.arrivals.add(session, id);
        let arrivals = reminder.arrivals.total();
        let is_right = is_within_limits
            && reminder.user == bot
            && !reminder.is_forgotten
            && reminder.set.is_none_or(|set| set.0 == number)
            && (arrivals == 1 || !self.calm.contains(&index));
        let user = reminder.user;
        self.violations.unless(is_right, || {
            format!("{text:?} ({number}) of {user} arrives {arrivals} times, now at {bot} in session {session} as {id}")
        });
    }

    /// Begins the time in which reminders are acknowledged at once.
    pub(super) fn begin_calm(&mut self) {
        self.calm = self.all.len()..usize::MAX;
    }

    /// Returns the number of reminders that were begun.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Ends the calm time: reminders from `end` on may arrive again.
    pub(super) fn end_calm(&mut self, end: usize) {
        self.calm.end = end;
    }

    /// Checks that all confirmed reminders have arrived whose time has come at the server.
    pub(super) fn check(&self, now: u64) {
        let is_lost = |reminder: &&Reminder| {
            let is_due = |(_, due): (u64, u64)| due + MOST_DELAY_MS <= now;
            reminder.set.is_some_and(is_due) && !reminder.may_be_forgotten && reminder.arrivals.total() == 0
        };
        let lost: Vec<_> = self.all.iter().filter(is_lost).map(|reminder| reminder.set).collect();
        self.violations.unless(lost.is_empty(), || format!("at {now}, reminders are lost: {lost:?}"));
    }
}
