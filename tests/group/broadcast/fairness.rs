//! Sharing of a loop between groups when one of them is flooded, counted in turns and deliveries of
//! a manually driven loop.

use crate::broadcast::{Room, all_written, broadcast_times};
use crate::support::{
    random::Random,
    tcp::{connect, read_all, read_n},
};
use bytes::Bytes;
use netwheel::{
    ChannelGroup, Completion, Error,
    channel::{Broadcast, BroadcastReport},
    codec::Line,
    error::Resource,
    group::ManualEventLoop,
    prelude::*,
    testing::ManualClock,
};
use std::{
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

/// Maximum number of deliveries in a turn.
const A_TURN: u64 = 4096;

/// Deliveries of a group before the next group is served.
const QUANTUM: usize = 256;

/// Joins a room.
struct Joins(Room);

impl Handler for Joins {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.join(ctx.channel());
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }
}

/// A loop with rooms of the given sizes.
struct House {
    by_hand: ManualEventLoop,
    rooms: Vec<Room>,
    /// The members' peers, by room.
    peers: Vec<Vec<TcpStream>>,
    _server: Server,
}

impl House {
    fn new(sizes: &[usize]) -> Self {
        Self::of(sizes.iter().map(|size| (Room::new(), *size)).collect())
    }

    fn of(rooms: Vec<(Room, usize)>) -> Self {
        // Time stands still, so only the limits on deliveries end a turn.
        let mut by_hand = EventLoopGroup::builder().clock(ManualClock::new()).build_manual().unwrap();
        let joining = Arc::new(AtomicUsize::new(0));
        let (of, now) = (rooms.iter().map(|room| room.0.clone()).collect::<Vec<_>>(), joining.clone());
        let server = ServerBootstrap::new(by_hand.group())
            .pipeline(move |_: &netwheel::Peer| {
                Pipeline::codec(Line::new()).handler(Joins(of[now.load(SeqCst)].clone()))
            })
            .bind("127.0.0.1:0")
            .unwrap();
        let mut peers = Vec::new();
        for (n, (room, size)) in rooms.iter().enumerate() {
            joining.store(n, SeqCst);
            peers.push((0..*size).map(|_| connect(server.local_address())).collect());
            while room.len() < *size {
                by_hand.run_once(Duration::from_millis(10));
            }
        }
        let rooms = rooms.into_iter().map(|room| room.0).collect();
        House { by_hand, rooms, peers, _server: server }
    }

    /// Runs a turn without sleeping, checks the limit of deliveries and returns their number.
    fn turn(&mut self) -> u64 {
        let before = self.by_hand.event_loop().metrics().deliveries;
        self.by_hand.run_once(Duration::ZERO);
        let delivered = self.by_hand.event_loop().metrics().deliveries - before;
        assert!(delivered <= A_TURN, "{delivered}");
        delivered
    }

    fn turns_until(&mut self, broadcast: Broadcast) -> (usize, BroadcastReport) {
        let report: Completion<BroadcastReport> = broadcast.report();
        let turns = 1
            + (0..1000)
                .take_while(|_| {
                    self.turn();
                    !report.is_done()
                })
                .count();
        (turns, self.by_hand.run_until(report).unwrap())
    }

    fn rest(&mut self) {
        while self.by_hand.run_once(Duration::ZERO) > 0 {}
    }
}

/// 12,000 deliveries take three turns. The last ones have nothing else to do.
#[test]
fn a_turn_that_only_delivers_is_not_an_empty_one() {
    let mut house = House::new(&[200]);
    let last = broadcast_times(&house.rooms[0], "hello", 60);
    let report = last.report();
    house.rest();
    assert!(report.is_done());
    assert_eq!(house.by_hand.run_once(Duration::ZERO), 0);
}

/// The wait is at most the current turn, which is full, and one quantum of each flooding group.
#[test]
fn a_flood_in_some_rooms_does_not_delay_another_room() {
    let mut house = House::new(&[200, 100, 5]);
    let last =
        [broadcast_times(&house.rooms[0], "flood", 400), broadcast_times(&house.rooms[1], "flood", 400)];
    let quiet = house.rooms[2].broadcast("quiet".into()).unwrap();
    let (turns, report) = house.turns_until(quiet);
    assert!(turns <= 2, "{turns} turns, while there are 120,000 deliveries in front");
    assert_eq!(report, all_written(5));
    for peer in &mut house.peers[2] {
        assert_eq!(read_n(peer, 6), b"quiet\n");
    }
    // Also while the flood continues: within the same turn.
    for n in 0..10 {
        broadcast_times(&house.rooms[0], "flood", 20);
        let quiet = house.rooms[2].broadcast("quiet".into()).unwrap();
        assert_eq!(house.turns_until(quiet), (1, all_written(5)), "{n}");
        assert!(house.by_hand.event_loop().metrics().deliveries < 120_000, "the flood waits");
    }
    let [first, second] = last;
    assert_eq!(house.turns_until(first).1, all_written(200), "nothing is lost");
    assert_eq!(house.turns_until(second).1, all_written(100));
    house.rest();
    for peer in &mut house.peers[1] {
        assert_eq!(read_n(peer, 6 * 400), "flood\n".repeat(400).as_bytes());
    }
}

/// Two rooms with the same number of waiting deliveries make progress at the same rate.
#[test]
fn rooms_that_flood_share_a_loop_equally() {
    let mut house = House::new(&[150, 15]);
    let mut broadcasts = [house.rooms[0].clone(), house.rooms[1].clone()].map(|room| {
        let times = 30_000 / room.len();
        (0..times).map(|_| room.broadcast("flood".into()).unwrap().report()).collect::<Vec<_>>()
    });
    while broadcasts.iter().all(|of| !of.is_empty()) {
        house.turn();
        let left = [0, 1].map(|room| {
            broadcasts[room].retain(|report| !report.is_done());
            broadcasts[room].len() * house.rooms[room].len()
        });
        // In the first turn nothing is waiting yet, so deliveries are in the order of the queue.
        let apart = A_TURN as usize + QUANTUM + 150;
        assert!(left[0].abs_diff(left[1]) <= apart, "{left:?}");
    }
    house.rest();
}

/// One thread's requests to a group and to its members stay in order, also while broadcasts wait.
#[test]
fn a_write_to_a_member_does_not_overtake_a_waiting_broadcast() {
    const ROUNDS: usize = 150;
    let mut house = House::new(&[100, 3]);
    let members = house.rooms[0].channels();
    for n in 0..ROUNDS {
        house.rooms[0].broadcast(format!("{n:03}").into()).unwrap();
        members[n % 100].write(format!("me {n:03}").into()).unwrap();
        // Run a turn in the middle of the requests.
        if n % 40 == 39 {
            house.turn();
        }
    }
    // A last message that is still waiting is not lost at the close.
    members.iter().for_each(Channel::close);
    let last = house.rooms[1].broadcast("other".into()).unwrap();
    assert_eq!(house.turns_until(last).1, all_written(3));
    let written = house.by_hand.event_loop().metrics().deliveries;
    assert!(written <= (ROUNDS * 100 + 3) as u64);
    while !house.rooms[0].is_empty() {
        house.turn();
    }
    assert_eq!(
        house.by_hand.event_loop().metrics().deliveries,
        (ROUNDS * 100 + 3) as u64,
        "each is delivered once"
    );
    let ids: Vec<_> = members.iter().map(|member| member.peer_address().unwrap()).collect();
    let peers = std::mem::take(&mut house.peers[0]);
    for mut peer in peers {
        let at = ids.iter().position(|id| *id == peer.local_addr().unwrap()).unwrap();
        let expected: String = (0..ROUNDS)
            .map(|n| if n % 100 == at { format!("{n:03}\nme {n:03}\n") } else { format!("{n:03}\n") })
            .collect();
        assert_eq!(String::from_utf8(read_all(&mut peer)).unwrap(), expected);
    }
}

/// Broadcasts to some or all members, writes to single members, and members that join and leave,
/// while broadcasts wait. The model is the list of lines that each member is to receive.
#[test]
fn filtered_broadcasts_and_writes_agree_with_a_model() {
    const MEMBERS: usize = 60;
    for seed in 1..6 {
        let mut random = Random::new(seed);
        let mut house = House::new(&[MEMBERS]);
        let room = house.rooms[0].clone();
        let members = room.channels();
        let mut expected = vec![String::new(); MEMBERS];
        let place =
            |channel: &Channel<Bytes>| members.iter().position(|one| one.id() == channel.id()).unwrap();
        let mut reports = Vec::new();
        for n in 0..1200 {
            let line = format!("{n:04}");
            let mut selected = Vec::new();
            let one = random.between(0, MEMBERS - 1);
            // A flood now and then, behind which the next requests wait.
            let (kind, times) = if n % 100 == 50 { (0, 150) } else { (random.between(0, 9), 1) };
            match kind {
                0..=4 => {
                    selected = (0..MEMBERS).filter(|at| room.contains(members[*at].id())).collect();
                    for _ in 0..times {
                        reports.push(room.broadcast(line.clone().into()).unwrap());
                    }
                }
                5 | 6 => {
                    let mask = random.number();
                    let filter = |channel: &Channel<Bytes>| {
                        let taken = mask >> place(channel) & 1 == 1 && channel.is_writable();
                        selected.extend(taken.then(|| place(channel)));
                        taken
                    };
                    reports.push(room.broadcast_where(filter, line.clone().into()).unwrap());
                }
                7 => {
                    members[one].write(line.clone().into()).unwrap();
                    selected.push(one);
                }
                8 if room.leave(members[one].id()) => {}
                8 => assert!(room.join(members[one].clone())),
                // Rarely, so that more deliveries wait than a turn makes.
                _ if n % 20 == 0 => drop(house.turn()),
                _ => {}
            }
            selected.iter().for_each(|at| expected[*at] += &format!("{line}\n").repeat(times));
        }
        for report in reports {
            let report = house.by_hand.run_until(report.report()).unwrap();
            assert_eq!(report, all_written(report.members), "seed {seed}");
        }
        house.rest();
        assert!(house.by_hand.event_loop().metrics().broadcasts_deferred > 0, "deliveries waited");
        members.iter().for_each(Channel::close);
        while house.by_hand.event_loop().metrics().channels > 0 {
            house.turn();
        }
        let ids: Vec<_> = members.iter().map(|member| member.peer_address().unwrap()).collect();
        for mut peer in std::mem::take(&mut house.peers[0]) {
            let at = ids.iter().position(|id| *id == peer.local_addr().unwrap()).unwrap();
            assert_eq!(String::from_utf8(read_all(&mut peer)).unwrap(), expected[at], "seed {seed}");
        }
    }
}

/// A sender that is faster than the loop is refused and gets its message back. Other groups are not
/// affected.
#[test]
fn a_group_that_floods_is_refused_when_too_many_deliveries_wait() {
    let limited: Room = ChannelGroup::builder().max_waiting_deliveries(1000).build().unwrap();
    let mut house = House::of(vec![(limited, 30), (Room::new(), 3)]);
    let mut taken = 0;
    let refused = loop {
        match house.rooms[0].broadcast(Bytes::from(taken.to_string())) {
            Ok(_) => taken += 1,
            Err(refused) => break refused,
        }
    };
    assert_eq!(taken, 1000_usize.div_ceil(30));
    assert_eq!(refused.value(), taken.to_string().as_bytes(), "the message comes back");
    assert!(
        matches!(refused.error(), Error::Full { resource: Resource::BroadcastDeliveries, limit: 1000, .. }),
        "{}",
        refused.error()
    );
    let other = house.rooms[1].broadcast("other".into()).unwrap();
    assert_eq!(house.turns_until(other).1, all_written(3));
    house.rest();
    assert!(house.rooms[0].broadcast("again".into()).is_ok());
    let refused = Room::builder().max_waiting_deliveries(0).build().unwrap_err();
    assert!(matches!(refused, Error::Setting(refused) if refused.setting() == "max_waiting_deliveries"));
}

/// Members close while deliveries to them wait, and new channels reuse their slots. Each member
/// receives exactly its own messages.
#[test]
fn members_join_and_leave_while_broadcasts_wait() {
    let mut house = House::new(&[100, 2]);
    let reports: Vec<_> =
        (0..100).map(|_| house.rooms[0].broadcast("flood".into()).unwrap().report()).collect();
    house.turn();
    // Half of the members leave, and new ones get their slots.
    house.peers[0].truncate(50);
    let before = house.rooms[0].len();
    while house.rooms[0].len() == before {
        house.turn();
    }
    house.rest();
    for report in reports {
        let report = house.by_hand.run_until(report).unwrap();
        assert_eq!((report.members, report.written + report.gone), (100, 100), "{report:?}");
    }
    for peer in &mut house.peers[0] {
        assert_eq!(read_n(peer, 600), "flood\n".repeat(100).as_bytes());
    }
}
