//! Pools of channels: H-19 to H-21.

mod choice;
mod end;
mod sharing;
mod waiting;

use crate::support::{
    loops::turn_until,
    recorder::{Event, Events, silent},
    servers::{Settings, client, serve},
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    pool::{ChannelPool, ChannelPoolBuilder, PooledChannel},
    prelude::*,
    testing::ManualClock,
};
use std::net::SocketAddr;

/// A loop with a manual clock, a server on it, and a pool of channels to that server.
struct Trial {
    group: EventLoopGroup,
    clock: ManualClock,
    _server: Server,
    at_server: Events,
    pool: ChannelPool<Bytes>,
}

type Builder =
    ChannelPoolBuilder<Box<dyn Fn(&netwheel::Peer) -> netwheel::Pipeline<Bytes> + Send + Sync>, Bytes>;

impl Trial {
    fn new(settings: impl FnOnce(Builder) -> Builder) -> Self {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().threads(1).clock(clock.clone()).build().unwrap();
        let (server, at_server) = serve(&group, Settings::new(), silent);
        let pool = pool(&group, server.local_address(), settings);
        Trial { group, clock, _server: server, at_server, pool }
    }

    /// Returns the pool's numbers of acquired channels, free channels and waiters.
    fn counts(&self) -> (usize, usize, usize) {
        (self.pool.acquired(), self.pool.free(), self.pool.waiters())
    }

    /// Waits until the pool has `n` connected channels, counted together with those of the server.
    #[track_caller]
    fn connections(&self, n: u64) {
        turn_until(&self.group, |metrics| metrics.channels == 2 * n);
    }

    #[track_caller]
    fn get(&self) -> PooledChannel<Bytes> {
        done(self.pool.acquire()).unwrap()
    }

    /// Returns the next channel that the server accepted.
    #[track_caller]
    fn child(&self) -> Channel<Bytes> {
        loop {
            if let Event::Active(child) = self.at_server.next() {
                return child;
            }
        }
    }
}

fn pool(
    group: &EventLoopGroup,
    to: SocketAddr,
    settings: impl FnOnce(Builder) -> Builder,
) -> ChannelPool<Bytes> {
    let (bootstrap, _) = client(group, Settings::new(), silent);
    settings(bootstrap.pool()).build(to).unwrap()
}
