//! Counts the cost of one operation. Each server runs twice under each tool, with a number of
//! operations and with twice as many. The difference is the cost of that many operations. It does
//! not include the start, the connections and the end.

use crate::{
    counts::Counts,
    process::{Cpus, Running},
    scenario::Scenario,
    tool::{Tool, Totals},
    workshop::{Server, Workshop},
};
use std::{fs, io, thread::sleep, time::Duration};

/// Time that a server has for work left by its last operations (closing connections) before it is
/// ended. That work is not counted, but should not differ between runs.
const REST: Duration = Duration::from_millis(300);

/// Counts the cost of one operation of each server in a scenario.
///
/// # Errors
/// If a server that needs only a Rust toolchain fails to do its operations. Other servers, and
/// counts that a tool cannot provide, are left out with a message.
pub(crate) fn count(
    scenario: &Scenario,
    servers: &[Server],
    tools: &[Tool],
    workshop: &Workshop,
    cpus: &Cpus,
    counts: &mut Counts,
) -> io::Result<()> {
    let able = servers.iter().filter(|server| server.peer.modes.contains(&scenario.mode));
    for server in able {
        if !server.peer.is_native() {
            eprintln!("peers: {} is not counted, because it is compiled at run time", server.peer.name);
            continue;
        }
        for tool in tools {
            match slope(scenario, server, *tool, workshop, cpus) {
                Ok(costs) => counts.add(scenario.name, server.peer.name, costs),
                Err(e) if server.peer.is_optional() => eprintln!(
                    "peers: {} of {} in {} are left out: {e}",
                    tool.what(),
                    server.peer.name,
                    scenario.name
                ),
                Err(e) => {
                    let (server, scenario) = (server.peer.name, scenario.name);
                    return Err(io::Error::other(format!("{server} in {scenario}, {}: {e}", tool.name())));
                }
            }
        }
        eprintln!("peers: counted {} {}", scenario.name, server.peer.name);
    }
    Ok(())
}

fn slope(
    scenario: &Scenario,
    server: &Server,
    tool: Tool,
    workshop: &Workshop,
    cpus: &Cpus,
) -> io::Result<Totals> {
    let operations = scenario.load.operations;
    let once = totals(scenario, server, tool, operations, workshop, cpus)?;
    let twice = totals(scenario, server, tool, 2 * operations, workshop, cpus)?;
    Ok(per_operation(&once, &twice, operations))
}

/// Returns the tool's totals for a process that did `operations` operations.
fn totals(
    scenario: &Scenario,
    server: &Server,
    tool: Tool,
    operations: u64,
    workshop: &Workshop,
    cpus: &Cpus,
) -> io::Result<Totals> {
    let file = workshop.shelf.join(format!("{}.{}", tool.what().replace(' ', "-"), std::process::id()));
    let running = Running::start_under(&tool.command(&file), server, scenario, cpus)?;
    running.operate(&workshop.loadgen, scenario, cpus, operations)?;
    sleep(REST);
    running.end()?;
    let text = fs::read_to_string(&file)?;
    fs::remove_file(&file)?;
    tool.read(&text).ok_or_else(|| io::Error::other(format!("{} has written no usable output", tool.name())))
}

/// Returns the difference of two totals, per operation. A name that occurs in only one of them
/// counts as 0 in the other.
fn per_operation(once: &Totals, twice: &Totals, operations: u64) -> Totals {
    let of = |totals: &Totals, name: &str| totals.get(name).copied().unwrap_or(0.0);
    let names = once.keys().chain(twice.keys());
    names.map(|name| (name.clone(), (of(twice, name) - of(once, name)) / operations as f64)).collect()
}

#[cfg(test)]
mod tests {
    use super::per_operation;
    use crate::tool::Totals;

    #[test]
    fn start_and_end_cancel_out_in_the_difference() {
        let totals = |values: &[(&str, f64)]| -> Totals {
            values.iter().map(|(name, value)| (name.to_string(), *value)).collect()
        };
        let once = totals(&[("call read", 1010.0), ("call mmap", 17.0)]);
        let twice = totals(&[("call read", 2010.0), ("call mmap", 17.0), ("call futex", 100.0)]);
        let costs = per_operation(&once, &twice, 1000);
        assert_eq!(costs, totals(&[("call read", 1.0), ("call mmap", 0.0), ("call futex", 0.1)]));
    }
}
