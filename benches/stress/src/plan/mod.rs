//! What a round plays, from its seed: groups, servers, links, rooms, and the steps of each thread.
//!
//! Pure: the same seed makes the same plan. Only the timing of a round differs between runs.

mod act;
mod settings;
mod step;

pub(crate) use act::Act;
pub(crate) use settings::{ChannelSettings, GroupSettings, Wire};
pub(crate) use step::{Members, Pace, Query, Step, WriteBurst};

use fastrand::Rng;

/// The most threads of a plan. Each is a producer of its own in [`crate::stream::Stream`].
pub(crate) const MAX_THREADS: usize = 6;

/// A part of the world that a step names by its index.
pub(crate) type Index = usize;

/// The end of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Client,
    Server,
}

#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Of the clients, of the relays, and of the servers.
    pub(crate) groups: [GroupSettings; 3],
    pub(crate) servers: Vec<ServerPlan>,
    pub(crate) links: Vec<LinkPlan>,
    pub(crate) rooms: usize,
    pub(crate) threads: Vec<Vec<Step>>,
    pub(crate) ending: Ending,
}

#[derive(Debug)]
pub(crate) struct ServerPlan {
    pub(crate) unix: bool,
    pub(crate) filter: bool,
    pub(crate) wire: Wire,
    pub(crate) channel: ChannelSettings,
    /// Answers each message with one of the same size, if the channel is writable.
    pub(crate) echo: bool,
    /// Forwards to this server instead of reading messages.
    pub(crate) relay_to: Option<Index>,
    /// The relay's second connection stays on the loop of the first.
    pub(crate) same_loop: bool,
}

#[derive(Debug)]
pub(crate) struct LinkPlan {
    pub(crate) server: Index,
    pub(crate) wire: Wire,
    pub(crate) channel: ChannelSettings,
    /// Connected before the threads start, and not by one of them.
    pub(crate) early: bool,
    pub(crate) client_rooms: Vec<Index>,
    pub(crate) server_rooms: Vec<Index>,
    pub(crate) ends: [EndPlan; 2],
}

/// How the handler of an end behaves.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EndPlan {
    /// At the peer's end, with half-close: a few messages first.
    pub(crate) late_messages: u32,
    /// At an error: closes gracefully, or returns the error.
    pub(crate) returns_errors: bool,
    /// At the shutdown of its loop: stays open until the timeout.
    pub(crate) ignores_shutdown: bool,
}

/// How a round ends after its steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Groups shut down while everything is open.
    Shutdown,
    /// All channels close first.
    CloseAll,
    /// All rooms close first.
    CloseRooms,
}

impl Plan {
    pub(crate) fn new(seed: u64) -> Self {
        let rng = &mut Rng::with_seed(seed);
        let edges = rng.u8(..5) == 0;
        let groups = std::array::from_fn(|_| GroupSettings::random(rng, edges));
        let servers = servers(rng);
        let rooms = rng.usize(1..=4);
        let count = *pick(rng, &[8, 30, 80, 150, 300]);
        let crowd = rng.u8(..3) == 0;
        let links: Vec<_> = (0..count).map(|_| link(rng, &servers, rooms, crowd)).collect();
        let threads = step::threads(rng, &links, &servers, rooms);
        let ending = *pick(rng, &[Ending::Shutdown, Ending::CloseAll, Ending::CloseRooms]);
        Plan { seed, groups, servers, links, rooms, threads, ending }
    }
}

/// Servers that read messages, and relays in front of them.
fn servers(rng: &mut Rng) -> Vec<ServerPlan> {
    let (ends, relays) = (rng.usize(1..=3), rng.usize(0..=3));
    let server = |rng: &mut Rng, relay_to: Option<Index>| ServerPlan {
        unix: rng.u8(..4) == 0,
        filter: rng.u8(..4) == 0,
        wire: Wire::random(rng),
        channel: match relay_to {
            Some(_) => ChannelSettings::of_relay(rng),
            None => ChannelSettings::random(rng, true),
        },
        echo: relay_to.is_none() && rng.bool(),
        relay_to,
        same_loop: rng.bool(),
    };
    let mut servers: Vec<_> = (0..ends).map(|_| server(rng, None)).collect();
    for _ in 0..relays {
        let to = rng.usize(..servers.len());
        servers.push(server(rng, Some(to)));
    }
    servers
}

fn link(rng: &mut Rng, servers: &[ServerPlan], rooms: usize, crowd: bool) -> LinkPlan {
    let join = |rng: &mut Rng, odds: u8| (0..rooms).filter(|_| rng.u8(..100) < odds).collect();
    let end = |rng: &mut Rng| EndPlan {
        late_messages: *pick(rng, &[0, 0, 1, 5]),
        returns_errors: rng.bool(),
        ignores_shutdown: rng.u8(..8) == 0,
    };
    LinkPlan {
        server: rng.usize(..servers.len()),
        wire: Wire::random(rng),
        channel: ChannelSettings::random(rng, false),
        early: rng.u8(..10) != 0,
        client_rooms: join(rng, if crowd { 60 } else { 10 }),
        server_rooms: join(rng, if crowd { 90 } else { 40 }),
        ends: [end(rng), end(rng)],
    }
}

impl LinkPlan {
    pub(crate) fn end(&self, side: Side) -> EndPlan {
        self.ends[usize::from(side == Side::Server)]
    }
}

/// Returns one of the values.
pub(crate) fn pick<'a, T>(rng: &mut Rng, values: &'a [T]) -> &'a T {
    &values[rng.usize(..values.len())]
}
