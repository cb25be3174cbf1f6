//! The example `timers` on a server whose nodes go on.

use super::server::{Server, server};
use crate::{
    support::{
        loops::{end, one_loop},
        process::example,
        wait::{HOUR, done, receive},
    },
    timers::sending,
};
use netwheel::durable::{DurableTimers, TimerFilter};
use std::process::Command;

/// Runs the program on a schema. Returns its standard output, or its standard error if it failed.
fn timers(server: &Server, schema: &str, arguments: &[&str]) -> Result<String, String> {
    let url = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port());
    let mut command = Command::new(example("timers"));
    let output = command.args([&url, "--schema", schema]).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn timers_of_a_running_node_are_listed_run_and_cancelled() {
    let Some(server) = server() else { return };
    let schema = "operator";
    let missing = timers(server, schema, &["list"]).unwrap_err();
    assert!(missing.contains("there is no schema operator"), "{missing}");
    let group = one_loop();
    let (topic, runs) = sending("topic");
    let node =
        DurableTimers::builder(server.builder(schema).open().unwrap()).topic(topic).start(&group).unwrap();
    let tea = done(node.at("topic", HOUR, "tea").start()).unwrap();
    let coffee = done(node.at("topic", HOUR, "coffee").start()).unwrap();
    let listed = timers(server, schema, &["list"]).unwrap();
    assert!(listed.contains("\"topic\" \"tea\"") && listed.contains("\"coffee\""), "{listed}");
    let id = coffee.to_string();
    assert_eq!(timers(server, schema, &["cancel", &id]).unwrap(), format!("{id}: cancelled\n"));
    let id = tea.to_string();
    assert_eq!(timers(server, schema, &["run", &id]).unwrap(), format!("{id}: due now\n"));
    // The node fires it when it learns of the change.
    assert_eq!(receive(&runs), "tea");
    timers(server, schema, &["start", "topic", "0s", "\"water\""]).unwrap();
    assert_eq!(receive(&runs), "water");
    assert_eq!(timers(server, schema, &["pause", "topic"]).unwrap(), "\"topic\": paused\n");
    assert!(done(node.counts()).unwrap()[0].is_paused);
    // The node resumes it within a renewal of its lease.
    assert_eq!(timers(server, schema, &["resume", "topic"]).unwrap(), "\"topic\": resumed\n");
    timers(server, schema, &["start", "topic", "0s", "\"milk\""]).unwrap();
    assert_eq!(receive(&runs), "milk");
    let left = done(node.list(TimerFilter::new())).unwrap();
    assert!(left.iter().all(|timer| ["\"water\"", "\"milk\""].contains(&timer.payload.as_str())), "{left:?}");
    done(node.close()).unwrap();
    end(&group);
}
