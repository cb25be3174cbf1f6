//! Deliveries per second and CPU time per delivery.

use crate::{
    Settings,
    cluster::{Cluster, Plain, Store, own_cpu},
    members::{frame, serve},
    receiver::Receiver,
    wait::until,
};
use bytes::Bytes;
use netwheel::{Error, Result, broker::Topic};
use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

/// Bytes of a message.
const LENGTH: usize = 100;

/// Messages of a node that no member has received completely.
const WINDOW: u64 = 100;

/// The figures of one measurement, in the order of the columns.
const COLUMNS: [&str; 6] = [
    "deliveries per second",
    "µs of the nodes per delivery",
    "µs of the nodes per message",
    "µs of Redis per message",
    "requests to Redis per message",
    "commands of Redis per message",
];

pub(crate) fn measure(settings: &Settings, has_redis: bool) -> Result {
    let stores = [Store::Memory, Store::Sqlite, Store::Redis(1), Store::Redis(3)];
    let stores = stores.into_iter().filter(|store| has_redis || !matches!(store, Store::Redis(_)));
    let stores: Vec<Store> = stores.collect();
    let mut figures: BTreeMap<&str, Vec<[f64; 6]>> = BTreeMap::new();
    for round in 1..=settings.rounds {
        eprintln!("deliveries, round {round} of {}", settings.rounds);
        for store in &stores {
            figures.entry(store.name()).or_default().push(once(*store, settings)?);
        }
    }
    println!(
        "\n{} members of {} rooms, messages of {LENGTH} bytes; median (lowest to highest) of {} rounds\n",
        settings.members, settings.rooms, settings.rounds
    );
    println!("| | {} |\n|---|{}", COLUMNS.join(" | "), "---:|".repeat(COLUMNS.len()));
    for store in &stores {
        let rounds = &figures[store.name()];
        let cells = (0..COLUMNS.len()).map(|n| {
            let mut values: Vec<f64> = rounds.iter().map(|round| round[n]).collect();
            values.sort_by(f64::total_cmp);
            let text = |value: f64| match n {
                0 => format!("{value:.0}"),
                _ => format!("{value:.2}"),
            };
            let ends = (text(values[0]), text(values[values.len() - 1]));
            if ends.0 == ends.1 {
                ends.0
            } else {
                format!("{} ({} to {})", text(values[values.len() / 2]), ends.0, ends.1)
            }
        });
        println!("| {} | {} |", store.name(), cells.collect::<Vec<_>>().join(" | "));
    }
    Ok(())
}

fn once(store: Store, settings: &Settings) -> Result<[f64; 6]> {
    let cluster = Cluster::start(store, settings)?;
    let nodes = &cluster.nodes;
    let (mut rooms, mut servers, mut addresses) = (Vec::new(), Vec::new(), Vec::new());
    for node in nodes {
        let names = (0..settings.rooms).map(|n| format!("room-{n}"));
        let open: Result<Vec<Topic<Bytes>>> =
            names.map(|name| node.topics.topic(&name, Plain).open()).collect();
        let open = open?;
        let (server, address) = serve(node, open.iter().map(|room| vec![room.clone()]).collect(), None)?;
        rooms.push(open);
        servers.push(server);
        addresses.push(address);
    }
    let of_node = settings.members / nodes.len();
    let receiver = Receiver::start(of_node, &addresses)?;
    let joined = || nodes.iter().map(|node| node.topics.metrics().joined).sum::<u64>();
    until("all members have joined", || joined() == (of_node * nodes.len()) as u64)?;

    // A message goes to the members of its room on all nodes.
    let members: Vec<u64> =
        (0..settings.rooms).map(|n| rooms.iter().map(|open| open[n].members().len() as u64).sum()).collect();
    let begin = cluster.has_redis().then(|| cluster.redis().begin()).transpose()?;
    let cpu_before = own_cpu();
    let begun = Instant::now();
    let time = Duration::from_secs_f64(settings.seconds);
    let window = WINDOW * members.iter().sum::<u64>() / members.len() as u64 * nodes.len() as u64;
    let message = Bytes::from(vec![b'm'; LENGTH]);
    let (mut messages, mut deliveries) = (0u64, 0u64);
    while begun.elapsed() < time {
        for open in &rooms {
            let room = (messages % members.len() as u64) as usize;
            open[room].publish(message.clone()).on_complete(|stored| {
                if let Err(error) = stored {
                    eprintln!("a message was not stored: {error}");
                }
            });
            messages += 1;
            deliveries += members[room];
        }
        if deliveries > window {
            receiver.wait_for((deliveries - window) * frame(LENGTH))?;
        }
    }
    receiver.wait_for(deliveries * frame(LENGTH))?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = own_cpu() - cpu_before;
    let used = begin.map(|begin| cluster.redis().since(&begin)).transpose()?.unwrap_or_default();
    if receiver.bytes() != deliveries * frame(LENGTH) {
        return Err(Error::other("more messages were delivered than expected"));
    }
    drop(receiver);
    drop(servers);
    cluster.end()?;
    let (messages, deliveries) = (messages as f64, deliveries as f64);
    Ok([
        deliveries / seconds,
        cpu * 1e6 / deliveries,
        cpu * 1e6 / messages,
        used.cpu * 1e6 / messages,
        used.requests / messages,
        used.commands / messages,
    ])
}
