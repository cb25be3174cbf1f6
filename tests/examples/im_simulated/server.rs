//! The node of the server: starts the example, and deploys it again and again.

use super::support::{Calm, Draw, SECOND, until_ok};
use crate::{
    chat_server::ChatServer, hub::unix_ms, later::Later, login::resume_token::TokenKey, options::Options,
};
use clap::Parser;
use netwheel::{
    Result,
    broker::MemoryBroker,
    durable::MemoryDisk,
    testing::simulation::{sleep, sometimes},
    time::default_clock,
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

/// What stays when the node is killed, and the time of its clock.
#[derive(Clone, Default)]
pub(super) struct Machine {
    disk: MemoryDisk,
    /// Is at another machine.
    broker: SharedBroker,
    /// The number of starts of the server.
    starts: Arc<AtomicU64>,
    /// The wall time of the node, in milliseconds since 1970. Clocks of nodes are set back.
    pub(super) unix_ms: Arc<AtomicU64>,
}

/// The store of rooms and kept messages, which does not fail.
#[derive(Clone)]
struct SharedBroker(MemoryBroker);

impl Default for SharedBroker {
    fn default() -> Self {
        SharedBroker(MemoryBroker::new())
    }
}

pub(super) fn serve(machine: &Machine, calm: &Calm) -> Result {
    let options = |max_age: &str| {
        Options::parse_from([
            "im_server",
            max_age,
            "--listen=10.0.0.1:9000",
            "--http=10.0.0.1:8080",
            "--node=server",
            "--threads=2",
            "--heartbeat=3s",
            "--idle-timeout=10s",
            "--ack-timeout=2s",
            "--login-timeout=5s",
            "--line-timeout=5s",
            "--close-timeout=3s",
            // The lookup is a sleep in real time.
            "--lookup-time=0s",
        ])
    };
    let mut draw = Draw::new();
    loop {
        // In calm, connections stay.
        let has_age = draw.one_in(2) && !calm.is_now();
        let options = options(if has_age { "--max-connection-age=7s" } else { "--max-connection-age=0s" });
        let start = machine.starts.fetch_add(1, Ordering::Relaxed);
        let tokens = TokenKey::new([7; 32], start);
        let broker = &machine.broker.0;
        let server = until_ok(|| ChatServer::start_on(Some(broker.clone()), &options, &tokens));
        match start_timers(machine, &options, &server) {
            Ok(later) => {
                run(machine, &options, &server, &later, calm, &mut draw);
                let _ = later.close();
            }
            Err(_) => {
                sometimes("timers were not started");
                sleep(SECOND);
            }
        }
        let _ = server.shut_down(&options);
    }
}

/// Starts the timers on the disk of the node, instead of the example's SQLite file.
fn start_timers(machine: &Machine, options: &Options, server: &ChatServer) -> Result<Arc<Later>> {
    let store = machine.disk.open()?;
    let later = Later::start_on(store, options.expiry, default_clock(), &server.hub, &server.group)?;
    server.hub.set_later(later.clone());
    Ok(later)
}

fn run(
    machine: &Machine,
    options: &Options,
    server: &ChatServer,
    later: &Later,
    calm: &Calm,
    draw: &mut Draw,
) {
    let listeners = until_ok(|| server.listen(options));
    let mut left = 10 + draw.below(40);
    // A program that supervises the server starts it again if a listener or the store has failed.
    let has_failed =
        || later.timers().metrics().is_stopped || listeners.iter().any(|closed| closed.is_done());
    let is_over = || calm.is_now() && !options.max_connection_age.is_zero();
    while left > 0 && !has_failed() && !is_over() {
        machine.unix_ms.store(unix_ms(&*default_clock()), Ordering::Relaxed);
        sleep(SECOND);
        left -= u64::from(!calm.is_now());
    }
    sometimes("server deployed");
}
