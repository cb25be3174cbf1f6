//! Measures one family of scenarios: every server in every scenario, round by round.

use crate::{
    Pace,
    process::{Cpus, Running},
    results::{Results, Sample},
    scenario::Scenario,
    workshop::Server,
};
use std::{
    collections::{BTreeMap, btree_map::Entry},
    io,
    path::Path,
};

/// Key of a server process that several scenarios may use: name, mode and number of threads.
type Name = (&'static str, &'static str, u16);

/// Measures a family of scenarios.
///
/// # Errors
/// If a server that needs only a Rust toolchain does not start. Others are left out with a message.
pub(crate) fn measure(
    family: &[Scenario],
    servers: &[Server],
    loadgen: &Path,
    cpus: &Cpus,
    pace: &Pace,
    results: &mut Results,
) -> io::Result<()> {
    let mut up: BTreeMap<Name, Running> = BTreeMap::new();
    let mut able = Vec::new();
    for scenario in family {
        for server in servers.iter().filter(|server| can(server, scenario)) {
            let started = match up.entry(name(server, scenario)) {
                // Checks only that the server starts, because each run has a new one.
                _ if scenario.wants_fresh_server() => Running::start(server, scenario, cpus).map(drop),
                Entry::Vacant(place) => Running::start(server, scenario, cpus).map(|running| {
                    place.insert(running);
                }),
                Entry::Occupied(_) => Ok(()),
            };
            match started {
                Ok(()) => {}
                Err(e) if server.peer.is_optional() => {
                    eprintln!("peers: {} is left out of {}: {e}", server.peer.name, scenario.name);
                    continue;
                }
                Err(e) => {
                    return Err(io::Error::other(format!("{} in {}: {e}", server.peer.name, scenario.name)));
                }
            }
            able.push((scenario, server));
        }
    }
    if pace.warm {
        for (scenario, server) in &able {
            warm_up(server, scenario, family, &up, loadgen, cpus)?;
        }
    }
    for round in 1..=pace.rounds {
        for (scenario, server) in &able {
            let fresh;
            let running = if scenario.wants_fresh_server() {
                fresh = Running::start(server, scenario, cpus)?;
                &fresh
            } else {
                &up[&name(server, scenario)]
            };
            let figures = running.load(loadgen, scenario, cpus, pace)?;
            let sample = Sample { scenario: scenario.name, server: server.peer.name, round, figures };
            eprintln!("peers: round {round} of {}: {sample}", pace.rounds);
            results.add(sample);
        }
    }
    Ok(())
}

/// Applies the load that a server needs to warm up.
fn warm_up(
    server: &Server,
    scenario: &Scenario,
    family: &[Scenario],
    up: &BTreeMap<Name, Running>,
    loadgen: &Path,
    cpus: &Cpus,
) -> io::Result<()> {
    if server.peer.warm_up == 0.0 || scenario.wants_fresh_server() {
        return Ok(());
    }
    let own = name(server, scenario);
    let sharing = family.iter().filter(|other| name(server, other) == own).count().max(1);
    let pace = Pace { rounds: 1, seconds: server.peer.warm_up / sharing as f64, warmup: 0.0, warm: false };
    eprintln!("peers: warming up {} for {}", server.peer.name, scenario.name);
    up[&own].load(loadgen, scenario, cpus, &pace).map(drop)
}

fn can(server: &Server, scenario: &Scenario) -> bool {
    let enough = server.peer.threads >= if scenario.compares_threads() { 2 } else { scenario.threads };
    enough && server.peer.modes.contains(&scenario.mode)
}

fn name(server: &Server, scenario: &Scenario) -> Name {
    (server.peer.name, scenario.mode.name(), scenario.threads)
}
