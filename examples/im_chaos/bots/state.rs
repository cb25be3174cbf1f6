//! `Bot`: the state of a user, which outlives its connections.

use super::{Manners, resumes::PlannedResume};
use crate::protocol::{Request, Resume};
use netwheel::{broker::Position, prelude::*};
use std::{
    hash::{BuildHasher, RandomState},
    ops::Range,
    time::Duration,
};

/// The first delay before a bot comes back, and the longest one.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(2));
/// Time after which a message that was refused is sent again.
const RETRY: Duration = Duration::from_millis(250);

pub(super) struct Bot {
    pub(super) user: String,
    pub(super) room: String,
    pub(super) place: Place,
    /// Number of the node of the current or next connection.
    pub(super) node: usize,
    /// Numbers of the nodes that the bot uses.
    home: Range<usize>,
    /// Whether the bot publishes without being a member.
    pub(super) is_publisher: bool,
    /// Number of the current or last attempt to get in.
    pub(super) attempt: u64,
    /// Failed attempts since the bot was last inside.
    failures: u32,
    pub(super) token: String,
    /// The position of the last message that was received.
    pub(super) position: Option<Position>,
    /// Number of the last message.
    number: u32,
    under_way: Option<UnderWay>,
    /// When the next message is due.
    next: Duration,
    interval: Duration,
    /// When the bot has asked for the members of its room.
    pub(super) asked: Option<Duration>,
    /// How the bot resumes the next time.
    pub(super) planned: Option<PlannedResume>,
    /// Whether the bot does not come back before it is called.
    pub(super) stays_away: bool,
    /// Whether the bot returns to the same node without a delay.
    pub(super) returns_at_once: bool,
}

pub(super) enum Place {
    /// Not connected. The next attempt begins at this time.
    Outside {
        until: Duration,
    },
    Entering,
    Inside(Channel<Request>),
}

/// A message that is not accepted.
struct UnderWay {
    number: u32,
    /// When to send it again. `None` while an answer is expected.
    again: Option<Duration>,
}

/// The end of an attempt or a connection.
pub(super) struct Lost {
    pub(super) was_inside: bool,
    pub(super) stays_away: bool,
}

impl Bot {
    pub(super) fn new(number: u32, manners: &Manners, nodes: usize) -> Self {
        // Spread over the interval, and the same in each run.
        let part = (f64::from(number) * 0.618_034).fract();
        let is_publisher = number < manners.publishers;
        let home = match manners.publishers {
            0 => 0..nodes,
            _ if is_publisher => 0..1,
            _ => 1..nodes,
        };
        let is_silent = manners.publishers > 0 && !is_publisher;
        Bot {
            user: format!("bot-{number}"),
            room: format!("room-{}", number % manners.rooms),
            place: Place::Outside { until: Duration::ZERO },
            // Members of one room are spread over the nodes.
            node: home.start + (number / manners.rooms) as usize % home.len().max(1),
            home,
            is_publisher,
            attempt: 0,
            failures: 0,
            token: String::new(),
            position: None,
            number: 0,
            under_way: None,
            next: if is_silent { Duration::MAX } else { manners.interval.mul_f64(part) },
            interval: manners.interval,
            asked: None,
            planned: None,
            stays_away: false,
            returns_at_once: false,
        }
    }

    pub(super) fn begin_attempt(&mut self) -> u64 {
        self.place = Place::Entering;
        self.attempt += 1;
        self.attempt
    }

    /// Returns the login: a new one, or the continuation of the session before.
    pub(super) fn login(&self) -> Request {
        let resume = self.position.map(|position| {
            let (token, position) = match &self.planned {
                Some(planned) => planned.claim(&self.token, position),
                None => (self.token.clone(), position),
            };
            Resume { token, rooms: [(self.room.clone(), (position.epoch, position.offset))].into() }
        });
        Request::Login { user: self.user.clone(), resume, unique_ids: true }
    }

    pub(super) fn enter(&mut self, channel: Channel<Request>, now: Duration) {
        self.place = Place::Inside(channel);
        self.failures = 0;
        self.asked = None;
        if let Some(under_way) = &mut self.under_way {
            under_way.again = Some(now);
        }
    }

    /// Records the end of an attempt or a connection.
    pub(super) fn lose(&mut self, now: Duration, hint: Option<Duration>) -> Lost {
        let was_inside = matches!(self.place, Place::Inside(_));
        let until = if self.stays_away { Duration::MAX } else { now + self.delay(hint) };
        self.place = Place::Outside { until };
        self.failures += 1;
        let (first, nodes) = (self.home.start, self.home.len());
        if !self.returns_at_once && nodes > 1 {
            // Another node, because this one may be gone.
            self.node = first + (self.node - first + 1 + random(nodes as u64 - 1) as usize) % nodes;
        }
        Lost { was_inside, stays_away: self.stays_away }
    }

    /// Returns the time until the next attempt: the server's hint and a backoff with jitter.
    fn delay(&self, hint: Option<Duration>) -> Duration {
        if self.returns_at_once && self.failures == 0 {
            return Duration::ZERO;
        }
        let (first, longest) = BACKOFF;
        let backoff = first.saturating_mul(1 << self.failures.min(10)).min(longest);
        hint.unwrap_or_default() + backoff.mul_f64(0.5 + random(1000) as f64 / 2000.0)
    }

    pub(super) fn come_back(&mut self, now: Duration) {
        self.stays_away = false;
        if let Place::Outside { until } = &mut self.place {
            *until = now.min(*until);
        }
    }

    /// Returns the place, and lets the bot neither come back nor talk.
    pub(super) fn leave_for_good(&mut self) -> Place {
        self.attempt += 1;
        std::mem::replace(&mut self.place, Place::Outside { until: Duration::MAX })
    }

    pub(super) fn is_waiting(&self) -> bool {
        self.under_way.is_some()
    }

    /// Sends the message that is due.
    pub(super) fn talk(&mut self, now: Duration, is_talking: bool) {
        let Place::Inside(channel) = &self.place else { return };
        match &mut self.under_way {
            Some(under_way) if under_way.again.is_some_and(|again| again <= now) => under_way.again = None,
            None if is_talking && self.next <= now => {
                self.number += 1;
                // Messages that were due during an outage are left out.
                self.next = (self.next + self.interval).max(now);
                self.under_way = Some(UnderWay { number: self.number, again: None });
            }
            _ => return,
        }
        let (room, text) = (self.room.clone(), self.number.to_string());
        // Fails if the channel has closed, and the message is then sent by the next one.
        let _ = channel.write(Request::Say { room, text, id: Some(u64::from(self.number).into()) });
    }

    /// Records that a message is accepted. Returns whether that is news.
    pub(super) fn accept(&mut self, number: u32) -> bool {
        self.under_way.take_if(|under_way| under_way.number == number).is_some()
    }

    /// Records that a message was refused, or is perhaps stored. It is sent again later.
    pub(super) fn refuse(&mut self, number: u64, now: Duration) {
        if let Some(under_way) =
            self.under_way.as_mut().filter(|under_way| u64::from(under_way.number) == number)
        {
            under_way.again = Some(now + RETRY);
        }
    }

    pub(super) fn ask_for_members(&mut self, now: Duration) {
        if let Place::Inside(channel) = &self.place
            && channel.write(Request::Who { room: self.room.clone() }).is_ok()
        {
            self.asked = Some(now);
        }
    }
}

/// Returns a random number below `limit`.
fn random(limit: u64) -> u64 {
    // Each state has keys of its own.
    RandomState::new().hash_one(0) % limit.max(1)
}
