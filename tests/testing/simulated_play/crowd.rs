//! Rooms with many members, on loops that reach only a few of them in a turn. So broadcasts wait.
//!
//! A message of a thread never overtakes its earlier broadcasts, and each broadcast arrives once.

use super::{
    frames::{Frame, Kind, Wire},
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock},
    settings,
};
use bytes::Bytes;
use netwheel::{
    prelude::*,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
};
use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst},
    },
    time::Duration,
};

const CLIENTS: usize = 2;
const ROOMS: usize = 2;

/// What the programs of a play share.
#[derive(Clone)]
struct Crowd {
    play: Play,
    rooms: Arc<[ChannelGroup<Bytes>]>,
    seats: Arc<Mutex<Vec<HandlerRef<Seat>>>>,
    /// Broadcasts that were written to members, and broadcasts that have arrived.
    written: Arc<AtomicUsize>,
    arrived: Arc<AtomicUsize>,
    open_reports: Arc<AtomicUsize>,
    has_closed: Arc<AtomicBool>,
    /// A connection ended before all of its messages had arrived.
    is_cut: Arc<AtomicBool>,
}

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let room = |limit: usize| {
        let builder = ChannelGroup::builder().max_waiting(limit).max_waiting_deliveries(100 * limit);
        builder.clone().stay_closed(limit > 10).build().expect("the settings are in range")
    };
    let crowd = Crowd {
        play: play.clone(),
        rooms: [room(1000), room(3)].into(),
        seats: Arc::default(),
        written: Arc::default(),
        arrived: Arc::default(),
        open_reports: Arc::default(),
        has_closed: Arc::default(),
        is_cut: Arc::default(),
    };
    let shared = crowd.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let mut nodes = vec![server];
    for n in 2..2 + CLIENTS {
        let shared = crowd.clone();
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&shared)));
    }
    play.run_amid_faults(simulation, 10 * SECOND)?;
    play.end(simulation, server, &nodes)
}

/// The server's end of a connection.
struct Seat {
    crowd: Crowd,
}

impl Handler for Seat {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        lock(&self.crowd.seats).push(ctx.handler_ref());
        let is_late = self.crowd.has_closed.load(SeqCst);
        for room in self.crowd.rooms.iter().take(if is_late { 1 } else { ROOMS }) {
            let has_joined = room.join(ctx.channel());
            self.crowd
                .play
                .must(!(is_late && has_joined), || "a channel has joined a closed room".to_owned());
            let joins_twice = room.join(ctx.channel());
            self.crowd.play.must(!joins_twice, || "a channel has joined a room twice".to_owned());
        }
        Ok(())
    }

    fn read(&mut self, _ctx: &mut Context<'_, Self>, _message: Bytes) -> Result {
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _error: Error) -> Result {
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        lock(&self.crowd.seats).retain(|seat| seat.channel().id() != ctx.id());
        let is_left = self.crowd.rooms.iter().any(|room| room.contains(ctx.id()));
        self.crowd.play.must(!is_left, || "a closed channel is a member".to_owned());
        Ok(())
    }
}

fn serve(crowd: &Crowd) -> Result {
    let (mut draw, play) = (Draw::new(), &crowd.play);
    let group = settings::group(&mut draw).max_task_time(Duration::from_micros(20)).build()?;
    let wire = draw.pick(&Wire::ALL[1..]);
    let bind = || {
        let crowd = crowd.clone();
        ServerBootstrap::new(&group)
            .pipeline(move |_peer| wire.pipeline(Seat { crowd: crowd.clone() }))
            .bind("10.0.0.1:7000")
    };
    let server = settings::bound(play, bind)?;
    sleep(100 * MS);
    let mut number = 0;
    for _ in 0..10 + draw.below(15) {
        for _ in 0..1 + draw.below(10) {
            say(crowd, wire, &mut number, &mut draw);
        }
        if draw.chance(20) {
            choose_members(crowd, &mut draw);
        }
        sleep(draw.millis(200));
    }
    play.wait_for_calm();
    let is_quiet = || {
        let are_reported = crowd.open_reports.load(SeqCst) == 0;
        let is_cut = crowd.is_cut.load(SeqCst) || !play.is_strict();
        are_reported && (is_cut || crowd.arrived.load(SeqCst) == crowd.written.load(SeqCst))
    };
    let count = || format!("{:?} of {:?} broadcasts arrive", crowd.arrived, crowd.written);
    play.eventually(count, is_quiet);
    let (arrived, written) = (crowd.arrived.load(SeqCst), crowd.written.load(SeqCst));
    play.must(arrived <= written, || format!("{arrived} broadcasts of {written} have arrived"));
    crowd.has_closed.store(true, SeqCst);
    for room in crowd.rooms.iter() {
        let closed = room.close().wait_timeout(PATIENCE).is_ok();
        play.must(closed, || format!("{room:?} does not close"));
    }
    settings::keep(play, CLIENTS, server, bind)?;
    let left: usize = crowd.rooms.iter().map(ChannelGroup::len).sum();
    play.must(left == 0, || format!("{left} members are left"));
    settings::end(play, &group, "the server")
}

/// Broadcasts to a room, or writes to one member.
fn say(crowd: &Crowd, wire: Wire, number: &mut u32, draw: &mut Draw) {
    *number += 1;
    if draw.chance(40) {
        let seats = lock(&crowd.seats).clone();
        let Some(seat) = seats.get(draw.below(seats.len().max(1) as u64) as usize) else { return };
        let message = Frame { link: 0, producer: 0, kind: Kind::Data, number: *number }.encode(10);
        if draw.chance(30) {
            // A task of the handler does not overtake broadcasts either.
            let _ = seat.execute(move |_, ctx| ctx.write(message));
        } else {
            let _ = seat.channel().write(message);
        }
        return;
    }
    let room = draw.below(ROOMS as u64) as usize;
    let message = Frame { link: room as u32, producer: 0, kind: Kind::Broadcast, number: *number };
    let message = message.encode(draw.pick(&[0, 100]));
    let first = lock(&crowd.seats).first().map(|seat| seat.channel().id());
    let sent = match (draw.below(3), first) {
        (0, Some(first)) => crowd.rooms[room].broadcast_except(first, message),
        (1, _) => crowd.rooms[room].broadcast_where(Channel::is_writable, message),
        _ => crowd.rooms[room].broadcast(message),
    };
    let Ok(sent) = sent else { return sometimes("a room has too many waiting broadcasts") };
    crowd.open_reports.fetch_add(1, SeqCst);
    let (members, loops) = (sent.members(), sent.loops());
    crowd.play.must(loops <= 2 && (loops > 0 || members == 0) && sent.unreached() == 0, || {
        format!("{members} members on {loops} loops, {wire:?}")
    });
    let (shared, token) = (crowd.clone(), crowd.play.token("the report of a broadcast"));
    sent.report().on_complete(move |report| {
        token.called();
        if let Ok(report) = report {
            shared.play.must(report.members == members, || format!("{members} members, and {report:?}"));
            shared.written.fetch_add(report.written, SeqCst);
        }
        shared.open_reports.fetch_sub(1, SeqCst);
    });
}

/// Lets some members leave the second room. The others stay.
fn choose_members(crowd: &Crowd, draw: &mut Draw) {
    let (room, odd) = (&crowd.rooms[1], draw.below(2) as usize);
    let (mut chosen, mut others) = (BTreeSet::new(), BTreeSet::new());
    let mut place = 0;
    room.for_each(|member| {
        place += 1;
        let set = if place % 2 == odd { &mut chosen } else { &mut others };
        set.insert(member.id());
    });
    room.retain(|member| chosen.contains(&member.id()));
    // More members may have joined since.
    let is_other = room.channels().iter().any(|member| others.contains(&member.id()) && member.is_open());
    crowd.play.must(!is_other || !crowd.play.is_strict(), || "a member that has left is there".to_owned());
}

/// Checks the order of the messages.
struct Listener {
    crowd: Crowd,
    rooms: [u32; ROOMS],
    direct: u32,
}

impl Handler for Listener {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        let Some(frame) = Frame::decode(message) else {
            self.crowd.play.violation("a message is not what was written".to_owned());
            return Ok(());
        };
        let (play, number) = (&self.crowd.play, frame.number);
        if frame.kind == Kind::Data {
            play.must(number > self.direct, || format!("message {number} after message {}", self.direct));
            self.direct = number;
            return Ok(());
        }
        self.crowd.arrived.fetch_add(1, SeqCst);
        let before = &mut self.rooms[frame.link as usize];
        play.must(number > *before, || format!("broadcast {number} after broadcast {before}"));
        play.must(number > self.direct, || {
            format!("message {} has overtaken broadcast {number}", self.direct)
        });
        *before = number;
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _error: Error) -> Result {
        self.crowd.is_cut.store(true, SeqCst);
        ctx.close();
        Ok(())
    }
}

fn client(crowd: &Crowd) -> Result {
    crowd.play.wait_for_listener();
    let (mut draw, play) = (Draw::new(), &crowd.play);
    let group = EventLoopGroup::builder().threads(1).build()?;
    let mut channels = Vec::new();
    let connect = || {
        let crowd = crowd.clone();
        let client = ClientBootstrap::new(&group).connect_timeout(10 * SECOND).pipeline(move |_peer| {
            Wire::Hinted.pipeline(Listener { crowd: crowd.clone(), rooms: [0; ROOMS], direct: 0 })
        });
        let connected = client.connect("server:7000").wait_timeout(PATIENCE);
        let is_refused = !matches!(connected, Ok(Ok(_)));
        play.must(!is_refused || !play.is_strict(), || "a connect fails".to_owned());
        connected.ok().and_then(Result::ok)
    };
    for _ in 0..5 + draw.below(10) {
        channels.extend(connect());
    }
    for _ in 0..draw.below(5) {
        sleep(draw.millis(800));
        let leaver: &Channel<Bytes> = match channels.first() {
            Some(first) if draw.chance(40) => first,
            _ => continue,
        };
        crowd.is_cut.store(true, SeqCst);
        leaver.close();
    }
    play.wait_for_calm();
    play.eventually(|| "the rooms close".to_owned(), || crowd.has_closed.load(SeqCst));
    channels.extend(connect());
    for channel in &channels {
        // The server closes the members of its rooms. Some connections may be half open.
        if !play.is_strict() {
            channel.close();
        }
        let has_closed = channel.closed().wait_timeout(PATIENCE).is_ok();
        play.must(has_closed, || "a member of a closed room stays connected".to_owned());
    }
    settings::end(play, &group, "a client")?;
    play.finished();
    Ok(())
}
