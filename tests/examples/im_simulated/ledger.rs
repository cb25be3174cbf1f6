//! What all bots have sent and read.

use super::{bot::name, support::Violations};
use netwheel::testing::simulation::sometimes;
use std::collections::{BTreeMap, BTreeSet};

/// How often the server sends a direct message: once, and three times again.
const MOST_ARRIVALS: u32 = 4;

pub(super) struct Ledger {
    violations: Violations,
    sessions: Vec<Session>,
    directs: Vec<Direct>,
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
    from: u32,
    to: u32,
    /// The session of the receiver, and the id that the server has given the message there.
    receiver: Option<(u32, u64)>,
    arrivals: u32,
    outcome: Option<bool>,
}

impl Ledger {
    pub(super) fn new(violations: Violations) -> Self {
        let (sessions, directs, views) = (Vec::new(), Vec::new(), BTreeMap::new());
        Ledger { violations, sessions, directs, views, before_calm: (0, 0) }
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

    pub(super) fn begin_direct(&mut self, from: u32, to: u32) -> u64 {
        self.directs.push(Direct { from, to, receiver: None, arrivals: 0, outcome: None });
        self.directs.len() as u64 - 1
    }

    pub(super) fn direct_arrives(&mut self, bot: u32, session: u32, text: &str, id: u64) {
        let number: Option<usize> = text.strip_prefix("direct ").and_then(|number| number.parse().ok());
        let Some(direct) = number.and_then(|number| self.directs.get_mut(number)) else {
            return self.violated(&format!("{text:?} was not sent"));
        };
        direct.arrivals += 1;
        let receiver = *direct.receiver.get_or_insert((session, id));
        if direct.arrivals > 1 {
            sometimes("sent again");
        }
        let is_right = direct.to == bot && receiver == (session, id) && direct.arrivals <= MOST_ARRIVALS;
        let (to, arrivals) = (direct.to, direct.arrivals);
        self.violations.unless(is_right, || {
            format!("{text:?} to {to} arrives {arrivals} times, now at {bot} in session {session} as {id}")
        });
    }

    pub(super) fn direct_ends(&mut self, session: u32, number: u64, is_delivered: bool) {
        let Some(direct) = self.directs.get_mut(number as usize) else {
            return self.violated(&format!("an outcome of {number}, which was not sent"));
        };
        let before = direct.outcome.replace(is_delivered);
        let is_right = before.is_none() && direct.from == session && (!is_delivered || direct.arrivals > 0);
        let arrivals = direct.arrivals;
        self.violations.unless(is_right, || {
            format!("{number}, arrived {arrivals} times, ends with {is_delivered} after {before:?}")
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
        let lost = done.filter(|direct| direct.outcome != Some(true)).count();
        self.violations.unless(lost == 0, || format!("{lost} direct messages are not delivered in calm"));
    }
}
