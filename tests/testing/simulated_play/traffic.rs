//! Connections with rate limits of their own and of a group, which change while bytes move.
//!
//! A client sends a pattern, and the server sends it back. No limit is exceeded, no byte is lost,
//! and no peer is late because of a limit.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock, now},
    meter::{Limit, Meters, limits},
    settings,
};
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, TimeLimits},
    codec::RawBytes,
    prelude::*,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
    time::Periodic,
    traffic::SharedTraffic,
};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::SeqCst},
};

const CLIENTS: usize = 2;
const KIB: u64 = 1024;

/// The lowest rate that the play uses. A connection moves at least a part of it.
const SLOWEST: u64 = 8 * KIB;

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let shared = play.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let mut nodes = vec![server];
    for n in 2..2 + CLIENTS {
        let shared = play.clone();
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&shared)));
    }
    play.run_amid_faults(simulation, 20 * SECOND)?;
    play.end(simulation, server, &nodes)
}

fn draw_limit(draw: &mut Draw) -> Limit {
    let rate = draw.pick(&[SLOWEST, 50 * KIB, 300 * KIB]);
    Limit { rate, burst: draw.pick(&[0, 1, 2_000, 100_000]) }
}

/// The limits and counts of all channels of the server.
#[derive(Clone)]
struct Group {
    traffic: SharedTraffic,
    meters: Arc<Mutex<Meters>>,
    read: Arc<AtomicU64>,
    written: Arc<AtomicU64>,
}

/// Sends its input back, within limits.
struct Echo {
    play: Play,
    group: Option<Group>,
    own: Meters,
    /// The limits that are set after a while.
    later: Vec<(Limit, Limit)>,
    read: u64,
    written: u64,
}

impl Echo {
    /// Counts the bytes that the channel has moved since the last sample.
    fn sample(&mut self, ctx: &Context<'_, Self>) {
        let (stats, at) = (ctx.stats(), now());
        self.own.moved(stats.bytes_read, stats.bytes_written, at);
        if let Some(group) = &self.group {
            let mut meters = lock(&group.meters);
            let (more_read, more_written) =
                (stats.bytes_read - self.read, stats.bytes_written - self.written);
            let read = group.read.fetch_add(more_read, SeqCst) + more_read;
            let written = group.written.fetch_add(more_written, SeqCst) + more_written;
            meters.moved(read, written, at);
        }
        (self.read, self.written) = (stats.bytes_read, stats.bytes_written);
    }

    fn change(&mut self, ctx: &mut Context<'_, Self>) {
        let Some((read, write)) = self.later.pop() else { return };
        self.sample(ctx);
        self.own.read.change(read);
        self.own.write.change(write);
        let settings = limits(read, write);
        match &self.group {
            Some(group) => ctx.set_traffic(settings.shared_with(&group.traffic)),
            None => ctx.set_traffic(settings),
        }
        let (is_set, has_group) = (ctx.traffic().limits() == settings, ctx.traffic().shared().is_some());
        self.play.must(is_set && has_group == self.group.is_some() && !ctx.traffic().is_off(), || {
            "the limits of a channel are not those that were set".to_owned()
        });
    }
}

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.schedule_periodic(Periodic::fixed_rate(37 * MS), |me: &mut Self, ctx| {
            me.sample(ctx);
            Ok(())
        })?;
        for n in 1..=self.later.len() as u32 {
            ctx.schedule(n * 300 * MS, |me: &mut Self, ctx| {
                me.change(ctx);
                Ok(())
            });
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.sample(ctx);
        ctx.write(bytes)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        // The time limits of the peer do not count while a rate limit holds the channel up.
        let is_late = matches!(error, Error::TimedOut { .. }) && self.play.is_strict();
        self.play.must(!is_late, || format!("a limited channel fails: {error:#}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.sample(ctx);
        Ok(())
    }
}

fn serve(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    let (read, write) = (draw_limit(&mut draw), draw_limit(&mut draw));
    let members = Group {
        traffic: SharedTraffic::new(limits(read, write)),
        meters: Arc::new(Mutex::new(Meters::of_group(play, read, write))),
        read: Arc::default(),
        written: Arc::default(),
    };
    let options = ChannelOptions::new()
        .read_size(draw.pick(&[64, 64 * 1024]))
        .reads_per_turn(draw.pick(&[1, 16]))
        .read_while_writable(true)
        .close_timeout(PATIENCE);
    let bind = || {
        let (play, members, seed) = (play.clone(), members.clone(), Mutex::new(Draw::new()));
        ServerBootstrap::new(&group)
            .channel_options(options.clone())
            .pipeline(move |_peer| {
                let mut draw = lock(&seed);
                let (read, write) = (draw_limit(&mut draw), draw_limit(&mut draw));
                let later = (0..draw.below(4)).map(|_| (draw_limit(&mut draw), draw_limit(&mut draw)));
                let later: Vec<_> = later.collect();
                let group = draw.chance(60).then(|| members.clone());
                let own = Meters::of_channel(&play, read, write);
                let own_limits = limits(read, write);
                let shaping = match &group {
                    Some(group) => own_limits.shared_with(&group.traffic),
                    None => own_limits.into(),
                };
                // Shorter than many transfers. It stops while a rate limit holds the channel up.
                let late = TimeLimits::new().write(SECOND);
                let play = play.clone();
                let echo = Echo { play, group, own, later, read: 0, written: 0 };
                Pipeline::codec(RawBytes).traffic(shaping).time_limits(late).handler(echo)
            })
            .bind("10.0.0.1:7000")
    };
    let server = settings::bound(play, bind)?;
    for _ in 0..draw.below(3) {
        sleep(draw.millis(1500));
        let (read, write) = (draw_limit(&mut draw), draw_limit(&mut draw));
        {
            let mut meters = lock(&members.meters);
            meters.read.change(read);
            meters.write.change(write);
        }
        members.traffic.set(limits(read, write));
        play.must(members.traffic.limits() == limits(read, write), || "other limits of a group".to_owned());
    }
    settings::keep(play, CLIENTS, server, bind)?;
    settings::end(play, &group, "the server")
}

/// Returns the byte of a pattern that does not repeat within the length of a read.
fn pattern(at: u64) -> u8 {
    (at ^ (at >> 8) ^ (at >> 16).wrapping_mul(31)) as u8
}

/// Checks the bytes that come back.
struct Receiver {
    play: Play,
    received: Arc<AtomicU64>,
}

impl Handler for Receiver {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        let from = self.received.fetch_add(bytes.len() as u64, SeqCst);
        let is_whole = bytes.iter().zip(from..).all(|(byte, at)| *byte == pattern(at));
        self.play.must(is_whole, || format!("other bytes behind byte {from}"));
        Ok(())
    }
}

fn client(play: &Play) -> Result {
    play.wait_for_listener();
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    for half in 0..2 {
        let connections = 1 + draw.below(3);
        let transfers: Vec<_> = (0..connections).filter_map(|_| start(play, &group, &mut draw)).collect();
        for transfer in transfers {
            transfer.finish(play, &mut draw);
        }
        if half == 0 {
            play.wait_for_calm();
        }
    }
    settings::end(play, &group, "a client")?;
    play.finished();
    Ok(())
}

struct Transfer {
    channel: Channel<Bytes>,
    received: Arc<AtomicU64>,
    length: u64,
    is_calm: bool,
}

/// Connects, and writes the pattern.
fn start(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Option<Transfer> {
    let received = Arc::<AtomicU64>::default();
    let is_calm = play.is_calm();
    let options = ChannelOptions::new().read_size(draw.pick(&[64, 64 * 1024]));
    let (shared, count) = (play.clone(), received.clone());
    let connecting = ClientBootstrap::new(group)
        .channel_options(options)
        .pipeline(move |_peer| {
            // The word of the server's end may be lost.
            let late = TimeLimits::new().read(PATIENCE / 3);
            let receiver = Receiver { play: shared.clone(), received: count.clone() };
            Pipeline::codec(RawBytes).time_limits(late).handler(receiver)
        })
        .connect("server:7000");
    let Ok(Ok(channel)) = connecting.wait_timeout(PATIENCE) else {
        play.must(!play.is_strict(), || "a connect fails".to_owned());
        return None;
    };
    let length = draw.pick(&[1, 3_000, 40_000]) + draw.below(3_000);
    let bytes: Bytes = (0..length).map(pattern).collect();
    let mut rest = bytes.clone();
    while !rest.is_empty() {
        let n = 1 + draw.below(rest.len().min(10_000) as u64) as usize;
        let accepted = channel.write(rest.split_to(n)).is_ok();
        play.must(accepted || !is_calm, || "a write is refused".to_owned());
    }
    Some(Transfer { channel, received, length, is_calm })
}

impl Transfer {
    /// Waits for the bytes, or closes before all have come back.
    fn finish(self, play: &Play, draw: &mut Draw) {
        let Transfer { channel, received, length, is_calm } = self;
        if draw.chance(25) {
            sleep(draw.millis(1000));
            sometimes("a channel closes below its limit");
        } else {
            let text = || format!("{} of {length} bytes come back", received.load(SeqCst));
            play.eventually(text, || received.load(SeqCst) >= length || !channel.is_open());
            let all = received.load(SeqCst);
            play.must(all == length || !is_calm, || format!("{all} of {length} bytes come back"));
        }
        if draw.chance(50) {
            channel.close();
        } else {
            channel.reset();
        }
        let has_closed = channel.closed().wait_timeout(PATIENCE).is_ok();
        play.must(has_closed, || "a channel of a client does not close".to_owned());
    }
}
