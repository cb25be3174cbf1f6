//! The example `timers`, which `cargo test` builds.

use crate::{
    support::{
        loops::{end, one_loop},
        process::{Process, example},
        wait::{HOUR, PATIENCE, done, receive, wait_until},
    },
    timers::{File, sending, started},
};
use netwheel::durable::{Due, Late, Retry, Topic};
use std::{
    process::Command,
    time::{Duration, Instant},
};

/// Runs the program on a file. Returns its standard output, or its standard error if it failed.
fn timers(file: &File, arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(example("timers")).arg(file.path()).args(arguments).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[test]
fn timers_are_started_listed_moved_and_cancelled_without_firing() {
    let file = File::new();
    // Overdue from the beginning.
    assert_eq!(timers(&file, &["start", "topic", "0s", "\"now\"", "--key", "k"]).unwrap(), "1\n");
    assert_eq!(timers(&file, &["start", "topic", "0s", "\"again\"", "--key", "k"]).unwrap(), "1\n");
    assert_eq!(timers(&file, &["start", "other", "2030-01-31T09:00:00Z", "[2]"]).unwrap(), "2\n");
    let second = "2 pending 2030-01-31T09:00:00.000Z \"other\" [2]\n";
    let all = timers(&file, &["list"]).unwrap();
    let (first, rest) = all.split_once('\n').unwrap();
    assert!(first.starts_with("1 pending ") && first.ends_with(" \"topic\" \"now\" key \"k\""), "{all}");
    assert_eq!(rest, second);
    assert_eq!(timers(&file, &["list", "--after", "1"]).unwrap(), second);
    assert_eq!(timers(&file, &["list", "--limit", "1"]).unwrap(), format!("{first}\n"));
    assert_eq!(timers(&file, &["list", "--topic", "other"]).unwrap(), second);
    assert_eq!(timers(&file, &["list", "--dead"]).unwrap(), "");
    assert_eq!(
        timers(&file, &["counts"]).unwrap(),
        "\"other\": 1 pending, 0 dead\n\"topic\": 1 pending, 0 dead\n"
    );
    assert_eq!(timers(&file, &["move", "2", "2031-01-01 00:00:00"]).unwrap(), "2: moved\n");
    assert!(timers(&file, &["list"]).unwrap().contains("2 pending 2031-01-01T00:00:00.000Z"));
    assert_eq!(timers(&file, &["run", "2"]).unwrap(), "2: due now\n");
    assert_eq!(timers(&file, &["cancel", "1"]).unwrap(), "1: cancelled\n");
    for command in [&["cancel", "1"][..], &["run", "1"], &["move", "1", "3d"]] {
        assert_eq!(timers(&file, command).unwrap_err(), "timers: there is no timer 1\n");
    }

    let group = one_loop();
    let (topic, runs) = sending("other");
    // The payload is not a text, so the timer becomes a dead letter.
    let program = file.open().topic(topic).start(&group).unwrap();
    let dead = || done(program.counts()).unwrap()[0].dead;
    let patience = Instant::now() + PATIENCE;
    while dead() == 0 {
        assert!(Instant::now() < patience, "the timer did not become a dead letter");
    }
    done(program.close()).unwrap();
    assert!(runs.try_recv().is_err());
    end(&group);
    let dead = timers(&file, &["list", "--dead"]).unwrap();
    assert!(dead.starts_with("2 dead ") && dead.contains(" attempts 1 error \"the payload is not"), "{dead}");
}

#[test]
fn the_next_timers_are_listed_and_topics_paused() {
    let file = File::new();
    for time in ["2032-01-01 00:00:00", "2031-01-01 00:00:00", "2033-01-01 00:00:00"] {
        timers(&file, &["start", "topic", time, "[]", "--key", time]).unwrap();
    }
    let ids = |listed: String| -> Vec<String> {
        listed.lines().map(|line| line.split(' ').next().unwrap().to_owned()).collect()
    };
    assert_eq!(ids(timers(&file, &["list", "--due"]).unwrap()), ["2", "1", "3"]);
    assert_eq!(ids(timers(&file, &["list", "--due", "--limit", "2"]).unwrap()), ["2", "1"]);
    assert_eq!(ids(timers(&file, &["list", "--key", "2031-01-01 00:00:00"]).unwrap()), ["2"]);
    assert_eq!(timers(&file, &["pause", "topic"]).unwrap(), "\"topic\": paused\n");
    assert_eq!(timers(&file, &["counts"]).unwrap(), "\"topic\": 3 pending, 0 dead, paused\n");
    assert_eq!(timers(&file, &["resume", "topic"]).unwrap(), "\"topic\": resumed\n");
    assert_eq!(timers(&file, &["counts"]).unwrap(), "\"topic\": 3 pending, 0 dead\n");
    assert_eq!(timers(&file, &["pause", "topik"]).unwrap_err(), "timers: there is no topic \"topik\"\n");
    let help = timers(&file, &["--help"]).unwrap();
    assert!(help.contains("belongs to one program at a time") && help.contains("retry-dead"), "{help}");
}

#[test]
fn dead_letters_are_retried_and_removed_together() {
    let file = File::new();
    let group = one_loop();
    // The payloads are not texts.
    let (topic, _runs) = sending("topic");
    let program = file.open().topic(topic).start(&group).unwrap();
    for _ in 0..3 {
        done(program.at("topic", Duration::ZERO, &17).start()).unwrap();
    }
    wait_until("dead letters", || done(program.counts()).unwrap()[0].dead == 3);
    done(program.close()).unwrap();
    end(&group);
    let dead = timers(&file, &["list", "--dead", "--due"]).unwrap();
    assert_eq!(dead.lines().count(), 3, "{dead}");
    let retried = timers(&file, &["retry-dead", "topic", "--over", "10m"]).unwrap();
    assert_eq!(retried, "3 dead letters are due\n");
    assert_eq!(timers(&file, &["counts"]).unwrap(), "\"topic\": 3 pending, 0 dead\n");
    assert_eq!(timers(&file, &["remove-dead", "topic"]).unwrap(), "0 dead letters removed\n");
}

#[test]
fn a_timer_that_was_made_due_fires_in_its_program() {
    let file = File::new();
    let (group, program, _runs) = started(&file);
    done(program.at("topic", HOUR, "tea").start()).unwrap();
    let refused = timers(&file, &["list"]).unwrap_err();
    assert!(refused.contains("timers.db is in use by a running program"), "{refused}");
    done(program.close()).unwrap();
    assert_eq!(timers(&file, &["run", "1"]).unwrap(), "1: due now\n");
    let (next_group, program, runs) = started(&file);
    assert_eq!(receive(&runs), "tea");
    done(program.close()).unwrap();
    end(&group);
    end(&next_group);
}

#[test]
fn mistakes_are_explained() {
    let file = File::new();
    let missing = timers(&file, &["list"]).unwrap_err();
    assert!(missing.contains("there is no file") && !file.path().exists(), "{missing}");
    let payload = timers(&file, &["start", "topic", "1s", "tea"]).unwrap_err();
    assert!(payload.contains("not JSON"), "{payload}");
    let time = timers(&file, &["start", "topic", "tomorrow", "1"]).unwrap_err();
    assert!(time.contains("neither a duration"), "{time}");
    std::fs::write(file.path(), "a diary that is longer than the header of a database, ".repeat(4)).unwrap();
    let diary = timers(&file, &["counts"]).unwrap_err();
    assert!(diary.contains("is not a store of timers"), "{diary}");
}

#[cfg(unix)]
#[test]
fn the_demo_fires_timers_until_it_is_interrupted() {
    let file = File::new();
    // A topic of another program stays as it is.
    let group = one_loop();
    let other = Topic::new("other", Late::RunOnce, Retry::never(), |due: Due<String>| due.done());
    let program = file.open().topic(other).paused().start(&group).unwrap();
    done(program.at("other", Duration::ZERO, "kept").start()).unwrap();
    done(program.close()).unwrap();
    end(&group);
    timers(&file, &["start", "demo", "0s", "{\"drink\":\"tea\"}"]).unwrap();
    let binary = example("timers");
    let path = file.path();
    let mut demo = Process::start(&[binary.as_os_str(), path.as_os_str(), "demo".as_ref()]);
    assert!(demo.stdout.wait_for("timer 2 fires, ").ends_with("{\"drink\":\"tea\"}"));
    assert!(demo.stdout.wait_for("timer 3 fires, ").ends_with("0 missed: \"every two seconds\""));
    demo.signal("INT");
    demo.succeed();
    let left = timers(&file, &["counts"]).unwrap();
    assert_eq!(left, "\"demo\": 1 pending, 0 dead\n\"other\": 1 pending, 0 dead\n");
}
