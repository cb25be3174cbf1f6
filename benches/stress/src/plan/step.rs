//! The steps of the program's threads.

use super::{Act, Index, LinkPlan, MAX_THREADS, ServerPlan, Side, pick};
use fastrand::Rng;

#[derive(Debug, Clone)]
pub(crate) enum Step {
    Connect {
        link: Index,
    },
    Write {
        link: Index,
        side: Side,
        burst: WriteBurst,
    },
    /// On the loop, by a handle to the handler.
    Act {
        link: Index,
        side: Side,
        act: Act,
    },
    /// By the handle.
    Schedule {
        link: Index,
        side: Side,
        millis: u64,
    },
    Stats {
        link: Index,
        side: Side,
    },
    ShutdownWrite {
        link: Index,
        side: Side,
    },
    Close {
        link: Index,
        side: Side,
    },
    CloseNow {
        link: Index,
        side: Side,
    },
    Reset {
        link: Index,
        side: Side,
    },
    /// Asks for completions and drops them.
    Queries {
        link: Index,
        side: Side,
        query: Query,
        count: u32,
    },
    Broadcast {
        room: Index,
        count: u32,
        size: usize,
        to: Members,
        report: bool,
    },
    Rejoin {
        room: Index,
        link: Index,
        side: Side,
    },
    CloseRoom {
        room: Index,
    },
    /// Keeps a loop busy, so that its queue grows.
    Busy {
        group: Index,
        event_loop: Index,
        millis: u64,
    },
    LoopTasks {
        group: Index,
        count: u32,
    },
    Reconnect {
        server: Index,
        visits: u32,
    },
    Pool {
        server: Index,
        size: usize,
        visits: u32,
    },
    Accepting {
        server: Index,
        on: bool,
    },
    Pause {
        micros: u64,
    },
    Shutdown {
        group: Index,
    },
}

#[derive(Debug, Clone)]
pub(crate) struct WriteBurst {
    pub(crate) count: u32,
    pub(crate) size: usize,
    pub(crate) pace: Pace,
    pub(crate) tracked: bool,
}

/// How a producer obeys writability.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Not at all. Writes may be refused.
    Blind,
    /// `is_writable` before each message.
    Check,
    /// Waits for `writable` before each message.
    Wait,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Members {
    All,
    Except,
    Writable,
    Some,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Query {
    Writable,
    Closed,
    LoopTerminated,
    GroupTerminated,
    ServerClosed,
}

impl Query {
    pub(crate) const ALL: [Query; 5] =
        [Query::Writable, Query::Closed, Query::LoopTerminated, Query::GroupTerminated, Query::ServerClosed];
}

/// What threads choose from.
struct Scene<'a> {
    links: &'a [LinkPlan],
    servers: &'a [ServerPlan],
    rooms: usize,
    /// The number of steps per 1000 that end a link.
    endings: u16,
    /// The largest message.
    size: usize,
}

pub(super) fn threads(
    rng: &mut Rng,
    links: &[LinkPlan],
    servers: &[ServerPlan],
    rooms: usize,
) -> Vec<Vec<Step>> {
    let size = *pick(rng, &[1, 100, 3000, 20_000]);
    let scene = Scene { links, servers, rooms, endings: *pick(rng, &[10, 50, 150]), size };
    let (threads, steps) = (rng.usize(1..=MAX_THREADS), rng.usize(30..300));
    let mut threads: Vec<Vec<Step>> = (0..threads).map(|_| thread(rng, &scene, steps)).collect();
    for (link, _) in links.iter().enumerate().filter(|(_, link)| !link.early) {
        insert(rng, &mut threads, Step::Connect { link });
    }
    if rng.u8(..3) == 0 {
        for room in 0..rooms {
            insert(rng, &mut threads, Step::CloseRoom { room });
        }
    }
    if rng.u8(..4) == 0 {
        let group = rng.usize(..3);
        insert(rng, &mut threads, Step::Shutdown { group });
    }
    threads
}

fn insert(rng: &mut Rng, threads: &mut [Vec<Step>], step: Step) {
    let thread = rng.usize(..threads.len());
    let steps = &mut threads[thread];
    steps.insert(rng.usize(..=steps.len()), step);
}

fn thread(rng: &mut Rng, scene: &Scene<'_>, count: usize) -> Vec<Step> {
    let mut steps = vec![];
    while steps.len() < count {
        if rng.u16(..1000) < scene.endings {
            end_of_link(rng, scene, &mut steps);
        } else {
            steps.push(step(rng, scene));
        }
    }
    steps
}

fn side(rng: &mut Rng) -> Side {
    if rng.bool() { Side::Client } else { Side::Server }
}

/// Ends a link, often while both ends write.
fn end_of_link(rng: &mut Rng, scene: &Scene<'_>, steps: &mut Vec<Step>) {
    let (link, side, size) = (rng.usize(..scene.links.len()), side(rng), rng.usize(..=scene.size));
    if rng.u8(..4) != 0 {
        for side in [Side::Client, Side::Server] {
            steps.push(Step::Act { link, side, act: Act::stream(rng, size) });
        }
        steps.push(Step::Pause { micros: rng.u64(..3000) });
    }
    steps.push(match rng.u8(..8) {
        0 => Step::ShutdownWrite { link, side },
        1 => Step::Close { link, side },
        2 => Step::CloseNow { link, side },
        3 => Step::Reset { link, side },
        _ => Step::Act { link, side, act: Act::ending(rng, size) },
    });
}

fn step(rng: &mut Rng, scene: &Scene<'_>) -> Step {
    let (link, side, size) = (rng.usize(..scene.links.len()), side(rng), rng.usize(..=scene.size));
    let room = rng.usize(..scene.rooms);
    match rng.u8(..100) {
        0..=39 => {
            let pace = *pick(rng, &[Pace::Blind, Pace::Check, Pace::Wait, Pace::Wait]);
            let burst = WriteBurst { count: rng.u32(1..30), size, pace, tracked: rng.u8(..3) == 0 };
            Step::Write { link, side, burst }
        }
        40..=63 => Step::Act { link, side, act: Act::harmless(rng, size) },
        64..=66 => Step::Schedule { link, side, millis: rng.u64(..20) },
        67 => Step::Stats { link, side },
        68..=70 => Step::Queries { link, side, query: *pick(rng, &Query::ALL), count: rng.u32(1..50) },
        71..=80 => Step::Broadcast {
            room,
            count: *pick(rng, &[1, 1, 5, 40]),
            size: size.min(3000),
            to: *pick(
                rng,
                &[Members::All, Members::Except, Members::Writable, Members::Writable, Members::Some],
            ),
            report: rng.bool(),
        },
        81 | 82 => Step::Rejoin { room, link, side },
        83..=85 => Step::Busy { group: rng.usize(..3), event_loop: rng.usize(..3), millis: rng.u64(1..15) },
        86..=88 => Step::LoopTasks { group: rng.usize(..3), count: rng.u32(1..20) },
        89 => Step::Reconnect { server: rng.usize(..scene.servers.len()), visits: rng.u32(1..4) },
        90 | 91 => Step::Pool {
            server: rng.usize(..scene.servers.len()),
            size: rng.usize(1..4),
            visits: rng.u32(1..10),
        },
        92 => Step::Accepting { server: rng.usize(..scene.servers.len()), on: rng.u8(..4) != 0 },
        _ => Step::Pause { micros: rng.u64(..3000) },
    }
}
