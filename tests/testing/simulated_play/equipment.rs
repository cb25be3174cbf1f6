//! What a channel has besides its connection: attributes, a wire log, statistics, time limits,
//! timers of stages and futures on an executor.
//!
//! The wire log of each end is compared with the messages of that end, and with the log of the
//! peer.

use super::{
    equipment_acts::use_end,
    filter::Records,
    keeper::{End, FIRST_BYTE},
    kit::{Draw, PATIENCE, Play, SECOND, lock},
    on_loop::OnLoop,
    settings, wire,
};
use bytes::Bytes;
use netwheel::{
    channel::{ChannelOptions, TimeLimits},
    prelude::*,
    testing::simulation::{Failure, Simulation, sleep},
};
use std::{
    collections::HashSet,
    sync::{Arc, Mutex, atomic::Ordering::SeqCst},
};

const CLIENTS: usize = 2;

/// An end, and the address of its client.
type Known = (Option<std::net::SocketAddr>, Arc<End>);

/// All ends, by the address of the client.
#[derive(Clone, Default)]
struct Ends {
    clients: Arc<Mutex<Vec<Known>>>,
    servers: Arc<Mutex<Vec<Known>>>,
}

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    wire::collect();
    let (play, ends) = (Play::new(simulation, is_strict), Ends::default());
    let has_filter = simulation.seed() % 4 == 1;
    let (shared, all) = (play.clone(), ends.clone());
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared, &all, has_filter));
    let mut nodes = vec![server];
    for n in 2..2 + CLIENTS {
        let (shared, all) = (play.clone(), ends.clone());
        let run = move || client(&shared, &all, has_filter);
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), run));
    }
    play.run_amid_faults(simulation, 20 * SECOND)?;
    play.end(simulation, server, &nodes)?;
    ends.check(&play, has_filter);
    // The check of the play runs once more.
    simulation.spawn(server, || Ok(()));
    simulation.run_for(SECOND)
}

impl Ends {
    /// Compares the wire logs of the two ends of each connection.
    fn check(&self, play: &Play, has_filter: bool) {
        let (clients, servers) = (lock(&self.clients), lock(&self.servers));
        for (_, end) in clients.iter().chain(servers.iter()) {
            let left = end.attributes();
            play.must(left == 0, || format!("{left} attributes have outlived their channel"));
        }
        for (address, client) in clients.iter().filter(|(address, _)| address.is_some()) {
            // A port is used again when its connection has ended.
            let has_address = |(other, _): &&(_, _)| other == address;
            if clients.iter().filter(has_address).count() > 1 {
                continue;
            }
            let mut found = servers.iter().filter(has_address);
            let (Some((_, server)), None) = (found.next(), found.next()) else { continue };
            let (client, server) = (wire::contents(&client.target), wire::contents(&server.target));
            for (read, written) in [(&client.read, &server.written), (&server.read, &client.written)] {
                let is_known = read.are_whole() && written.are_whole() && !has_filter;
                let shorter = read.length.min(written.length);
                play.must(!is_known || read.shown[..shorter] == written.shown[..shorter], || {
                    format!("the logs of {address:?} differ")
                });
            }
        }
    }
}

fn max_bytes(draw: &mut Draw) -> usize {
    draw.pick(&[0, 5, usize::MAX, usize::MAX])
}

fn serve(play: &Play, ends: &Ends, has_filter: bool) -> Result {
    let mut draw = Draw::new();
    let executor = OnLoop::new()?;
    let group = settings::group(&mut draw).executor(executor.clone()).build()?;
    let limits = TimeLimits::new().first_byte(FIRST_BYTE).read(60 * SECOND).progress(1, 60 * SECOND);
    let bind = || {
        let (play, ends, draw) = (play.clone(), ends.clone(), Mutex::new(Draw::new()));
        let bootstrap = ServerBootstrap::new(&group).channel_options(ChannelOptions::new().half_close(false));
        let bootstrap = if has_filter { bootstrap.filter(|_| Records::default()) } else { bootstrap };
        bootstrap
            .pipeline(move |peer| {
                let end = End::new(&play, has_filter, max_bytes(&mut lock(&draw)));
                lock(&ends.servers).push((peer.address(), end.clone()));
                end.pipeline(limits, true, false)
            })
            .bind("10.0.0.1:7000")
    };
    let server = settings::bound(play, bind)?;
    settings::keep(play, CLIENTS, server, bind)?;
    settings::end(play, &group, "the server")?;
    executor.end(play)
}

fn client(play: &Play, ends: &Ends, has_filter: bool) -> Result {
    play.wait_for_listener();
    let mut draw = Draw::new();
    let executor = OnLoop::new()?;
    let group = settings::group(&mut draw).executor(executor.clone()).build()?;
    for half in 0..2 {
        let mut open = Vec::new();
        for _ in 0..2 + draw.below(3) {
            open.extend(connect(play, ends, &group, has_filter, &mut draw));
        }
        for _ in 0..10 + draw.below(20) {
            let all = lock(&ends.servers).clone();
            let servers = all.iter().rev().take(4).map(|(_, end)| end.clone());
            let choices: Vec<_> =
                open.iter().map(|(_, end): &(_, Arc<End>)| end.clone()).chain(servers).collect();
            if !choices.is_empty() {
                use_end(&choices[draw.below(choices.len() as u64) as usize], &mut draw);
            }
            sleep(draw.millis(120));
        }
        compare(play, &open);
        for (channel, _) in &open {
            // Mute connections are closed by the server.
            match draw.below(5) {
                0 => channel.reset(),
                1 => sleep(FIRST_BYTE),
                _ => {}
            }
            channel.close();
        }
        for (channel, end) in open {
            let closed = channel.closed().wait_timeout(PATIENCE).is_ok();
            play.must(closed && channel.close_cause().is_some(), || "a channel does not close".to_owned());
            play.eventually(|| "inactive is called".to_owned(), || end.is_over.load(SeqCst));
        }
        if half == 0 {
            play.wait_for_calm();
        }
    }
    settings::end(play, &group, "a client")?;
    executor.end(play)?;
    play.finished();
    Ok(())
}

type Open = (Channel<Bytes>, Arc<End>);

fn connect(
    play: &Play,
    ends: &Ends,
    group: &EventLoopGroup,
    has_filter: bool,
    draw: &mut Draw,
) -> Option<Open> {
    let end = End::new(play, has_filter, max_bytes(draw));
    let (of_pipeline, is_mute) = (end.clone(), !has_filter && draw.chance(20));
    let bootstrap = ClientBootstrap::new(group);
    let bootstrap = if has_filter { bootstrap.filter(|_| Records::default()) } else { bootstrap };
    let client = bootstrap.pipeline(move |_peer| of_pipeline.pipeline(TimeLimits::new(), false, is_mute));
    let Ok(Ok(channel)) = client.connect("server:7000").wait_timeout(PATIENCE) else {
        play.must(!play.is_strict(), || "a connect fails".to_owned());
        return None;
    };
    lock(&ends.clients).push((channel.local_address(), end.clone()));
    Some((channel, end))
}

/// Compares handles of different channels, and of the same channel.
#[allow(clippy::mutable_key_type, reason = "the hash of a handle is that of its id")]
fn compare(play: &Play, open: &[Open]) {
    let distinct: HashSet<_> = open.iter().map(|(channel, _)| channel.clone()).collect();
    play.must(distinct.len() == open.len(), || "handles of different channels are equal".to_owned());
    for (channel, _) in open {
        play.must(distinct.contains(&channel.clone()), || "a handle differs from its clone".to_owned());
        play.must(!channel.in_event_loop(), || "a program is on an event loop".to_owned());
        let peer = channel.peer_address();
        play.must(peer == Some(([10, 0, 0, 1], 7000).into()), || format!("the server is {peer:?}"));
        play.must(format!("{channel:?}").contains("10.0.0.1:7000"), || format!("{channel:?}"));
    }
}
