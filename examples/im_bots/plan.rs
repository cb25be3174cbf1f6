//! The roles of the bots: fixed before the first connection is opened, and shared by all bots.

use crate::{directs::Directs, passive::Passives, slow::Slows, tally::Tally};
use std::{
    fmt,
    str::FromStr,
    sync::atomic::{AtomicBool, AtomicUsize, Ordering},
    time::{Duration, Instant},
};

/// Behaviour of a bot after its login.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    /// Joins a room and talks in it.
    Talker(Seat),
    /// Does not join a room, receives only heartbeats, and answers them.
    Quiet,
    /// Joins a room and does not read until the others have stopped talking.
    Slow { room: u32 },
    /// Joins a room and receives the number of messages to it.
    Passive { room: u32 },
    /// Sends nothing more; the server has to close it.
    Silent,
}

/// A talker's room, and its place among the members of that room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Seat {
    pub(crate) room: u32,
    pub(crate) place: u32,
}

/// A percentage, as in `--silent 1%`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Share(f64);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.strip_suffix('%').ok_or("expected a percentage such as 1%")?;
        let percent: f64 = number.trim().parse().map_err(|e| format!("{number}: {e}"))?;
        if (0.0..=100.0).contains(&percent) {
            Ok(Share(percent))
        } else {
            Err("expected 0% to 100%".to_owned())
        }
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", self.0)
    }
}

impl Share {
    /// Returns whether item `n` belongs to the share. The share is spread evenly over all items.
    pub(crate) fn takes(self, n: usize) -> bool {
        let until = |n: usize| (n as f64 * self.0 / 100.0 + 1e-9).floor();
        until(n + 1) > until(n)
    }
}

/// State shared by all bots of a run.
pub(crate) struct Plan {
    /// Identifies the messages of this run among others in the same rooms.
    pub(crate) run: u32,
    pub(crate) roles: Vec<Role>,
    /// Start of the run; send times are relative to it.
    pub(crate) start: Instant,
    pub(crate) tally: Tally,
    pub(crate) directs: Directs,
    pub(crate) slows: Slows,
    pub(crate) passives: Passives,
    /// Set at the end of the run, when closed connections are expected.
    pub(crate) over: AtomicBool,
    pub(crate) rooms: u32,
    /// Minimum size in bytes of a message to a room.
    pub(crate) size: usize,
    /// Time by which the server may be late in closing a silent client, in addition to one tick of
    /// its wheel.
    pub(crate) grace: Duration,
    no_ack: Share,
    /// Number of the next bot.
    next: AtomicUsize,
}

/// The shares of bots with a special behaviour.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shares {
    /// Share of all bots.
    pub(crate) silent: Share,
    /// Share of the bots that are not silent.
    pub(crate) quiet: Share,
    /// Share of the bots that join a room.
    pub(crate) slow: Share,
    /// Share of the bots in rooms that are not slow.
    pub(crate) passive: Share,
    /// Share of the talkers.
    pub(crate) no_ack: Share,
}

impl Plan {
    pub(crate) fn new(clients: usize, rooms: u32, size: usize, grace: Duration, shares: Shares) -> Self {
        Plan {
            run: std::process::id(),
            roles: roles(clients, rooms, shares),
            start: Instant::now(),
            tally: Tally::default(),
            directs: Directs::default(),
            slows: Slows::default(),
            passives: Passives::default(),
            over: AtomicBool::new(false),
            rooms,
            size,
            grace,
            no_ack: shares.no_ack,
            next: AtomicUsize::new(0),
        }
    }

    /// Returns the number and the role of the next bot. A bot is numbered when its connection is
    /// established, because connections complete in any order.
    pub(crate) fn next_bot(&self) -> (usize, Role) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number, self.roles.get(number).copied().unwrap_or(Role::Quiet))
    }

    pub(crate) fn user(&self, bot: usize) -> String {
        format!("bot-{}-{bot}", self.run)
    }

    pub(crate) fn room(&self, room: u32) -> String {
        format!("bots-{room}")
    }

    /// Returns whether the talker in this seat acknowledges direct messages.
    pub(crate) fn acks(&self, seat: Seat) -> bool {
        !self.no_ack.takes((seat.place * self.rooms + seat.room) as usize)
    }

    pub(crate) fn count(&self, wanted: impl Fn(&Role) -> bool) -> usize {
        self.roles.iter().filter(|role| wanted(role)).count()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }
}

fn roles(clients: usize, rooms: u32, shares: Shares) -> Vec<Role> {
    let mut talkers = (0..).map(|n| Role::Talker(Seat { room: n % rooms, place: n / rooms }));
    let mut slow = (0..).map(|n| Role::Slow { room: n % rooms });
    let mut passive = (0..).map(|n| Role::Passive { room: n % rooms });
    let (mut others, mut in_rooms, mut reading) = (0, 0, 0);
    let role = |n| {
        if shares.silent.takes(n) {
            return Role::Silent;
        }
        others += 1;
        if shares.quiet.takes(others - 1) {
            return Role::Quiet;
        }
        in_rooms += 1;
        if shares.slow.takes(in_rooms - 1) {
            return slow.next().unwrap_or(Role::Quiet);
        }
        reading += 1;
        let role = if shares.passive.takes(reading - 1) { passive.next() } else { talkers.next() };
        role.unwrap_or(Role::Quiet)
    };
    (0..clients).map(role).collect()
}

/// The text of a message, from which a listener can identify the message and compute its age.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) run: u32,
    pub(crate) seat: Seat,
    /// Number of the message, counted from 1 by each talker.
    pub(crate) number: u32,
    /// Time since the start of the run.
    pub(crate) at: Duration,
}

impl fmt::Display for Said {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Said { run, seat, number, at } = self;
        write!(f, "{run} {} {} {number} {}", seat.room, seat.place, at.as_nanos())
    }
}

impl Said {
    /// Formats the message and pads it to `size` bytes.
    pub(crate) fn padded(&self, size: usize) -> String {
        let mut text = format!("{self} ");
        let padding = size.saturating_sub(text.len());
        text.extend(std::iter::repeat_n('.', padding));
        text
    }

    /// Parses a message. Returns `None` if the text was not written by a bot.
    pub(crate) fn parse(text: &str) -> Option<Said> {
        let mut words = text.split(' ');
        let mut number = || words.next()?.parse().ok();
        let (run, room, place, n) = (number()?, number()?, number()?, number()?);
        let at = Duration::from_nanos(words.next()?.parse().ok()?);
        Some(Said { run, seat: Seat { room, place }, number: n, at })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shares(silent: f64, quiet: f64, slow: f64, no_ack: f64) -> Shares {
        let [silent, quiet, slow, no_ack] = [silent, quiet, slow, no_ack].map(Share);
        Shares { silent, quiet, slow, passive: Share(0.0), no_ack }
    }

    #[test]
    fn a_share_of_the_bots_in_rooms_is_passive() {
        let shares = Shares { passive: Share(50.0), ..shares(1.0, 10.0, 10.0, 0.0) };
        let roles = roles(10_000, 10, shares);
        let passive = |n| roles.iter().filter(|role| **role == Role::Passive { room: n }).count();
        assert!((0..10).all(|n| (400..=401).contains(&passive(n))));
    }

    #[test]
    fn shares_are_exact_and_rooms_are_even() {
        let roles = roles(10_000, 100, shares(1.0, 10.0, 10.0, 0.0));
        let count = |wanted: &dyn Fn(&Role) -> bool| roles.iter().filter(|role| wanted(role)).count();
        assert_eq!(count(&|role| *role == Role::Silent), 100);
        assert_eq!(count(&|role| *role == Role::Quiet), 990);
        let in_room = |n| count(&|role| matches!(role, Role::Talker(seat) if seat.room == n));
        assert!((0..100).all(|n| (80..=81).contains(&in_room(n))));
        let slow_in_room = |n| count(&|role| *role == Role::Slow { room: n });
        assert!((0..100).all(|n| (8..=9).contains(&slow_in_room(n))));
    }

    #[test]
    fn a_share_of_the_talkers_does_not_acknowledge() {
        let plan = Plan::new(1000, 7, 0, Duration::ZERO, shares(0.0, 0.0, 0.0, 5.0));
        let deaf = plan.count(|role| matches!(role, Role::Talker(seat) if !plan.acks(*seat)));
        assert_eq!(deaf, 50);
    }

    #[test]
    fn a_formatted_message_can_be_parsed() {
        let seat = Seat { room: 7, place: 41 };
        let said = Said { run: 1, seat, number: 3, at: Duration::from_nanos(1_234_567_890) };
        assert_eq!(Said::parse(&said.to_string()), Some(said));
        assert_eq!(Said::parse(&said.padded(0)), Some(said));
        assert_eq!(Said::parse(&said.padded(100)), Some(said));
        assert_eq!(said.padded(100).len(), 100);
        assert_eq!(Said::parse("hello everybody"), None);
    }
}
