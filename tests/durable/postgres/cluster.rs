//! Three nodes, of which one is stopped, killed, cut off or restarted.

use super::{
    processes::{Cluster, LEASE},
    proxy::Proxy,
    server::config,
};
use std::time::{Duration, Instant};

#[test]
fn a_node_that_is_stopped_for_three_leases_ends_nothing() {
    let Some(mut cluster) = Cluster::new("stopped") else { return };
    let mut nodes = cluster.nodes(3);
    nodes[0].starts("hold 0 8 0 0", 8);
    nodes[0].wait_for_held(8);
    // Timers that are in the memory of the stopped node too.
    nodes[0].starts("work 8 108 1000 40", 100);
    nodes[0].process.signal("STOP");
    cluster.execute(&format!("SELECT pg_sleep({})", 3.0 * LEASE.as_secs_f64()));
    cluster.wait_for_owners(2);
    nodes[0].process.signal("CONT");
    nodes[0].ask("release", "released");
    // The stale ends are refused. The runs of the new owners are still held, without an effect.
    nodes[0].wait_for("stale", |stale| stale >= 8);
    let held = "SELECT count(*) = 8 FROM $.timers t JOIN $.topics n ON n.id = t.topic WHERE n.name = 'hold'";
    cluster.wait_until("the runs are pending", held);
    cluster.wait_until("only work had effects", "SELECT count(*) = 0 FROM $.effects WHERE payload::int < 8");

    cluster.wait_for_owners(3);
    nodes[0].starts("work 108 128 100 10", 20);
    // A partition that goes back to the first node has its run repeated there, and held again.
    cluster.release_all(&mut nodes);
    cluster.assert_exactly_once(128);
    nodes.into_iter().for_each(|node| node.close());
}

#[test]
fn a_killed_node_is_replaced_within_two_leases() {
    let Some(mut cluster) = Cluster::new("killed") else { return };
    let mut nodes = cluster.nodes(3);
    nodes[0].starts("work 0 400 200 10", 400);
    nodes[1].starts("hold 400 401 0 0", 1);
    nodes[1].wait_for_held(1);
    nodes[1].process.signal("KILL");
    let killed = Instant::now();
    drop(nodes.remove(1));
    cluster.wait_for_owners(2);
    let took = killed.elapsed();
    eprintln!("take-over after {took:?}, lease {LEASE:?}");
    // The promise is two leases. Their ends are times of the database, and a busy machine adds its
    // delays.
    assert!(took < 2 * LEASE + Duration::from_secs(10), "{took:?}");
    cluster.release_all(&mut nodes);
    cluster.assert_exactly_once(401);
    nodes.into_iter().for_each(|node| node.close());
}

#[test]
fn a_node_whose_connection_is_cut_goes_on() {
    let Some(mut cluster) = Cluster::new("cut") else { return };
    let proxy = Proxy::to(cluster.port());
    let mut nodes = cluster.nodes(2);
    nodes.push(cluster.node_at("cut", &config(proxy.port)));
    cluster.wait_for_owners(3);
    nodes[2].starts("work 0 300 100 10", 300);
    for _ in 0..20 {
        nodes[2].process.stdout.wait_for("fired ");
        proxy.cut();
    }
    let ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
        WHERE application_name = 'netwheel timers 0' AND query LIKE '%cut.%'";
    for _ in 0..5 {
        cluster.execute(ended);
    }
    cluster.wait_for_all();
    cluster.assert_exactly_once(300);
    nodes.into_iter().for_each(|node| node.close());
}

#[test]
fn a_rolling_restart_loses_and_repeats_nothing() {
    let Some(mut cluster) = Cluster::new("rolling") else { return };
    let mut nodes = cluster.nodes(3);
    let mut fired = Vec::new();
    nodes[2].starts("work 0 400 200 10", 400);
    for (n, node) in nodes.iter_mut().enumerate() {
        let mut old = std::mem::replace(node, cluster.node(&format!("new {n}")));
        old.process.say("close\n");
        let (output, _) = old.process.succeed();
        fired.extend(output.lines().filter(|line| line.starts_with("fired ")).map(str::to_owned));
    }
    cluster.wait_for_owners(3);
    cluster.wait_for_all();
    cluster.assert_exactly_once(400);
    for mut node in nodes {
        node.process.say("close\n");
        let (output, _) = node.process.succeed();
        fired.extend(output.lines().filter(|line| line.starts_with("fired ")).map(str::to_owned));
    }
    // A node that is closed waits for its runs, so each handler was called once.
    let doubled: Vec<_> = super::node::tally(fired).into_iter().filter(|(_, times)| *times > 1).collect();
    assert_eq!(doubled, []);
}
