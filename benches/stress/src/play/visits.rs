//! Connections of pools and of reconnecting clients, which are not links.

use super::Actor;
use crate::{
    frame::{Frame, Kind},
    life::Life,
    network::pipeline,
    plan::{Index, Wire},
    player::World,
    token,
    world::CLIENTS,
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    pool::AcquireTimeout,
    prelude::*,
    reconnect::{Backoff, ReconnectEvent},
};
use std::{
    ops::ControlFlow,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::SeqCst},
    },
    time::Duration,
};

/// Counts its life, and ignores its input.
struct Visitor(Arc<Life>);

impl Visitor {
    fn new(world: &World) -> Self {
        let life = world.new_life();
        life.created.fetch_add(1, SeqCst);
        Visitor(life)
    }
}

impl Handler for Visitor {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.active.fetch_add(1, SeqCst);
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.inactive.fetch_add(1, SeqCst);
        Ok(())
    }
}

impl Drop for Visitor {
    fn drop(&mut self) {
        self.0.dropped.fetch_add(1, SeqCst);
    }
}

fn message(number: u32) -> Bytes {
    Frame { link: 0, producer: 0, kind: Kind::Visit, number }.encode(20)
}

/// A client that connects again a few times. It ends by itself, or with its group.
pub(super) fn reconnect(actor: &Actor, server: Index, visits: u32) {
    let world = &actor.world;
    let weak = Arc::downgrade(world);
    let (seen, attempts) = (AtomicU32::new(0), AtomicU32::new(0));
    let backoff = Backoff::new().initial(Duration::from_millis(1)).max_delay(Duration::from_millis(5));
    let client = world
        .client(CLIENTS, server, ChannelOptions::new())
        .pipeline(move |_: &Peer| {
            let world = weak.upgrade().ok_or(Error::ShutDown)?;
            Ok(pipeline(Wire::Hintless, Visitor::new(&world)))
        })
        .reconnect(backoff.max_attempts(20))
        .on_event(move |event| {
            let goes_on = match event {
                ReconnectEvent::Connected { channel, .. } => {
                    let _ = channel.write(message(0));
                    let visit = seen.fetch_add(1, SeqCst);
                    if visit < visits {
                        channel.close()
                    } else {
                        channel.reset()
                    }
                    visit < visits
                }
                _ => attempts.fetch_add(1, SeqCst) < 20,
            };
            if goes_on { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        })
        .connect(world.address(server));
    let Ok(client) = client else { return };
    let token = world.tokens.token(token::Kind::Visit);
    client.connected().on_complete(move |_| token.called());
    drop(client.connected());
    let token = world.tokens.token(token::Kind::Visit);
    client.closed().on_complete(move |_| token.called());
    if visits.is_multiple_of(2) {
        client.close();
    }
}

/// A pool from which a few channels are taken.
pub(super) fn pool(actor: &Actor, server: Index, size: usize, visits: u32) {
    let world = &actor.world;
    let weak = Arc::downgrade(world);
    let pool = world
        .client(CLIENTS, server, ChannelOptions::new())
        .pipeline(move |_: &Peer| {
            let world = weak.upgrade().ok_or(Error::ShutDown)?;
            Ok(pipeline(Wire::LengthField, Visitor::new(&world)))
        })
        .pool()
        .size(size)
        .max_waiters(visits as usize)
        .acquire_timeout(Duration::from_millis(500))
        .on_timeout(if visits.is_multiple_of(2) { AcquireTimeout::Fail } else { AcquireTimeout::Open })
        .build(world.address(server));
    let Ok(pool) = pool else { return };
    for visit in 0..visits {
        let token = world.tokens.token(token::Kind::Acquire);
        let acquired = pool.acquire();
        if visit % 5 == 4 {
            drop(pool.acquire());
        }
        acquired.on_complete(move |result| {
            token.called();
            let Ok(channel) = result else { return };
            let _ = channel.write(message(visit));
            match visit % 4 {
                0 => channel.discard(),
                1 => channel.close(),
                _ => {}
            }
        });
    }
    let waiting = pool.acquire();
    let _ = waiting.wait_timeout(Duration::from_millis(u64::from(visits)));
    pool.close();
}
