//! Topics without messages.

use crate::{
    Settings,
    cluster::{Cluster, Plain, Store, own_cpu},
    members::serve,
    receiver::Receiver,
    wait::until,
};
use bytes::Bytes;
use netwheel::{Result, broker::Topic};
use std::{thread, time::Duration};

/// Connections, each of which is a member of as many topics as the others.
const MEMBERS: usize = 100;

pub(crate) fn measure(settings: &Settings) -> Result {
    let cluster = Cluster::start(Store::Redis(1), settings)?;
    let node = &cluster.nodes[0];
    let open: Result<Vec<Topic<Bytes>>> =
        (0..settings.topics).map(|n| node.topics.topic(format!("room-{n}"), Plain).open()).collect();
    let open = open?;
    let groups = open.chunks(settings.topics.div_ceil(MEMBERS)).map(<[_]>::to_vec).collect::<Vec<_>>();
    let members = groups.len();
    let (server, address) = serve(node, groups, None)?;
    let receiver = Receiver::start(members, &[address])?;
    until("all topics have a member", || node.topics.metrics().joined == settings.topics as u64)?;
    // The reads of the new members are over.
    thread::sleep(Duration::from_secs(1));
    let (begin, cpu) = (cluster.redis().begin()?, own_cpu());
    thread::sleep(Duration::from_secs(settings.quiet_seconds));
    let (used, cpu) = (cluster.redis().since(&begin)?, own_cpu() - cpu);
    let per_second = |value: f64| value / settings.quiet_seconds as f64;
    println!(
        "\n{} topics without messages, per second: {:.1} requests to Redis, {:.1} commands, {:.0} bytes to Redis, \
         {:.0} from Redis, {:.2} ms CPU of Redis, {:.2} ms of the node",
        settings.topics,
        per_second(used.requests),
        per_second(used.commands),
        per_second(used.bytes_in),
        per_second(used.bytes_out),
        per_second(used.cpu * 1000.0),
        per_second(cpu * 1000.0),
    );
    drop((receiver, server));
    cluster.end()
}
