//! Members that resume at once, and names that are taken at once.

use crate::{
    Settings,
    cluster::{Cluster, Plain, Store, own_cpu},
    members::{frame, serve},
    receiver::Receiver,
    redis::Begin,
    wait::until,
};
use bytes::Bytes;
use netwheel::{Error, Result};
use std::time::Instant;

/// Messages that each member has missed, and bytes of each.
const MISSED: usize = 50;
const LENGTH: usize = 100;

pub(crate) fn measure(settings: &Settings) -> Result {
    let number = settings.resumes;
    println!("\n{number} at once, on a node that has started again\n");
    println!(
        "| | requests to Redis | commands of Redis | KiB to Redis | KiB from Redis | ms of the node | s |"
    );
    println!("|---|---:|---:|---:|---:|---:|---:|");
    resume(settings)?;
    take_names(settings)
}

/// Prints the work from `before` until now.
fn print(what: &str, cluster: &Cluster, before: (f64, Begin, Instant)) -> Result {
    let seconds = before.2.elapsed().as_secs_f64();
    let (cpu, used) = ((own_cpu() - before.0) * 1000.0, cluster.redis().since(&before.1)?);
    println!(
        "| {what} | {:.0} | {:.0} | {:.1} | {:.1} | {cpu:.0} | {seconds:.2} |",
        used.requests,
        used.commands,
        used.bytes_in / 1024.0,
        used.bytes_out / 1024.0,
    );
    Ok(())
}

fn resume(settings: &Settings) -> Result {
    let cluster = Cluster::start(Store::Redis(1), settings)?;
    let room = cluster.nodes[0].topics.topic("room", Plain).open()?;
    let message = Bytes::from(vec![b'm'; LENGTH]);
    let first = room.publish(message.clone()).wait()?.position;
    for _ in 0..MISSED {
        room.publish(message.clone()).wait()?;
    }
    let node = cluster.another("b")?;
    let room = node.topics.topic("room", Plain).open()?;
    let (server, address) = serve(&node, vec![vec![room]], first)?;
    let before = (own_cpu(), cluster.redis().begin()?, Instant::now());
    let receiver = Receiver::start(settings.resumes, &[address])?;
    receiver.wait_for((settings.resumes * MISSED) as u64 * frame(LENGTH))?;
    print(&format!("members that resume in a room, {MISSED} messages missed"), &cluster, before)?;
    drop((receiver, server));
    node.end()?;
    cluster.end()
}

fn take_names(settings: &Settings) -> Result {
    let cluster = Cluster::start(Store::Redis(1), settings)?;
    let users = cluster.nodes[0].topics.map("users").open()?;
    users.ready().wait()?;
    until("the node has its lease", || cluster.nodes[0].topics.authority().is_some())?;
    let before = (own_cpu(), cluster.redis().begin()?, Instant::now());
    let asked: Vec<_> =
        (0..settings.resumes).map(|n| users.hold(format!("user-{n}"), "here", None)).collect();
    for answer in asked {
        answer.wait()?.ok_or_else(|| Error::other("a name was refused"))?;
    }
    print("names that are taken", &cluster, before)?;
    cluster.end()
}
