//! A node with some reconnecting clients, which are started and stopped at random.

use super::{
    super::support::{Calm, Draw, SECOND, Violations, until_ok},
    CLIENTS,
    watch::{LONGEST_END, Watch, backoff},
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    reconnect::{ReconnectEvent, ReconnectingChannel},
    shutdown::ShutdownOptions,
    testing::simulation::{sleep, sometimes},
};
use std::{
    collections::BTreeMap,
    ops::ControlFlow,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

type PerClient<T> = Arc<Mutex<BTreeMap<(u32, u32), T>>>;

pub(super) struct ClientNode {
    pub(super) number: u32,
    pub(super) violations: Violations,
    pub(super) calm: Calm,
    /// Whether each client is connected, according to its events.
    pub(super) connected: PerClient<bool>,
    /// How long each client has waited before attempts, since the beginning.
    pub(super) waited: PerClient<Duration>,
}

/// The handler of a client's connections.
struct Link {
    name: Bytes,
    watch: Arc<Mutex<Watch>>,
}

impl Handler for Link {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.watch.lock().unwrap().opened();
        ctx.write(self.name.clone())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, event: IdleEvent) -> Result {
        match event.state {
            IdleState::Writer => ctx.write(self.name.clone()),
            _ => {
                ctx.close();
                Ok(())
            }
        }
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.watch.lock().unwrap().closed();
        Ok(())
    }
}

struct Started {
    id: (u32, u32),
    client: ReconnectingChannel<Bytes>,
    watch: Arc<Mutex<Watch>>,
    max_attempts: Option<u32>,
    /// Whether the hook has stopped the client.
    is_stopped: Arc<AtomicBool>,
}

impl ClientNode {
    pub(super) fn run(&self) -> Result {
        let mut draw = Draw::new();
        loop {
            let is_calm = self.calm.is_now();
            self.connected.lock().unwrap().retain(|id, _| id.0 != self.number);
            let group = until_ok(|| EventLoopGroup::builder().threads(2).build());
            let clients: Vec<_> =
                (0..CLIENTS).map(|n| self.start(&group, (self.number, n), &mut draw, is_calm)).collect();
            if is_calm {
                return clients[0].client.closed().wait();
            }
            self.stop_some(&clients, &mut draw);
            let ends: Vec<_> = clients.iter().map(|started| started.client.closed()).collect();
            let is_shut_down = draw.one_in(2);
            if is_shut_down {
                sometimes("group shut down");
                clients.iter().for_each(|started| started.watch.lock().unwrap().is_shutting_down = true);
                let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(3 * SECOND);
                let _ = group.shutdown(options).wait();
            } else {
                clients.iter().for_each(|started| started.client.close());
            }
            for (started, end) in clients.iter().zip(ends) {
                let end = end.wait_timeout(LONGEST_END).or_else(|end| end.wait_timeout(LONGEST_END));
                self.check_end(started, end.ok(), is_shut_down);
            }
        }
    }

    fn start(&self, group: &EventLoopGroup, id: (u32, u32), draw: &mut Draw, is_calm: bool) -> Started {
        let max_attempts = (draw.one_in(3) && !is_calm).then(|| 1 + draw.below(4) as u32);
        let name = format!("client {}-{}", id.0, id.1);
        let watch = Watch::new(name.clone(), self.violations.clone(), max_attempts);
        let (watch, is_stopped) = (Arc::new(Mutex::new(watch)), Arc::new(AtomicBool::new(false)));
        let of_handlers = watch.clone();
        let bootstrap = ClientBootstrap::new(group).connect_timeout(3 * SECOND).pipeline(move |_peer| {
            let link = Link { name: name.clone().into(), watch: of_handlers.clone() };
            Pipeline::codec(Line::new())
                .idle(IdleTimeouts::new().reader(15 * SECOND).writer(5 * SECOND))
                .handler(link)
        });
        let (jitter, stops) = (draw.one_in(2), draw.one_in(6) && !is_calm);
        // Whether the hook stops the client is drawn on its loop.
        let hook_draw = Mutex::new(Draw::new());
        let client = until_ok(|| {
            let (watch, stopped) = (watch.clone(), is_stopped.clone());
            let (connected, waited) = (self.connected.clone(), self.waited.clone());
            let earlier = waited.lock().unwrap().get(&id).copied().unwrap_or_default();
            let chance = if stops { hook_draw.lock().unwrap().below(6) + 2 } else { 0 };
            let draw = Mutex::new(Draw::new());
            bootstrap
                .reconnect(backoff(jitter, max_attempts))
                .on_event(move |event| {
                    let mut watch = watch.lock().unwrap();
                    watch.observe(&event);
                    connected.lock().unwrap().insert(id, watch.is_connected());
                    waited.lock().unwrap().insert(id, earlier + watch.waited);
                    let stops = chance > 0 && draw.lock().unwrap().one_in(chance);
                    // A client that gives up ends with an error in any case.
                    let is_last = matches!(
                        event,
                        ReconnectEvent::Failed { next: None, .. } | ReconnectEvent::Lost { next: None, .. }
                    );
                    if stops && !is_last {
                        sometimes("stopped by the hook");
                        stopped.store(true, Ordering::Relaxed);
                        return ControlFlow::Break(());
                    }
                    ControlFlow::Continue(())
                })
                .connect("server:7000")
        });
        Started { id, client, watch, max_attempts, is_stopped }
    }

    /// Lets the clients run for a while, and closes one of them.
    fn stop_some(&self, clients: &[Started], draw: &mut Draw) {
        sleep(draw.pick(&[Duration::ZERO, SECOND, 10 * SECOND]) + draw.time(10 * SECOND));
        let started = &clients[draw.below(clients.len() as u64) as usize];
        let was_connected = started.client.channel().is_some();
        started.client.close();
        self.violations.unless(started.client.channel().is_none(), || {
            format!("client {:?} has a channel after `close`", started.id)
        });
        sometimes(if was_connected { "closed while connected" } else { "closed without a connection" });
        sleep(draw.time(5 * SECOND));
    }

    fn check_end(&self, started: &Started, end: Option<Result>, is_shut_down: bool) {
        let Started { id, client, watch, max_attempts, is_stopped } = started;
        let Some(end) = end else {
            return self.violations.add(format!("client {id:?} has not ended: {client:?}"));
        };
        // The last channel calls `inactive` a moment after the end of the client.
        for _ in 0..100 {
            if watch.lock().unwrap().has_channel() {
                sleep(SECOND / 1000);
            }
        }
        watch.lock().unwrap().ended();
        let may_fail = is_shut_down || max_attempts.is_some();
        self.violations.unless(end.is_ok() || may_fail, || format!("client {id:?} has ended with {end:?}"));
        if is_stopped.load(Ordering::Relaxed) {
            self.violations.unless(end.is_ok(), || format!("client {id:?} was stopped, but: {end:?}"));
        }
        let is_empty = client.is_closed() && client.channel().is_none();
        self.violations.unless(is_empty, || format!("client {id:?} has ended, but is {client:?}"));
        let connected = client.connected().wait_timeout(SECOND);
        self.violations.unless(matches!(connected, Ok(Err(_))), || {
            format!("client {id:?} has ended, but offers a connection")
        });
    }
}
