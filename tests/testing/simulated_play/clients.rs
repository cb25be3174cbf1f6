//! Reconnecting clients, pools and cancelled connects, while their server comes and goes.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock},
    pools::{hooked_pool, pool},
    settings,
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent, ReconnectingChannel},
    testing::simulation::{Failure, Simulation, sleep, sometimes},
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
};

const CLIENTS: usize = 2;

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

/// Listens with pauses, and ends connections at random.
fn serve(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    for _ in 0..2 + draw.below(4) {
        let patience = draw.below(6);
        let server = settings::bound(play, || {
            ServerBootstrap::new(&group)
                .pipeline(move |_peer| {
                    let mut lines = 0;
                    Pipeline::codec(Line::new()).on_read(move |ctx, line| {
                        lines += 1;
                        if lines > patience && patience < 4 {
                            ctx.close();
                            return Ok(());
                        }
                        ctx.write(line)
                    })
                })
                .bind("10.0.0.1:7000")
        })?;
        sleep(draw.millis(1500));
        let token = play.token("the end of a server");
        server.close().on_complete(move |_| token.called());
        play.eventually(|| "a server closes".to_owned(), || server.closed().is_done());
        sleep(draw.millis(600));
    }
    // From now on the server stays.
    let bind = || {
        ServerBootstrap::new(&group)
            .pipeline(|_peer| Pipeline::codec(Line::new()).on_read(|ctx, line| ctx.write(line)))
            .bind("10.0.0.1:7000")
    };
    settings::keep(play, CLIENTS, settings::bound(play, bind)?, bind)?;
    settings::end(play, &group, "the server")
}

fn client(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    for _ in 0..4 + draw.below(6) {
        match draw.below(6) {
            0 | 1 => reconnecting(play, &group, &mut draw)?,
            2 | 3 => pool(play, &group, &mut draw)?,
            4 => hooked_pool(play, &group, &mut draw)?,
            _ => cancelled(play, &group, &mut draw),
        }
        sleep(draw.millis(200));
    }
    play.wait_for_calm();
    settings::end(play, &group, "a client")?;
    play.finished();
    Ok(())
}

pub(super) fn bootstrap(group: &EventLoopGroup) -> ClientBootstrap {
    ClientBootstrap::new(group).connect_timeout(600 * SECOND)
}

/// Starts connects and drops their completions.
fn cancelled(play: &Play, group: &EventLoopGroup, draw: &mut Draw) {
    let is_made = Arc::new(Mutex::new(Vec::new()));
    for _ in 0..=draw.below(4) {
        let made = is_made.clone();
        let client = bootstrap(group).pipeline(move |_peer| {
            let made = made.clone();
            Pipeline::codec(Line::new()).on_read(move |ctx, _line| {
                lock(&made).push(ctx.id());
                Ok(())
            })
        });
        let connecting = client.connect("server:7000");
        sleep(draw.millis(3));
        if connecting.cancel() {
            sometimes("a connect was cancelled");
        }
        let token = play.token("a cancelled connect");
        let of_result = play.clone();
        connecting.on_complete(move |result| {
            token.called();
            if let Ok(channel) = result {
                let closed = of_result.token("a connected channel");
                channel.closed().on_complete(move |_| closed.called());
                channel.close();
            }
        });
    }
}

/// Events that the hook of a reconnecting client has received.
#[derive(Default)]
struct Hook {
    is_connecting: AtomicBool,
    is_connected: AtomicBool,
    is_over: AtomicBool,
    connections: AtomicU32,
}

impl Hook {
    fn event(&self, play: &Play, event: &ReconnectEvent<'_, Bytes>) {
        play.must(!self.is_over.load(SeqCst), || {
            "an event after the end of a reconnecting client".to_owned()
        });
        let swap = |flag: &AtomicBool, from: bool, what: &str| {
            play.must(flag.swap(!from, SeqCst) == from, || format!("{what} in the wrong order"));
        };
        match event {
            ReconnectEvent::Connecting { .. } => swap(&self.is_connecting, false, "Connecting"),
            ReconnectEvent::Connected { channel, .. } => {
                swap(&self.is_connecting, true, "Connected");
                swap(&self.is_connected, false, "Connected");
                self.connections.fetch_add(1, SeqCst);
                let _ = channel.write("hello".into());
            }
            ReconnectEvent::Failed { .. } => swap(&self.is_connecting, true, "Failed"),
            ReconnectEvent::Lost { .. } => swap(&self.is_connected, true, "Lost"),
            _ => {}
        }
    }
}

fn reconnecting(play: &Play, group: &EventLoopGroup, draw: &mut Draw) -> Result {
    let hook = Arc::new(Hook::default());
    let (of_hook, shared, stops_after) = (hook.clone(), play.clone(), draw.below(8));
    let backoff = Backoff::new().initial(draw.pick(&[MS, 20 * MS])).max_delay(draw.pick(&[50 * MS, SECOND]));
    let counter = AtomicU32::new(0);
    // Some clients are stopped by their own factory, when the connection is established already.
    let stopped = Arc::new(Mutex::new(None::<ReconnectingChannel<Bytes>>));
    let (of_factory, stops) = (stopped.clone(), draw.chance(20));
    let client = bootstrap(group)
        .pipeline(move |_peer| {
            // Without the lock, because threads may be preempted when the client closes.
            let client = lock(&of_factory).take();
            if let Some(client) = client.filter(|_| stops) {
                client.close();
            }
            Pipeline::codec(Line::new()).on_read(|_ctx, _line| Ok(()))
        })
        .reconnect(backoff)
        .on_event(move |event| {
            of_hook.event(&shared, &event);
            let count = u64::from(counter.fetch_add(1, SeqCst));
            if stops_after == count && count < 6 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .connect("server:7000")?;
    *lock(&stopped) = stops.then(|| client.clone());
    let token = play.token("the end of a reconnecting client");
    client.closed().on_complete(move |_| token.called());
    let token = play.token("a connection of a reconnecting client");
    client.connected().on_complete(move |_| token.called());
    match draw.below(4) {
        0 => {}
        1 => sleep(draw.millis(5)),
        2 => sleep(draw.millis(1500)),
        _ => {
            // A client that is not stopped connects when the server listens.
            play.wait_for_calm();
            let is_connected = || client.channel().is_some() || client.is_closed();
            play.eventually(|| "a reconnecting client connects".to_owned(), is_connected);
        }
    }
    if draw.chance(20)
        && let Some(channel) = client.channel()
    {
        channel.reset();
    }
    // A client that its factory stops ends by itself.
    if !stops {
        client.close();
    }
    let has_ended = || {
        // The first connection may have been made before the factory could stop it.
        let is_missed = lock(&stopped).is_some();
        if is_missed && client.channel().is_some() {
            client.close();
        }
        client.closed().is_done()
    };
    play.eventually(|| "a reconnecting client ends".to_owned(), has_ended);
    hook.is_over.store(true, SeqCst);
    lock(&stopped).take();
    play.must(client.is_closed(), || "a client that has ended is not closed".to_owned());
    play.must(client.channel().is_none_or(|channel| !channel.is_open()), || {
        "a client that has ended has a channel".to_owned()
    });
    let failed = client.connected().wait_timeout(PATIENCE).map(|result| result.is_err());
    play.must(failed.is_ok_and(|failed| failed), || "a client that has ended connects".to_owned());
    Ok(())
}
