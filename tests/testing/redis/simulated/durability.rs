//! Writers and subscribers amid faults. After each fault, the keys are a state that Redis has had,
//! and nothing is lost that was safe.

use super::{super::scripts, SECOND, program_client::ProgramClient, redis_node};
use netwheel::{
    EventLoopGroup, Result,
    codec::RespValue,
    testing::{
        redis::{Persistence, RedisDisk, RedisServer},
        simulation::{Exploration, Explored, Failure, Faults, Journal, Simulation, sleep, sometimes},
    },
};
use std::{collections::BTreeMap, time::Duration};

/// A write that was acknowledged.
#[derive(Debug, Clone, PartialEq)]
struct Acknowledged {
    offset: u64,
    message: String,
    /// How often Redis had been started when the write was sent, and when it was acknowledged.
    starts: usize,
    /// The time of Redis, in milliseconds.
    at: u64,
}

/// What the programs record.
#[derive(Clone, Default)]
struct Records {
    acknowledged: Journal<Acknowledged>,
    starts: Journal<()>,
    violations: Journal<String>,
    done: Journal<()>,
}

/// Returns the time of Redis in milliseconds.
fn time(client: &ProgramClient) -> Result<u64> {
    let RespValue::Array(parts) = client.ask(&["TIME"])? else { panic!("TIME replies an array") };
    let number = |at: usize| String::from_utf8_lossy(parts[at].as_bytes().unwrap()).parse::<u64>().unwrap();
    Ok(number(0) * 1000 + number(1) / 1000)
}

/// Writes until an error. Each write is a script that also publishes.
fn write(group: &EventLoopGroup, name: &str, next: &mut u64, records: &Records) -> Result {
    let client = ProgramClient::connect(group)?;
    compare(&client, records)?;
    for _ in 0..20 {
        *next += 1;
        let (message, starts) = (format!("{name}.{next}"), records.starts.len());
        let command = ["EVAL", scripts::PUBLISH, "3", "{t}m", "{t}s", "{t}c", "e", "0", &message, "1000000"];
        let reply = client.ask(&command)?;
        let RespValue::Array(reply) = reply else { panic!("the script replies an array: {reply:?}") };
        let [_, _, RespValue::Integer(offset)] = reply[..] else { panic!("{reply:?}") };
        let (offset, at) = (offset.unsigned_abs(), time(&client)?);
        if starts == records.starts.len() {
            records.acknowledged.push(Acknowledged { offset, message, starts, at });
        }
        sleep(Duration::from_millis(70));
    }
    Ok(())
}

/// Compares the keys with the acknowledged writes.
fn compare(client: &ProgramClient, records: &Records) -> Result {
    let acknowledged = records.acknowledged.with(<[_]>::to_vec);
    let starts = records.starts.len();
    if starts > 1 {
        sometimes("Redis has been started again");
    }
    let RespValue::Array(found) = client.ask(&["EVAL", scripts::STATE, "2", "{t}m", "{t}s"])? else {
        panic!("the script replies an array");
    };
    let text = |value: &RespValue| String::from_utf8_lossy(value.as_bytes().unwrap()).into_owned();
    let [top, entries @ ..] = &found[..] else { panic!("{found:?}") };
    let violate = |text: String| records.violations.push(text);
    let messages: BTreeMap<u64, String> = (1..).zip(entries.iter().map(text)).collect();
    // The script is atomic, so the offset and the stream agree.
    if *top != RespValue::Integer(messages.len() as i64) {
        violate(format!("the offset is {top:?}, and the stream has {} entries", messages.len()));
    }
    let (kept, lost): (Vec<_>, Vec<_>) =
        acknowledged.iter().partition(|write| messages.get(&write.offset) == Some(&write.message));
    if lost.is_empty() {
        return Ok(());
    }
    sometimes("acknowledged writes lost");
    for lost in lost {
        if lost.starts == starts {
            violate(format!("{lost:?} is lost without a crash"));
        }
        // What is kept of a life of Redis is its beginning.
        let same_life = |write: &&&Acknowledged| write.starts == lost.starts;
        if let Some(later) = kept.iter().filter(same_life).find(|write| write.offset > lost.offset) {
            violate(format!("{lost:?} is lost and {later:?} is kept"));
        }
        // At the time of the last acknowledgement, Redis was still alive.
        let last =
            acknowledged.iter().filter(|write| write.starts == lost.starts).map(|write| write.at).max();
        if last.is_some_and(|last| lost.at + 1100 < last) {
            violate(format!("{lost:?} was safe at {last:?}"));
        }
    }
    Ok(())
}

/// Subscribes, and checks that the messages of each connection have consecutive offsets.
fn subscribe(group: &EventLoopGroup, records: &Records) -> Result {
    let client = ProgramClient::connect(group)?;
    client.subscribe("{t}c")?;
    while client.is_open() && client.ask(&["PING"]).is_ok() {
        sleep(SECOND);
        client.pushes.with(|pushes| {
            let offset = |push: &RespValue| {
                let RespValue::Push(parts) = push else { return None };
                let text = String::from_utf8_lossy(parts.get(2)?.as_bytes()?).into_owned();
                text.split(' ').next()?.parse::<u64>().ok()
            };
            let offsets: Vec<u64> = pushes.iter().filter_map(offset).collect();
            if offsets.len() > 1 {
                sometimes("messages received");
            }
            if let Some(pair) = offsets.windows(2).find(|pair| pair[1] != pair[0] + 1) {
                records.violations.push(format!("{pair:?} are pushed one after the other"));
            }
        });
    }
    Ok(())
}

fn scenario(simulation: &mut Simulation, persistence: Persistence) -> std::result::Result<(), Failure> {
    let records = Records::default();
    let server = scripts::register(RedisServer::new(RedisDisk::new())).persistence(persistence);
    redis_node(simulation, &server, &records.starts);
    for name in ["a", "b"] {
        let records = records.clone();
        let address = if name == "a" { "10.0.0.2" } else { "10.0.0.3" };
        simulation.node(name, address, move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            // A program that was killed begins with other messages.
            let name = format!("{name}{}", records.done.len() + records.acknowledged.len());
            let mut next = 0;
            loop {
                match write(&group, &name, &mut next, &records) {
                    Ok(()) => records.done.push(()),
                    Err(_) => sometimes("a writer has failed"),
                }
                sleep(SECOND / 2);
            }
        });
    }
    let heard = records.clone();
    simulation.node("subscriber", "10.0.0.4", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        loop {
            let _ = subscribe(&group, &heard);
            sleep(SECOND / 2);
        }
    });
    let violations = records.violations.clone();
    simulation.check("writes and messages", move || {
        violations.with(|violations| violations.first().map_or(Ok(()), |first| Err(first.clone())))
    });
    simulation.run_for(40 * SECOND)?;
    simulation.heal();
    let before = records.done.len();
    simulation.run_until("writers succeed again", 120 * SECOND, || records.done.len() > before + 2)
}

/// Faults of links, connections, system calls and machines. A machine that stalls would sync later.
fn faults() -> Faults {
    ["node-killed", "node-loses-power", "link-cut", "link-clogged", "connection-reset"]
        .into_iter()
        .fold(Faults::none(), |faults, name| faults.rate(name, 40_000))
        .rate("short-read", 50_000)
        .rate("short-write", 50_000)
        .rate("late-edge", 20_000)
        .rate("accept-fails", 20_000)
}

/// Explores enough seeds that Redis is killed in some of them. Other tests of the simulated Redis
/// show that its runs are reproducible.
fn explore(persistence: Persistence) -> Explored {
    let explored = Exploration::new(4)
        .run_twice(false)
        .all_faults_together()
        .faults(faults())
        .run(|simulation| scenario(simulation, persistence))
        .unwrap_or_else(|failure| panic!("{failure}"));
    for state in ["a writer has failed", "Redis has been started again", "messages received"] {
        assert!(explored.reached(state) > 0, "{state}: {explored:?}");
    }
    explored
}

#[test]
fn always_loses_no_acknowledged_write() {
    let explored = explore(Persistence::Always);
    assert_eq!(explored.reached("acknowledged writes lost"), 0);
}

#[test]
fn everysec_loses_at_most_the_last_second() {
    let explored = explore(Persistence::EverySecond);
    assert!(explored.reached("acknowledged writes lost") > 0, "{explored:?}");
}
