//! Queries whose completions are dropped, as the branches of a `select!` that lose are.

use crate::{plan::Query, player::World};
use bytes::Bytes;
use netwheel::Channel;

pub(crate) fn drop_queries(world: &World, channel: &Channel<Bytes>, query: Query, count: u32) {
    let Some(event_loop) = channel.event_loop() else { return };
    let group = &world.groups[0];
    let Some(server) = world.servers().first() else { return };
    for _ in 0..count {
        match query {
            Query::Writable => drop(channel.writable()),
            Query::Closed => drop(channel.closed()),
            Query::LoopTerminated => drop(event_loop.terminated()),
            Query::GroupTerminated => drop(group.terminated()),
            Query::ServerClosed => drop(server.closed()),
        }
    }
}
