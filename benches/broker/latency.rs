//! The time from `publish` to a member on the same node.

use crate::{
    Settings,
    cluster::{Cluster, Plain, Store},
    members::{frame, serve},
    redis::Usage,
    wait::until,
};
use bytes::Bytes;
use hdrhistogram::Histogram;
use netwheel::{Error, Result};
use std::{io::Read, net::TcpStream, time::Instant};

/// Bytes of a message.
const LENGTH: usize = 100;

pub(crate) fn measure(settings: &Settings, has_redis: bool) -> Result {
    println!("\n{} messages of {LENGTH} bytes, one at a time\n", settings.messages);
    println!("| | p50, ms | p99, ms | requests to Redis per message | commands of Redis per message |");
    println!("|---|---:|---:|---:|---:|");
    for store in [Store::Memory, Store::Sqlite, Store::Redis(1)] {
        if !has_redis && matches!(store, Store::Redis(_)) {
            continue;
        }
        let (times, used) = once(store, settings)?;
        let ms = |percentile: f64| times.value_at_percentile(percentile) as f64 / 1e6;
        let per_message = |value: f64| format!("{:.2}", value / settings.messages as f64);
        let (requests, commands) = match used {
            Some(used) => (per_message(used.requests), per_message(used.commands)),
            None => ("-".to_owned(), "-".to_owned()),
        };
        println!("| {} | {:.3} | {:.3} | {requests} | {commands} |", store.name(), ms(50.0), ms(99.0));
    }
    Ok(())
}

fn once(store: Store, settings: &Settings) -> Result<(Histogram<u64>, Option<Usage>)> {
    let cluster = Cluster::start(store, settings)?;
    let node = &cluster.nodes[0];
    let room = node.topics.topic("room", Plain).open()?;
    let (server, address) = serve(node, vec![vec![room.clone()]], None)?;
    let failed = |e| Error::io("receiving as a member", e);
    let mut member = TcpStream::connect(address).map_err(failed)?;
    until("the member has joined", || node.topics.metrics().joined == 1)?;
    let mut times = Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("the bounds are valid");
    let mut input = vec![0; frame(LENGTH) as usize];
    let message = Bytes::from(vec![b'm'; LENGTH]);
    let begin = cluster.has_redis().then(|| cluster.redis().begin()).transpose()?;
    for _ in 0..settings.messages {
        let begun = Instant::now();
        let stored = room.publish(message.clone());
        member.read_exact(&mut input).map_err(failed)?;
        times.saturating_record(begun.elapsed().as_nanos() as u64);
        stored.wait()?;
    }
    let used = begin.map(|begin| cluster.redis().since(&begin)).transpose()?;
    drop((member, server));
    cluster.end()?;
    Ok((times, used))
}
