//! Servers that are shut down while requests are in flight: each gets its reply, and the report
//! counts every channel.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock},
    settings,
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    shutdown::ShutdownOptions,
    testing::simulation::{Failure, Simulation, sleep, sometimes},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

const CLIENTS: usize = 2;

/// The requests and replies of all connections.
#[derive(Clone)]
struct Ledger {
    play: Play,
    connections: Arc<Mutex<BTreeMap<u32, Arc<Entry>>>>,
    next: Arc<AtomicU32>,
    /// The groups whose loops all handle their shutdown.
    shut_down: Arc<Mutex<BTreeSet<u64>>>,
}

#[derive(Default)]
struct Entry {
    written: AtomicU32,
    received: AtomicU32,
    /// The server's socket may not wait for its peer.
    is_hasty: AtomicU32,
}

impl Ledger {
    fn entry(&self, number: u32) -> Arc<Entry> {
        lock(&self.connections).entry(number).or_default().clone()
    }
}

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let ledger = Ledger {
        play: play.clone(),
        connections: Arc::default(),
        next: Arc::default(),
        shut_down: Arc::default(),
    };
    let shared = play.clone();
    let backend = simulation.node("backend", "10.0.0.2", move || backend(&shared));
    let shared = ledger.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let mut nodes = vec![backend, server];
    for n in 3..3 + CLIENTS {
        let shared = ledger.clone();
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), move || client(&shared)));
    }
    simulation.run_for(if is_strict { SECOND } else { 15 * SECOND })?;
    play.heal(simulation);
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

/// Replies at once, after a while, after work, or after a call to the backend.
struct Replier {
    ledger: Ledger,
    entry: Option<Arc<Entry>>,
    is_hasty: bool,
    backend: Option<ClientBootstrap>,
    calls: Option<Channel<Bytes>>,
    open: u32,
    is_ending: bool,
    group: u64,
}

impl Replier {
    fn reply(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.ledger.play.must(self.open > 0, || "a reply without a request".to_owned());
        self.open = self.open.saturating_sub(1);
        if let Some(entry) = self.entry.clone() {
            let confirmed = ctx.write_tracked("reply".into())?;
            confirmed.on_complete(move |result| {
                if result.is_ok() {
                    entry.written.fetch_add(1, SeqCst);
                }
            });
        }
        if self.is_ending && self.open == 0 {
            ctx.close();
        }
        Ok(())
    }

    fn call_backend(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(calls) = &self.calls {
            if calls.write("request".into()).is_err() {
                self.ledger
                    .play
                    .must(!self.ledger.play.is_strict(), || "a call to the backend fails".to_owned());
                return self.reply(ctx);
            }
            return Ok(());
        }
        self.reply(ctx)
    }
}

impl Handler for Replier {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let is_late = lock(&self.ledger.shut_down).contains(&self.group);
        self.ledger.play.must(!is_late, || "a connection is opened in a shutdown".to_owned());
        let Some(backend) = self.backend.take() else { return Ok(()) };
        let me = ctx.handler_ref();
        let client = backend.pipeline(move |_peer| {
            let me = me.clone();
            Pipeline::codec(Line::new()).on_read(move |_ctx, _line| {
                let _ = me.execute(|me, ctx| me.reply(ctx));
                Ok(())
            })
        });
        let Some(event_loop) = ctx.channel().event_loop() else { return Ok(()) };
        ctx.on_complete(client.connect_on(&event_loop, "backend:7000"), |me, _ctx, channel| {
            me.calls = channel.ok();
            Ok(())
        });
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        let text = String::from_utf8_lossy(&line).into_owned();
        if let Some(number) = text.strip_prefix("connection ") {
            let entry = self.ledger.entry(number.parse().unwrap_or(u32::MAX));
            entry.is_hasty.store(self.is_hasty.into(), SeqCst);
            self.entry = Some(entry);
            return Ok(());
        }
        self.open += 1;
        match &*text {
            "later" => {
                ctx.schedule(200 * MS, Replier::reply);
                Ok(())
            }
            "work" => match ctx.offload(|| sleep(40 * MS), |me, ctx, _| me.reply(ctx)) {
                Ok(_) => Ok(()),
                Err(_) => self.reply(ctx),
            },
            "call" => self.call_backend(ctx),
            _ => self.reply(ctx),
        }
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.is_ending = true;
        if self.open == 0 {
            ctx.close();
        } else {
            sometimes("a shutdown waits for a reply");
        }
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let is_panic = matches!(error, Error::Panicked(_));
        self.ledger.play.must(!is_panic, || format!("a server fails: {error:#} {error:?}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (play, open) = (&self.ledger.play, self.open);
        let is_bad = play.is_strict() && self.is_ending && open > 0;
        play.must(!is_bad, || format!("{open} replies are missing at the end: {:?}", ctx.close_cause()));
        if let Some(calls) = &self.calls {
            calls.close();
        }
        Ok(())
    }
}

fn serve(ledger: &Ledger) -> Result {
    let (mut draw, play) = (Draw::new(), &ledger.play);
    for number in 0..3 {
        let max_lingering = draw.pick(&[0, 1, 2, 1024, 1024]);
        let group = EventLoopGroup::builder()
            .threads(1 + draw.below(2) as usize)
            .max_lingering(max_lingering)
            .io_ratio(draw.pick(&[1, 50, 100]))
            .build()?;
        let calls = draw.chance(60);
        let _server = settings::bound(play, || {
            let (ledger, connector) = (ledger.clone(), group.clone());
            ServerBootstrap::new(&group)
                .accepts_per_turn(draw.pick(&[1, 16]))
                .pipeline(move |_peer| {
                    let replier = Replier {
                        ledger: ledger.clone(),
                        entry: None,
                        is_hasty: max_lingering < 1024,
                        backend: calls.then(|| ClientBootstrap::new(&connector)),
                        calls: None,
                        open: 0,
                        is_ending: false,
                        group: number,
                    };
                    Pipeline::codec(Line::new()).handler(replier)
                })
                .bind("10.0.0.1:7000")
        })?;
        sleep(draw.millis(1200));
        let options = ShutdownOptions::new()
            .quiet_period(draw.pick(&[Duration::ZERO, 50 * MS]))
            .drain_window(draw.pick(&[Duration::ZERO, Duration::ZERO, 300 * MS]))
            .timeout(60 * SECOND);
        let shutdown = group.shutdown(options);
        // Connections that were queued before the request are opened. Later ones are not.
        for event_loop in group.event_loops() {
            let reached = event_loop.call(|| ()).wait_timeout(PATIENCE).is_ok();
            play.must(reached, || "a loop that shuts down does not handle its queue".to_owned());
        }
        lock(&ledger.shut_down).insert(number);
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
