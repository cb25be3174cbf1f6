//! Groups of channels and their broadcasts.

use super::{
    frames::{Frame, Kind},
    kit::{Draw, Play, lock},
    links::{End, Side},
};
use bytes::Bytes;
use netwheel::{ChannelId, prelude::*, testing::simulation::sometimes};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
};

/// The rooms of a play. Clones share them.
#[derive(Clone)]
pub(super) struct Rooms {
    play: Play,
    rooms: Arc<[Room]>,
}

struct Room {
    members: ChannelGroup<Bytes>,
    facts: Mutex<Facts>,
}

enum Recipients {
    Only(BTreeSet<ChannelId>),
    AllBut(ChannelId),
}

impl Recipients {
    fn contain(&self, id: ChannelId) -> bool {
        match self {
            Recipients::Only(chosen) => chosen.contains(&id),
            Recipients::AllBut(other) => *other != id,
        }
    }
}

#[derive(Default)]
struct Facts {
    /// The channels of links that may be members.
    channels: BTreeMap<u32, ChannelId>,
    /// The recipients of broadcasts. All channels may receive one that is missing.
    chosen: BTreeMap<u32, Recipients>,
    next: u32,
    /// The number of the last broadcast that has arrived on each link.
    seen: BTreeMap<u32, u32>,
    written: usize,
    arrived: usize,
}

impl Rooms {
    pub(super) fn new(play: &Play, rooms: usize) -> Self {
        let room = |_| Room { members: ChannelGroup::new(), facts: Mutex::default() };
        Rooms { play: play.clone(), rooms: (0..rooms).map(room).collect() }
    }

    /// Lets the channel of a server's end join the rooms that its number selects.
    pub(super) fn enter(&self, end: &End, channel: &Channel<Bytes>) {
        if end.side == Side::Client {
            return;
        }
        for (number, room) in self.rooms.iter().enumerate() {
            if number == 0 || end.link as usize % self.rooms.len() == number {
                lock(&room.facts).channels.insert(end.link, channel.id());
                self.play.must(room.members.join(channel.clone()) || !channel.is_open(), || {
                    "a channel cannot join a room".to_owned()
                });
            }
        }
    }

    /// Checks that a channel that has ended has left its rooms.
    pub(super) fn left(&self, end: &End) {
        if end.side == Side::Client {
            return;
        }
        for room in self.rooms.iter() {
            let id = lock(&room.facts).channels.get(&end.link).copied();
            if let Some(id) = id {
                self.play
                    .must(!room.members.contains(id), || "a closed channel is a member of a room".to_owned());
            }
        }
    }

    pub(super) fn arrived(&self, end: &End, frame: Frame) {
        let Some(room) = self.rooms.get(frame.link as usize) else {
            return self.play.violation(format!("a broadcast to room {}, which does not exist", frame.link));
        };
        let mut facts = lock(&room.facts);
        facts.arrived += 1;
        let (number, link) = (frame.number, end.link);
        let before = facts.seen.insert(link, number);
        let id = facts.channels.get(&link).copied();
        let is_chosen =
            id.is_some_and(|id| facts.chosen.get(&number).is_none_or(|chosen| chosen.contain(id)));
        drop(facts);
        self.play.must(before.is_none_or(|before| before < number), || {
            format!("link {link}: broadcast {number} to room {} after {before:?}", frame.link)
        });
        self.play.must(is_chosen, || {
            format!("link {link}: broadcast {number} to room {} was for others", frame.link)
        });
    }

    /// Broadcasts a few messages to a random room.
    pub(super) fn broadcast(&self, draw: &mut Draw) {
        let number = draw.below(self.rooms.len() as u64) as usize;
        let room = &self.rooms[number];
        for _ in 0..=draw.below(12) {
            self.one_broadcast(number, room, draw);
        }
    }

    fn one_broadcast(&self, number: usize, room: &Room, draw: &mut Draw) {
        let members = room.members.channels();
        // A member may leave while this thread is preempted between the counts.
        let is_equal = (0..3).any(|_| room.members.channels().len() == room.members.len());
        self.play.must(is_equal, || "the members of a room differ".to_owned());
        let (mut chosen, kind) = (BTreeSet::new(), draw.below(5));
        let message = {
            let mut facts = lock(&room.facts);
            facts.next += 1;
            Frame { link: number as u32, producer: 0, kind: Kind::Broadcast, number: facts.next }
        };
        let (bytes, mut coin) = (message.encode(draw.pick(&[0, 10, 300, 3000])), draw.below(2) == 0);
        let sent = match kind {
            0 => room.members.broadcast(bytes),
            1 => match members.first() {
                Some(first) => {
                    let others = Recipients::AllBut(first.id());
                    lock(&room.facts).chosen.insert(message.number, others);
                    room.members.broadcast_except(first.id(), bytes)
                }
                None => return,
            },
            2 | 3 => room.members.broadcast_where(
                |member| {
                    let is_writable = member.is_writable();
                    if is_writable {
                        chosen.insert(member.id());
                    }
                    is_writable
                },
                bytes,
            ),
            _ => room.members.broadcast_where(
                |member| {
                    coin = !coin;
                    if coin {
                        chosen.insert(member.id());
                    }
                    coin
                },
                bytes,
            ),
        };
        if kind > 1 {
            // What has arrived before is not checked.
            lock(&room.facts).chosen.insert(message.number, Recipients::Only(chosen.clone()));
        }
        let Ok(sent) = sent else { return };
        let (expected, play, rooms) = (sent.members(), self.play.clone(), self.clone());
        if kind > 1 {
            self.play.must(expected <= chosen.len(), || format!("{expected} recipients of {}", chosen.len()));
        }
        let token = play.token("the report of a broadcast");
        sent.report().on_complete(move |result| {
            token.called();
            let Ok(report) = result else { return };
            let sum = report.written
                + report.dropped
                + report.refused
                + report.closed
                + report.failed
                + report.gone
                + report.unreached;
            play.must(report.members == expected && sum == expected, || {
                format!("of {expected} members: {report:?}")
            });
            play.must(report.failed == 0, || format!("a broadcast was not encoded: {report:?}"));
            if report.refused + report.dropped > 0 {
                sometimes("broadcast beyond a limit");
            }
            lock(&rooms.rooms[number].facts).written += report.written;
        });
    }

    /// Lets a member leave a room, or join it again.
    pub(super) fn move_member(&self, draw: &mut Draw) {
        let room = &self.rooms[draw.below(self.rooms.len() as u64) as usize];
        let members = room.members.channels();
        if members.is_empty() {
            return;
        }
        let member = members[draw.below(members.len() as u64) as usize].clone();
        if !room.members.leave(member.id()) {
            return;
        }
        self.play
            .must(!room.members.contains(member.id()), || "a member that has left is a member".to_owned());
        for other in members.iter().filter(|other| other.id() != member.id() && other.is_open()) {
            self.play.must(room.members.contains(other.id()) || !other.is_open(), || {
                "a member that has not left is gone".to_owned()
            });
        }
        if draw.chance(80) && member.is_open() {
            room.members.join(member);
        }
    }

    /// Closes all members of a room, and notes it at their ends first.
    pub(super) fn close_room(&self, number: usize, ends: &[Arc<End>]) {
        let Some(room) = self.rooms.get(number) else { return };
        let channels = lock(&room.facts).channels.clone();
        for end in ends {
            if end.side == Side::Server && channels.contains_key(&end.link) {
                end.will_close();
            }
        }
        let token = self.play.token("the close of a room");
        room.members.close().on_complete(move |_| token.called());
    }

    /// Checks the counts after all channels have closed.
    pub(super) fn check_end(&self) {
        for (number, room) in self.rooms.iter().enumerate() {
            self.play.must(room.members.is_empty() && room.members.channels().is_empty(), || {
                format!("{} members of room {number} are left", room.members.len())
            });
            let (written, arrived) = {
                let facts = lock(&room.facts);
                (facts.written, facts.arrived)
            };
            self.play.must(arrived <= written, || {
                format!("room {number}: {arrived} messages have arrived, {written} were written")
            });
        }
    }
}
