//! A node with many users that starts again beside two others.

use crate::{
    Settings,
    cluster::{Cluster, Node, Store, own_cpu},
    wait::until,
};
use netwheel::{Error, Result, broker::MapTopic};
use std::{
    thread,
    time::{Duration, Instant},
};

/// Names that are asked for at a time.
const AT_ONCE: usize = 1000;

pub(crate) fn measure(settings: &Settings) -> Result {
    let cluster = Cluster::start(Store::Redis(3), settings)?;
    let maps: Vec<MapTopic> = cluster.nodes.iter().map(open).collect::<Result<_>>()?;
    let others = settings.users / 2;
    let numbers = [settings.users, others, others];
    for (n, (map, users)) in maps.iter().zip(numbers).enumerate() {
        hold(map, n, users)?;
    }
    let all = numbers.iter().sum::<usize>();
    until("each node has all users", || maps.iter().all(|map| map.len() == all))?;

    let (begin, cpu, begun) = (cluster.redis().begin()?, own_cpu(), Instant::now());
    // It takes over the lease of the first node, whose process counts as dead.
    let again = cluster.another("a")?;
    let map = open(&again)?;
    let owner = || map.get("user-0-0").and_then(|entry| entry.owner);
    until("the new node has its lease", || again.topics.authority().is_some())?;
    hold(&map, 0, settings.users)?;
    until("each node has all users again", || {
        let replicas = [&map, &maps[1], &maps[2]];
        replicas.iter().all(|map| map.len() == all) && owner() == again.topics.authority()
    })?;
    let seconds = begun.elapsed().as_secs_f64();
    // The store removes the other entries of the first node.
    thread::sleep(Duration::from_secs(2));
    let (cpu, used) = (own_cpu() - cpu, cluster.redis().since(&begin)?);
    println!(
        "\nA node with {} users starts again, two others have {others} users each: {seconds:.2} s, {:.0} requests \
         to Redis, {:.0} commands, {:.1} MiB to Redis, {:.1} MiB from Redis, {:.0} ms CPU of Redis, {:.0} ms of \
         all nodes",
        settings.users,
        used.requests,
        used.commands,
        used.bytes_in / f64::from(1 << 20),
        used.bytes_out / f64::from(1 << 20),
        used.cpu * 1000.0,
        cpu * 1000.0,
    );
    drop((map, maps));
    again.end()?;
    cluster.end()
}

fn open(node: &Node) -> Result<MapTopic> {
    let map = node.topics.map("users").open()?;
    map.ready().wait()?;
    until("the node has its lease", || node.topics.authority().is_some())?;
    Ok(map)
}

fn hold(map: &MapTopic, node: usize, users: usize) -> Result {
    for begin in (0..users).step_by(AT_ONCE) {
        let names = begin..users.min(begin + AT_ONCE);
        let asked: Vec<_> =
            names.map(|n| map.hold(format!("user-{node}-{n}"), "a session of this user", None)).collect();
        for answer in asked {
            answer.wait()?.ok_or_else(|| Error::other("a name was refused"))?;
        }
    }
    Ok(())
}
