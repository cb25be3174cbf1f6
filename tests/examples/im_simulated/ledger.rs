//! What all bots have sent and read.

use super::{arrivals::Arrivals, bot::name, reminders::Reminders, support::Violations};
use netwheel::testing::simulation::sometimes;
use std::collections::{BTreeMap, BTreeSet};

pub(super) struct Ledger {
    violations: Violations,
    sessions: Vec<Session>,
    directs: Vec<Direct>,
    pub(super) reminders: Reminders,
    /// The members of the room, as each bot sees them.
    views: BTreeMap<u32, BTreeSet<String>>,
    /// Sessions and direct messages that had begun when counting began.
    before_calm: (usize, usize),
}

#[derive(Default)]
struct Session {
    /// The number of messages to the room.
    sent: u32,
    /// The last message of each other session, while this one stays in the room.
    last: BTreeMap<u32, u32>,
    has_ended: bool,
    /// Whether the server has refused one of its messages, so that a number is missing.
    may_skip: bool,
    /// The messages of other sessions that were read.
    read: u32,
}

struct Direct {
    /// The session of the sender, and its bot.
    sender: (u32, u32),
    to: u32,
    /// Whether the server has confirmed that it keeps the message for a bot that is away.
    is_kept: bool,
    arrivals: Arrivals,
    /// The outcome in each reply, by session of the sender: whether the message was delivered.
    outcomes: BTreeMap<u32, bool>,
}

impl Direct {
    /// Returns whether the message has gone straight to a session of its receiver, and has ended
    /// there. Others may have been kept without a confirmation: the connection or the store failed.
    fn was_not_kept(&self) -> bool {
        !self.is_kept && self.outcomes.get(&self.sender.0) == Some(&true)
    }

    fn is_delivered(&self) -> bool {
        self.outcomes.values().any(|is_delivered| *is_delivered)
    }
}

impl Ledger {
    pub(super) fn new(violations: Violations) -> Self {
        Ledger {
            reminders: Reminders::new(violations.clone()),
            violations,
            sessions: Vec::new(),
            directs: Vec::new(),
            views: BTreeMap::new(),
            before_calm: (0, 0),
        }
    }

    pub(super) fn violated(&self, what: &str) {
        self.violations.add(what);
    }

    // ---- sessions -------------------------------------------------------------------------------

    pub(super) fn begin_session(&mut self) -> u32 {
        self.sessions.push(Session::default());
        self.sessions.len() as u32 - 1
    }

    pub(super) fn session_ends(&mut self, session: u32) {
        self.sessions[session as usize].has_ended = true;
    }

    /// Records that a session has asked to leave the room.
    pub(super) fn leaves(&mut self, session: u32) {
        self.joined(session);
    }

    /// Records that a session is in the room from now on.
    pub(super) fn joined(&mut self, session: u32) {
        self.sessions[session as usize].last.clear();
    }

    /// Records that the server has dropped messages to a slow session.
    pub(super) fn missed(&mut self, session: u32) {
        self.sessions[session as usize].last.clear();
    }

    pub(super) fn may_skip(&mut self, session: u32) {
        self.sessions[session as usize].may_skip = true;
    }

    // ---- messages to the room -------------------------------------------------------------------

    pub(super) fn next_message(&mut self, session: u32) -> u32 {
        let session = &mut self.sessions[session as usize];
        session.sent += 1;
        session.sent
    }

    pub(super) fn message_arrives(&mut self, at: u32, from: &str, text: &str) {
        let mut words = text.split(' ').map(str::parse::<u32>);
        let (Some(Ok(session)), Some(Ok(number))) = (words.next(), words.next()) else {
            return self.violated(&format!("a message of {from} is {text:?}"));
        };
        let sender = self.sessions.get(session as usize);
        let (sent, may_skip) = sender.map_or((0, false), |sender| (sender.sent, sender.may_skip));
        let reader = &mut self.sessions[at as usize];
        reader.read += 1;
        let last = reader.last.insert(session, number);
        let follows = |last| number == last + 1 || may_skip && number > last;
        let is_next = last.is_none_or(follows) && number <= sent;
        self.violations.unless(is_next, || {
            format!(
                "session {at} reads message {number} of session {session} after {last:?}; {sent} were sent"
            )
        });
    }

    // ---- direct messages ------------------------------------------------------------------------

    pub(super) fn begin_direct(&mut self, session: u32, from: u32, to: u32) -> u64 {
        let (arrivals, outcomes) = (Arrivals::default(), BTreeMap::new());
        self.directs.push(Direct { sender: (session, from), to, is_kept: false, arrivals, outcomes });
        self.directs.len() as u64 - 1
    }

    pub(super) fn direct_arrives(&mut self, bot: u32, session: u32, text: &str, id: u64) {
        let number: Option<usize> = text.strip_prefix("direct ").and_then(|number| number.parse().ok());
        let Some(direct) = number.and_then(|number| self.directs.get_mut(number)) else {
            return self.violated(&format!("{text:?} was not sent"));
        };
        if direct.is_kept {
            sometimes("kept message delivered");
        }
        let is_within_limits = direct.arrivals.add(session, id);
        let is_once = direct.arrivals.sessions() == 1 || !direct.was_not_kept();
        let is_right = direct.to == bot && is_within_limits && is_once;
        let (to, arrivals) = (direct.to, direct.arrivals.total());
        self.violations.unless(is_right, || {
            format!("{text:?} to {to} arrives {arrivals} times, now at {bot} in session {session} as {id}")
        });
    }

    /// Records that the server keeps a message.
    pub(super) fn direct_is_kept(&mut self, session: u32, number: u64) {
        let direct = self.directs.get_mut(number as usize);
        let is_right = direct.is_some_and(|direct| {
            let is_first = !std::mem::replace(&mut direct.is_kept, true);
            is_first && direct.sender.0 == session && direct.outcomes.is_empty()
        });
        self.violations.unless(is_right, || format!("{number} is kept after its end, or was not sent"));
    }

    /// Records the outcome in a reply to a session of a bot.
    pub(super) fn direct_ends(&mut self, session: u32, bot: u32, number: u64, is_delivered: bool) {
        let Some(direct) = self.directs.get_mut(number as usize) else {
            return self.violated(&format!("an outcome of {number}, which was not sent"));
        };
        let is_possible = session == direct.sender.0 || is_delivered && !direct.was_not_kept();
        let is_first = direct.outcomes.insert(session, is_delivered).is_none();
        let is_once = direct.arrivals.sessions() == 1 || !direct.was_not_kept();
        let arrivals = direct.arrivals.total();
        let has_arrived = arrivals > 0 && is_once || !is_delivered;
        let is_right = direct.sender.1 == bot && is_possible && is_first && has_arrived;
        self.violations.unless(is_right, || {
            format!("{number}, arrived {arrivals} times, ends with {is_delivered}: {:?}", direct.outcomes)
        });
    }

    // ---- presence -------------------------------------------------------------------------------

    pub(super) fn sees(&mut self, bot: u32, members: BTreeSet<String>) {
        self.views.insert(bot, members);
    }

    /// Returns whether the first `bots` bots see each other, and no other one.
    pub(super) fn is_settled(&self, bots: u32) -> bool {
        let all: BTreeSet<String> = (0..bots).map(name).collect();
        (0..bots).all(|bot| self.views.get(&bot) == Some(&all))
    }

    pub(super) fn begin_counting(&mut self) {
        self.before_calm = (self.sessions.len(), self.directs.len());
        self.sessions.iter_mut().for_each(|session| session.read = 0);
        self.reminders.begin_calm();
    }

    /// Checks the sessions, the outcomes and the presence of the time without faults.
    pub(super) fn check_calm(&self, bots: u32) {
        let (sessions, directs) = self.before_calm;
        self.violations.unless(self.is_settled(bots), || format!("bots have other views: {:?}", self.views));
        let is_stable = self.sessions.len() == sessions;
        self.violations.unless(is_stable, || "a session has ended although all is calm".to_owned());
        let open: Vec<&Session> = self.sessions.iter().filter(|session| !session.has_ended).collect();
        self.violations
            .unless(open.iter().filter(|session| session.read > 0).count() == bots as usize, || {
                format!("{} sessions are open, and not all of them read", open.len())
            });
        let calm = self.directs.get(directs..).unwrap_or_default();
        // The last ones may still be under way.
        let done = calm.iter().take(calm.len().saturating_sub(4));
        let lost = done.filter(|direct| !direct.is_delivered()).count();
        self.violations.unless(lost == 0, || format!("{lost} direct messages are not delivered in calm"));
        let kept = self.directs.iter().filter(|direct| direct.is_kept);
        let lost = kept.filter(|direct| direct.arrivals.total() == 0).count();
        self.violations.unless(lost == 0, || format!("{lost} kept messages are lost"));
    }
}
