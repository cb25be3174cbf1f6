//! The machines of stores: hosts that do not exist, kills, losses of power and stalls at chosen
//! moments.

use super::workload::{MS, SECOND};
use netwheel::{
    EventLoopGroup, Result,
    durable::{
        Due, DurableTimers, Late, MemoryDatabase, MemoryDisk, MemoryTransaction, Retry, TimerFilter, Topic,
    },
    testing::simulation::{Journal, Network, Simulation, sleep},
    time::default_clock,
};
use std::time::Duration;

/// In a simulation without that node, requests would take no time and never fail.
#[test]
fn a_host_that_does_not_exist_is_refused() {
    let mut simulation = Simulation::new(1);
    simulation.node("db", "10.0.0.9", || Ok(()));
    let node = simulation.node("one", "10.0.0.1", || {
        MemoryDatabase::new().host("db").open()?;
        let error = MemoryDatabase::new().host("bd").open().unwrap_err();
        assert_eq!(error.to_string(), "host is bd; it must be the name of a node of the simulation");
        Ok(())
    });
    simulation.run_until_ended(node, SECOND).unwrap();
    // A program outside of simulations may use the same database.
    MemoryDatabase::new().host("bd").open().unwrap();
}

/// The clock of the host counts, and not that of the node that asks.
#[test]
fn the_time_of_a_database_is_that_of_its_host() {
    let mut simulation = Simulation::new(1);
    let host = simulation.node("db", "10.0.0.9", || Ok(()));
    let times = Journal::new();
    let seen = times.clone();
    let node = simulation.node("one", "10.0.0.1", move || {
        let (there, here) = (MemoryDatabase::new().host("db"), MemoryDatabase::new());
        let ahead = there.wall_time().duration_since(default_clock().wall_time()).unwrap_or_default();
        let without_host = here.wall_time().duration_since(default_clock().wall_time()).unwrap_or_default();
        seen.push((ahead, without_host));
        Ok(())
    });
    simulation.jump(host, 100 * SECOND);
    simulation.run_until_ended(node, SECOND).unwrap();
    times.with(|times| {
        let (ahead, without_host) = times[0];
        assert!(ahead > 99 * SECOND && without_host < SECOND, "{ahead:?}, {without_host:?}");
    });
}

/// The kernel of a killed database refuses at once, and a machine without power does not answer.
#[test]
fn a_host_without_power_refuses_nothing() {
    let mut simulation = Simulation::new(1);
    let host = simulation.node("db", "10.0.0.9", || Ok(()));
    let attempts = Journal::new();
    let seen = attempts.clone();
    let node = simulation.node("one", "10.0.0.1", move || {
        let database = MemoryDatabase::new().host("db").lease(10 * SECOND).request_timeout(4 * SECOND);
        for _ in 0..2 {
            let begin = default_clock().now();
            let error = database.open().unwrap_err().to_string();
            seen.push((default_clock().now() - begin, error));
            sleep(10 * SECOND);
        }
        Ok(())
    });
    simulation.kill(host);
    simulation.run_for(5 * SECOND).unwrap();
    simulation.power_off(host);
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    attempts.with(|attempts| {
        let [(refused, why), (silent, nothing)] = attempts else { panic!("{attempts:?}") };
        assert!(*refused < SECOND && why.contains("the server is down"), "{attempts:?}");
        assert!(*silent >= 4 * SECOND && nothing.contains("no answer"), "{attempts:?}");
    });
}

/// What a node has seen of its store at each start: the payloads of its timers, and rows.
type Seen = Journal<(Vec<String>, Option<Vec<u8>>)>;

/// Starts timers in its first life. The work of the first one does not end. Later lives fire
/// nothing.
fn program(disk: &MemoryDisk, seen: &Seen) -> Result {
    let group = EventLoopGroup::builder().threads(1).build()?;
    let topic = Topic::new("slow", Late::RunOnce, Retry::backoff(5), |due: Due<u32>| {
        due.done_with(|transaction| {
            transaction.connection::<MemoryTransaction>()?.put("row", b"of a run that was killed");
            sleep(3600 * SECOND);
            Ok(())
        });
    });
    let is_first = seen.is_empty();
    let builder = DurableTimers::builder(disk.open()?).topic(topic);
    let timers = if is_first { builder } else { builder.paused() }.start(&group)?;
    let mut payloads = Vec::new();
    if is_first {
        for (number, delay) in [(1, SECOND), (2, 3600 * SECOND), (3, 7200 * SECOND)] {
            timers.at("slow", delay, &number).start().wait()?;
        }
    }
    for info in timers.list(TimerFilter::new()).wait()? {
        payloads.push(info.payload);
    }
    let row = timers.transaction(|transaction| {
        Ok(transaction.connection::<MemoryTransaction>()?.get("row").map(<[u8]>::to_vec))
    });
    seen.push((payloads, row.wait()?));
    sleep(100_000 * SECOND);
    Ok(())
}

/// The kill unwinds the thread of the store within a transaction, as it does for no real store.
#[test]
fn a_node_that_is_killed_within_a_transaction_keeps_its_timers() {
    let (disk, seen) = (MemoryDisk::new(), Seen::new());
    let (stored, journal) = (disk.clone(), seen.clone());
    let mut simulation = Simulation::new(1);
    let node = simulation.node("timers", "10.0.0.1", move || program(&stored, &journal));
    for lives in 1..=3 {
        simulation.run_for(10 * SECOND + 7 * MS).unwrap();
        assert_eq!(seen.len(), lives);
        if lives == 2 {
            simulation.power_off(node)
        } else {
            simulation.kill(node)
        }
        simulation.restart(node);
    }
    seen.with(|seen| {
        let numbers = ["1", "2", "3"].map(str::to_owned).to_vec();
        assert!(seen.iter().all(|life| *life == (numbers.clone(), None)), "{seen:?}");
    });
}

/// Stalls a node that has claimed a timer until another one has taken over. `after` is counted from
/// about when the timer is due. Returns which nodes have run it.
fn stalled_at(after: Duration) -> Vec<usize> {
    let mut simulation = Simulation::new(1);
    simulation.network(Network::wide());
    simulation.node("db", "10.0.0.9", || Ok(()));
    let database = MemoryDatabase::new().partitions(8).host("db").lease(SECOND);
    let (ran, started) = (Journal::new(), Journal::new());
    let mut nodes = Vec::new();
    for number in [1, 2] {
        let (database, ran, started) = (database.clone(), ran.clone(), started.clone());
        nodes.push(simulation.node(&format!("node-{number}"), &format!("10.0.0.{number}"), move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let ran = ran.clone();
            let topic = Topic::new("topic", Late::RunOnce, Retry::never(), move |due: Due<u32>| {
                ran.push(number);
                due.done();
            });
            let timers = DurableTimers::builder(database.open()?).topic(topic).start(&group)?;
            sleep(5 * SECOND);
            if number == 1 {
                timers.at("topic", SECOND, &0).start().wait()?;
                started.push(());
            }
            sleep(100_000 * SECOND);
            Ok(())
        }));
    }
    simulation.run_until("the timer is stored", 10 * SECOND, || !started.is_empty()).unwrap();
    simulation.run_for(900 * MS + after).unwrap();
    simulation.stall(nodes[0], 5 * SECOND);
    simulation.run_for(10 * SECOND).unwrap();
    ran.with(<[usize]>::to_vec)
}

/// The answer to the claim waits for the loop. When that goes on, another node has run the timer.
#[test]
fn a_node_that_was_stalled_fires_nothing_with_an_old_claim() {
    // Over 400 ms. The network takes longer than a step for each message, and a renewal of the
    // lease may go before the end of the run.
    const STALLS: u32 = 40;
    let mut taken_over = 0_u32;
    for after in 0..STALLS {
        let ran = stalled_at(10 * MS * after);
        assert!([&[1][..], &[2], &[1, 2]].contains(&&ran[..]), "{after}: {ran:?}");
        taken_over += u32::from(ran.contains(&2));
    }
    assert!((3..STALLS).contains(&taken_over), "{taken_over} stalls came before the end of the run");
}
