//! Servers, relays and clients whose threads use all operations of channels at random.

use super::{
    acts::{Act, act},
    filter::Records,
    frames::Wire,
    kit::{Draw, MS, PATIENCE, Play, SECOND},
    links::{Link, Links},
    player::{Player, ServerEnds},
    rest::{close_all, come_to_rest},
    rooms::Rooms,
    settings::{bound, end, group, keep, options},
    uses::{use_end, write},
};
use bytes::Bytes;
use netwheel::{
    buffer::WaterMark,
    channel::ChannelOptions,
    prelude::*,
    relay::Relay,
    testing::simulation::{Failure, Network, Simulation, sleep, sometimes},
};
use std::sync::Arc;

const KIB: usize = 1024;

/// State that the programs of the play share.
#[derive(Clone)]
pub(super) struct World {
    pub(super) play: Play,
    pub(super) links: Links,
    pub(super) rooms: Rooms,
}

/// The number of programs that use channels.
const USERS: usize = 3;

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let world = World { play: play.clone(), links: Links::new(&play), rooms: Rooms::new(&play, 3) };
    let mut choices = simulation.seed();
    let mut pick = |values: &[usize]| {
        choices = choices.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
        values[(choices >> 33) as usize % values.len()]
    };
    simulation.network(Network::new().buffers(pick(&[500, 3000, 256 * KIB]), pick(&[300, 2000, 256 * KIB])));
    let has_filter = pick(&[0, 0, 0, 1]) == 1;
    let shared = world.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared, has_filter));
    let shared = world.clone();
    simulation.spawn(server, move || use_server(&shared));
    let shared = world.clone();
    let relay = simulation.node("relay", "10.0.0.2", move || relay(&shared, has_filter));
    let mut nodes = vec![server, relay];
    for n in 3..3 + USERS - 1 {
        let shared = world.clone();
        nodes.push(
            simulation
                .node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&shared, has_filter)),
        );
    }
    play.run_amid_faults(simulation, 20 * SECOND)?;
    play.end(simulation, server, &nodes)?;
    world.links.let_go();
    Ok(())
}

fn serve(world: &World, has_filter: bool) -> Result {
    let mut draw = Draw::new();
    let max_lingering = draw.pick(&[0, 1, 2, 1024, 1024, 1024]);
    let group = group(&mut draw).max_lingering(max_lingering).build()?;
    let options = options(&mut draw, true)?;
    let ends = ServerEnds {
        drops_messages: options.drops_messages,
        is_hasty: options.is_hasty || max_lingering < 1024,
        echoes: draw.chance(50),
        late_messages: draw.below(3) as u32,
    };
    let (wire, accepts) = (draw.pick(&Wire::ALL), draw.pick(&[1, 2, 64]));
    let bind = || {
        let world = world.clone();
        let bootstrap =
            ServerBootstrap::new(&group).channel_options(options.channel.clone()).accepts_per_turn(accepts);
        let bootstrap = if has_filter { bootstrap.filter(|_| Records::default()) } else { bootstrap };
        bootstrap
            .pipeline(move |_peer| wire.pipeline(Player::server(&world.links, &world.rooms, ends)))
            .bind("10.0.0.1:7000")
    };
    let server = bound(&world.play, bind)?;
    // Accepting pauses for a while.
    for _ in 0..draw.below(3) {
        sleep(draw.millis(3000));
        let _ = server.set_accepting(false);
        sleep(draw.millis(500));
        world.play.eventually(|| "accepting is resumed".to_owned(), || server.set_accepting(true).is_ok());
    }
    keep(&world.play, USERS, server, bind)?;
    let all_closed = || {
        world
            .links
            .all()
            .iter()
            .all(|link| link.server.facts(|facts| !facts.is_active || facts.ended.is_some()))
    };
    world.play.eventually(|| "the server's channels have ended".to_owned(), all_closed);
    world.links.check_ends();
    world.rooms.check_end();
    end(&world.play, &group, "the server")
}

fn relay(world: &World, has_filter: bool) -> Result {
    let mut draw = Draw::new();
    let group = group(&mut draw).build()?;
    let options = ChannelOptions::new()
        .half_close(true)
        .close_timeout(60 * SECOND)
        .read_size(draw.pick(&[64, 64 * KIB]))
        .water_mark(draw.pick(&[WaterMark::new(1, 100)?, WaterMark::default()]));
    let wire = draw.pick(&Wire::ALL);
    let bind = || {
        let connector = ClientBootstrap::new(&group).channel_options(options.clone());
        let connector = if has_filter { connector.filter(|_| Records::default()) } else { connector };
        let bootstrap = ServerBootstrap::new(&group).channel_options(options.clone());
        let bootstrap = if has_filter { bootstrap.filter(|_| Records::default()) } else { bootstrap };
        bootstrap
            .pipeline(move |_peer| {
                let connector = connector.clone();
                wire.pipeline(Relay::dial(move |front: Channel<Bytes>| {
                    connector
                        .pipeline(move |_| wire.pipeline(Relay::to(front.clone())))
                        .connect("server:7000")
                }))
            })
            .bind("10.0.0.2:7000")
    };
    keep(&world.play, USERS, bound(&world.play, bind)?, bind)?;
    end(&world.play, &group, "the relay")
}

/// A thread of the server's node: broadcasts, and operations on the server's ends.
fn use_server(world: &World) -> Result {
    let mut draw = Draw::new();
    let mut stale = Vec::new();
    for _ in 0..10 + draw.below(30) {
        sleep(draw.millis(400));
        match draw.below(6) {
            0 | 1 => {
                world.rooms.broadcast(&mut draw);
                overtake(world, &mut draw);
            }
            2 => world.rooms.move_member(&mut draw),
            3 if draw.chance(5) => {
                let ends: Vec<_> = world.links.all().iter().map(|link| link.server.clone()).collect();
                world.rooms.close_room(draw.below(3) as usize, &ends);
            }
            _ => {
                let links = world.links.all();
                if let Some(link) = links.get(draw.below(links.len().max(1) as u64) as usize) {
                    use_end(world, &link.server, 1, &mut draw, &mut stale);
                }
            }
        }
    }
    world.play.finished();
    Ok(())
}

/// Writes to members of rooms for which broadcasts may still wait on the loop.
fn overtake(world: &World, draw: &mut Draw) {
    for link in world.links.all().iter().rev().take(6) {
        if let Some(handler) = link.server.handler().filter(|_| draw.chance(50)) {
            write(world, &link.server, handler.channel(), 1, 10, draw);
        }
    }
}

fn client(world: &World, has_filter: bool) -> Result {
    let mut draw = Draw::new();
    let group = group(&mut draw).build()?;
    let (mut links, mut stale): (Vec<Arc<Link>>, Vec<Channel<Bytes>>) = (Vec::new(), Vec::new());
    sleep(draw.millis(50));
    // The second half happens when all is calm, and has to work.
    for half in 0..2 {
        for _ in 0..10 + draw.below(20) {
            let open = links.iter().filter(|link| !link.client.has_ended()).count();
            match draw.below(10) {
                0 | 1 if open < 6 => links.extend(connect(world, &group, has_filter, &mut draw)?),
                2 if draw.chance(30) => reset_behind_relay(&links, &mut draw),
                2 => sleep(draw.millis(500)),
                _ if links.is_empty() => sleep(10 * MS),
                _ => {
                    let link = links[draw.below(links.len() as u64) as usize].clone();
                    let end = if draw.chance(50) { &link.client } else { &link.server };
                    use_end(world, end, 0, &mut draw, &mut stale);
                }
            }
        }
        come_to_rest(world, &links);
        if half == 0 {
            world.play.wait_for_calm();
        }
    }
    close_all(world, &links, &mut draw);
    drop(stale);
    end(&world.play, &group, "a client")?;
    world.play.finished();
    Ok(())
}

fn connect(
    world: &World,
    group: &EventLoopGroup,
    has_filter: bool,
    draw: &mut Draw,
) -> Result<Option<Arc<Link>>> {
    let (is_relayed, options) = (draw.chance(30), options(draw, false)?);
    let link = world.links.add(is_relayed, !is_relayed && draw.chance(25));
    Links::set_dropping(&link.client, options.drops_messages);
    link.client.facts(|facts| facts.is_hasty = options.is_hasty);
    let (links, rooms, of_client) = (world.links.clone(), world.rooms.clone(), link.clone());
    let (wire, is_silent) = (draw.pick(&Wire::ALL), draw.chance(50));
    let bootstrap =
        ClientBootstrap::new(group).channel_options(options.channel).connect_timeout(600 * SECOND);
    let bootstrap = if has_filter { bootstrap.filter(|_| Records::default()) } else { bootstrap };
    let connecting = bootstrap
        .pipeline(move |_peer| wire.pipeline(Player::client(&links, &rooms, &of_client, is_silent)))
        .connect(if is_relayed { "relay:7000" } else { "server:7000" });
    if draw.chance(15) {
        // The connect is cancelled, at whatever point it is.
        link.client.facts(|facts| facts.is_cut = true);
        sleep(draw.millis(3));
        drop(connecting);
        sometimes("connect cancelled");
        return Ok(Some(link));
    }
    if draw.chance(30) {
        let (token, connected) = (world.play.token("a connect"), link.client.clone());
        link.client.facts(|facts| facts.is_connecting = true);
        connecting.on_complete(move |_| {
            token.called();
            connected.facts(|facts| facts.is_connecting = false);
        });
        return Ok(Some(link));
    }
    match connecting.wait_timeout(PATIENCE) {
        Ok(Ok(_)) => Ok(Some(link)),
        Ok(Err(error)) => {
            let is_refused = matches!(error, Error::Full { .. });
            world.play.must(!world.play.is_strict() || is_refused, || format!("a connect fails: {error:#}"));
            Ok(None)
        }
        Err(_) => {
            world.play.violation("a connect does not end".to_owned());
            Ok(None)
        }
    }
}

/// Resets the server's end of a relayed link while its client sends.
fn reset_behind_relay(links: &[Arc<Link>], draw: &mut Draw) {
    let Some(link) = links.iter().rev().find(|link| link.is_relayed && link.is_settled()) else { return };
    let (Some(client), Some(server)) = (link.client.handler(), link.server.handler()) else { return };
    let stream = Act::Stream { count: 60, size: draw.pick(&[10, 3000]) };
    let _ = client.execute(move |player, ctx| act(player, ctx, stream));
    sleep(draw.millis(4));
    let _ = server.execute(move |player, ctx| act(player, ctx, Act::Reset));
    sometimes("reset behind a relay");
}
