//! Servers that are shut down while requests are in flight and connections arrive. Each request
//! gets its reply, later connections are not opened, and the report counts every channel.
//!
//! Half of the servers accept on another group, which is shut down last. It hands connections to
//! loops that are shutting down.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock},
    replier::{Ledger, Replier},
    settings,
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
};
use std::{sync::atomic::Ordering::SeqCst, time::Duration};

const CLIENTS: usize = 2;

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let ledger = Ledger::new(&play);
    let shared = play.clone();
    let backend = simulation.node("backend", "10.0.0.2", move || backend(&shared));
    let shared = ledger.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let mut nodes = vec![backend, server];
    for n in 3..3 + CLIENTS {
        let shared = ledger.clone();
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&shared)));
    }
    play.run_amid_faults(simulation, 15 * SECOND)?;
    play.end(simulation, backend, &nodes)
}

fn backend(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = EventLoopGroup::builder().threads(1).build()?;
    let delay = draw.millis(30);
    let _server = settings::bound(play, || {
        ServerBootstrap::new(&group)
            .pipeline(move |_peer| {
                Pipeline::codec(Line::new()).on_read(move |ctx: &mut ChannelContext<'_, Bytes>, line| {
                    ctx.schedule(delay, move |_, ctx| ctx.write(line));
                    Ok(())
                })
            })
            .bind("10.0.0.2:7000")
    })?;
    play.wait_for(CLIENTS + 1);
    settings::end(play, &group, "the backend")
}

fn serve(ledger: &Ledger) -> Result {
    let (mut draw, play) = (Draw::new(), &ledger.play);
    for number in 0..3 {
        let max_lingering = draw.pick(&[0, 1, 2, 1024, 1024]);
        let group = EventLoopGroup::builder()
            .name(format!("server-{number}"))
            .threads(1 + draw.below(2) as usize)
            .max_lingering(max_lingering)
            .io_ratio(draw.pick(&[1, 50, 100]))
            .build()?;
        let acceptors = || EventLoopGroup::builder().name("acceptor").threads(1).build();
        let acceptors = draw.chance(50).then(acceptors).transpose()?;
        let calls = draw.chance(60);
        let quiet_period = draw.pick(&[Duration::ZERO, 50 * MS]);
        // Without a quiet period, the end of the loop does not wait for lingering sockets.
        let is_hasty = max_lingering < 1024 || quiet_period.is_zero();
        let _server = settings::bound(play, || {
            let (ledger, connector) = (ledger.clone(), group.clone());
            ServerBootstrap::new(&group)
                .acceptor_group(acceptors.as_ref().unwrap_or(&group))
                .accepts_per_turn(draw.pick(&[1, 16]))
                .pipeline(move |_peer| {
                    let backend = calls.then(|| ClientBootstrap::new(&connector));
                    let replier = Replier::new(ledger.clone(), is_hasty, backend);
                    Pipeline::codec(Line::new()).handler(replier)
                })
                .bind("10.0.0.1:7000")
        })?;
        sleep(draw.millis(1200));
        let options = ShutdownOptions::new()
            .quiet_period(quiet_period)
            .drain_window(draw.pick(&[Duration::ZERO, Duration::ZERO, 300 * MS]))
            .timeout(60 * SECOND);
        let shutdown = group.shutdown(options);
        // Connections that were queued before the request are opened. Later ones are not. These
        // calls are queued behind the request, so each runs after it on the thread of its loop.
        let note = |event_loop: &EventLoop| {
            let (ledger, name) = (ledger.clone(), event_loop.name().to_owned());
            event_loop.call(move || ledger.note_shutdown(name))
        };
        for noted in group.event_loops().iter().map(note).collect::<Vec<_>>() {
            let reached = noted.wait_timeout(PATIENCE).is_ok();
            play.must(reached, || "a loop that shuts down does not handle its queue".to_owned());
        }
        let Ok(report) = shutdown.wait_timeout(PATIENCE) else {
            play.violation("a shutdown does not end".to_owned());
            return Ok(());
        };
        let report = report?;
        let sum = report.graceful + report.incomplete + report.forced;
        play.must(report.channels == sum, || format!("the report does not add up: {report}"));
        play.must(!play.is_strict() || report.forced == 0, || format!("channels were cut: {report}"));
        // Replies take less than a second, so nothing waits for the timeout.
        play.must(!play.is_strict() || report.took < 20 * SECOND, || format!("a slow shutdown: {report}"));
        play.must(group.event_loops().iter().all(|event_loop| event_loop.connections() == 0), || {
            "connections are left after a shutdown".to_owned()
        });
        if let Some(acceptors) = &acceptors {
            if group.metrics().iter().any(|metrics| metrics.rejected_by_loop > 0) {
                sometimes("a connection arrives in a shutdown");
            }
            settings::end(play, acceptors, "the acceptor group")?;
        }
        sleep(draw.millis(100));
    }
    play.finished();
    Ok(())
}

fn client(ledger: &Ledger) -> Result {
    let (mut draw, play) = (Draw::new(), &ledger.play);
    let group = EventLoopGroup::builder().threads(1).build()?;
    let mut channels = Vec::new();
    for _ in 0..10 + draw.below(20) {
        match draw.below(4) {
            0 | 1 => {
                let number = ledger.next.fetch_add(1, SeqCst);
                let entry = ledger.entry(number);
                let client =
                    ClientBootstrap::new(&group).connect_timeout(10 * SECOND).pipeline(move |_peer| {
                        let entry = entry.clone();
                        Pipeline::codec(Line::new()).on_read(move |_ctx, _line| {
                            entry.received.fetch_add(1, SeqCst);
                            Ok(())
                        })
                    });
                if let Ok(channel) = client.connect("server:7000").wait() {
                    let _ = channel.write(format!("connection {number}").into());
                    channels.push(channel);
                } else {
                    sleep(draw.millis(100));
                }
            }
            2 => sleep(draw.millis(100)),
            _ => {
                for channel in &channels {
                    let request = draw.pick(&["now", "later", "work", "call"]);
                    let _ = channel.write(request.into());
                }
            }
        }
    }
    play.wait_for_calm();
    sleep(SECOND);
    for channel in &channels {
        channel.close();
        let has_closed = channel.closed().wait_timeout(PATIENCE).is_ok();
        play.must(has_closed, || "a channel of a client does not close".to_owned());
    }
    settings::end(play, &group, "a client")?;
    play.finished();
    play.wait_for(CLIENTS + 1);
    for (number, entry) in lock(&ledger.connections).iter().filter(|_| play.is_strict()) {
        let (written, received) = (entry.written.load(SeqCst), entry.received.load(SeqCst));
        play.must(written == received || entry.is_hasty.load(SeqCst) == 1, || {
            format!("connection {number}: {received} of {written} confirmed replies have arrived")
        });
    }
    Ok(())
}
