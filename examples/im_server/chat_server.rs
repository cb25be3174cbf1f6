//! The server as a whole: its shared state, its loops, and its end.

use crate::{
    hub::{Counters, Hub},
    listeners,
    login::resume_token::TokenKey,
    options::Options,
    output::say,
    rooms,
    store::Store,
};
use netwheel::{
    Completion,
    broker::MemoryBroker,
    diagnostics::Watchdog,
    prelude::*,
    shutdown::{ShutdownOptions, ShutdownReport},
    time::Periodic,
    worker_pool::WorkerPool,
};
use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

/// A server whose loops run. It listens when [`listen`](ChatServer::listen) is called.
pub(crate) struct ChatServer {
    pub(crate) hub: Arc<Hub>,
    pub(crate) group: EventLoopGroup,
    store: Store,
}

impl ChatServer {
    /// Starts the loops, and the periodic task that announces joins and leaves. The servers of one
    /// store accept each other's tokens, with the key of the first one.
    pub(crate) fn start(options: &Options, tokens: &TokenKey) -> Result<Self> {
        Self::start_on(None, options, tokens)
    }

    /// Starts a server on a store in memory, instead of that in the options.
    pub(crate) fn start_on(
        broker: Option<MemoryBroker>,
        options: &Options,
        tokens: &TokenKey,
    ) -> Result<Self> {
        options.check()?;
        let directory = WorkerPool::builder()
            .threads(options.lookup_threads)
            .max_pending(options.lookup_queue)
            .name("directory")
            .build()?;
        let mut group = EventLoopGroup::builder()
            .threads(options.threads)
            .name("im")
            .io_ratio(options.io_ratio)
            .max_group_outbound(options.max_outbound_total)
            .workers(&directory);
        let counters = Arc::<Counters>::default();
        if !options.overload_target.is_zero() {
            group = group.overload_target(options.overload_target);
        }
        if !options.watchdog.is_zero() {
            let counters = counters.clone();
            group = group.watchdog(Watchdog::new(options.watchdog).on_stall(move |stall| {
                counters.stalls.fetch_add(1, Ordering::Relaxed);
                log::warn!("{stall}");
            }));
        }
        let group = group.build()?;
        let node = options.node.clone().unwrap_or_else(|| Store::default_node(options, tokens));
        let store = Store::open(broker, options, &node, &group)?;
        let tokens = store.token_key(tokens)?;
        let topics = store.topics.clone();
        let hub = Hub::start(topics, &node, tokens, counters, options.max_unacked_bytes_total)?;
        announce(&group, &hub)?;
        Ok(ChatServer { hub, group, store })
    }

    /// Binds all listeners. Returns a `Completion` for the end of each listener.
    pub(crate) fn listen(&self, options: &Options) -> Result<Vec<Completion>> {
        let ends = listeners::listen(&self.group, &self.hub, options)?;
        if let Some(period) = options.stats {
            print_stats(&self.group, &self.hub, period)?;
        }
        Ok(ends)
    }

    /// Sends a `bye` to all clients, and ends the loops. Then closes the store.
    pub(crate) fn shut_down(&self, options: &Options) -> Result<ShutdownReport> {
        let shutdown = ShutdownOptions::new()
            .quiet_period(Duration::ZERO)
            .drain_window(options.drain)
            .timeout(options.drain.saturating_add(options.close_timeout));
        let report = self.group.shutdown(shutdown).wait()?;
        if let Err(error) = self.store.close() {
            log::warn!("the store of the rooms was not closed: {error:#}");
        }
        Ok(report)
    }
}

/// Schedules the periodic task that announces joins and leaves, and expires messages passed to
/// other servers.
fn announce(group: &EventLoopGroup, hub: &Arc<Hub>) -> Result {
    let hub = hub.clone();
    let mut missed = 0;
    let task = move || {
        hub.tick();
        // Log at most one line per period, regardless of the number of failed deliveries.
        let unreached = hub.counters.unreached.load(Ordering::Relaxed);
        if unreached > missed {
            log::warn!("{} deliveries were dropped because the queue of a loop was full", unreached - missed);
            missed = unreached;
        }
        Ok(())
    };
    // Dropping the handle does not cancel the task.
    drop(group.next().schedule_periodic(Periodic::fixed_delay(rooms::PERIOD), task)?);
    Ok(())
}

fn print_stats(group: &EventLoopGroup, hub: &Arc<Hub>, period: Duration) -> Result {
    let hub = hub.clone();
    let mut before = (0, 0);
    let line = move || {
        let counters = &hub.counters;
        let connections = counters.connections.load(Ordering::Relaxed);
        let now = (counters.messages.load(Ordering::Relaxed), counters.deliveries.load(Ordering::Relaxed));
        let rate = |now: u64, before: u64| (now - before) as f64 / period.as_secs_f64();
        let (said, delivered) = (rate(now.0, before.0), rate(now.1, before.1));
        say!("{connections} connections, {said:.1} messages/s, {delivered:.1} deliveries/s");
        before = now;
        Ok(())
    };
    // Dropping the handle does not cancel the task.
    drop(group.next().schedule_periodic(period, line)?);
    Ok(())
}
