//! A process whose disk fails: errors are injected into the calls for one file of the store.

use crate::{
    support::{
        loops::{end, one_loop},
        process::{play, plays, skip, strace_works},
        wait::{HOUR, done},
    },
    timers::{File, sending},
};
use netwheel::durable::{DurableTimers, SqliteStore, TimerStore};
use std::{fs, process::Command, thread};

/// A child process that starts timers while its disk fails. It prints the result of each start.
#[test]
fn failing_disk() {
    if !plays("failing_disk") {
        return;
    }
    let setting = |name: &str| std::env::var(format!("NETWHEEL_FAULTS_{name}")).unwrap();
    let group = one_loop();
    let (topic, _runs) = sending("topic");
    let timers = DurableTimers::builder(SqliteStore::open(setting("FILE")).unwrap())
        .topic(topic)
        .start(&group)
        .unwrap();
    println!("@open");
    for start in 0..setting("STARTS").parse().unwrap() {
        let payload = "x".repeat(setting("BYTES").parse().unwrap());
        match done(timers.at("topic", HOUR, &payload).start()) {
            Ok(_) => println!("@stored {start}"),
            Err(error) => println!("@refused {error}"),
        }
    }
    let metrics = timers.metrics();
    println!("@log {} {}", metrics.log_bytes, metrics.maintenance_failures);
    println!("@close {:?}", done(timers.close()).is_ok());
    end(&group);
}

/// The output of a child.
struct Said(Vec<String>);

impl Said {
    /// Runs [`failing_disk`] under a command.
    fn by(file: &File, starts: usize, bytes: usize, under: &[&str]) -> Said {
        let mut command: Vec<String> = under.iter().map(|&part| part.to_owned()).collect();
        let mut child = play("failing_disk");
        for setting in [
            format!("NETWHEEL_FAULTS_FILE={}", file.path().display()),
            format!("NETWHEEL_FAULTS_STARTS={starts}"),
            format!("NETWHEEL_FAULTS_BYTES={bytes}"),
        ] {
            child.insert(1, setting);
        }
        command.append(&mut child);
        let output = Command::new(&command[0]).args(&command[1..]).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        let said = Said(text.lines().filter_map(|line| Some(line.split_once('@')?.1.to_owned())).collect());
        assert!(said.0.iter().any(|line| line.starts_with("close")), "{said:?}", said = said.0);
        said
    }

    fn count(&self, what: &str) -> usize {
        self.0.iter().filter(|line| line.starts_with(what)).count()
    }

    /// Returns the lines from the first refusal.
    fn since_refusal(&self) -> &[String] {
        let first = self.0.iter().position(|line| line.starts_with("refused"));
        &self.0[first.unwrap_or_else(|| panic!("nothing was refused: {:?}", self.0))..]
    }

    fn closed(&self) -> bool {
        self.0.iter().any(|line| line == "close true")
    }
}

/// Runs [`failing_disk`] under strace, which injects an error into system calls for one file of the
/// store. `suffix` selects the file. `fault` is the system call, the error, and which of the calls
/// fails: a number from 1, with a `+` if all later calls fail too. Returns the output of the child
/// and the trace of its calls for that file.
fn disk_with(file: &File, suffix: &str, fault: [&str; 3], starts: usize) -> Option<(Said, String)> {
    let [call, error, when] = fault;
    let inject = format!("inject={call}:error={error}:when={when}");
    // Without the filter, each system call of the child stops it.
    let filter = "--seccomp-bpf";
    if !strace_works(&[filter, "-e", &format!("trace={call}"), "-e", &inject]) {
        return None;
    }
    let trace = file.path().with_extension("trace");
    let trace_calls = format!("trace={call},fsync,fdatasync,pwrite64");
    let path = file.path().with_extension(format!("db{suffix}"));
    let (trace_path, path) = (trace.to_str().unwrap(), path.to_str().unwrap());
    let options = ["-y", "-P", path, "-e", &trace_calls, "-e", &inject];
    let strace = [["strace", "-f", filter, "-qq", "-o", trace_path].as_slice(), &options].concat();
    let said = Said::by(file, starts, 10_000, &strace);
    Some((said, fs::read_to_string(trace).unwrap()))
}

/// Runs a check with each error that means that there is no space, all of them at the same time.
fn with_each_lack_of_space(check: impl Fn(&str) + Sync) {
    thread::scope(|scope| {
        for error in ["ENOSPC", "EDQUOT", "EFBIG"] {
            let check = &check;
            scope.spawn(move || check(error));
        }
    });
}

/// A program finds after the faults exactly the timers that were stored.
#[track_caller]
fn check_stored(file: &File, said: &Said) {
    let counts = SqliteStore::open(file.path()).unwrap().counts().unwrap();
    assert_eq!(counts[0].pending, said.count("stored") as u64);
}

#[test]
fn a_failed_fsync_stops_the_store_and_is_never_repeated() {
    let file = File::new();
    // The first calls are those of the new file.
    let Some((said, trace)) = disk_with(&file, "-wal", ["fsync", "EIO", "12"], 20) else { return };
    let refused = said.since_refusal();
    assert!(said.count("refused the timer store failed") > 0, "{:?}\n{trace}", said.0);
    assert!(refused.iter().all(|line| !line.starts_with("stored")), "stored after a failure: {refused:?}");
    assert!(!said.closed());
    let (_, after) = trace.split_once("INJECTED").unwrap();
    assert!(!after.contains("sync("), "synced again: {after}");
}

#[test]
fn a_full_disk_quota_or_file_refuses_starts_until_there_is_space() {
    with_each_lack_of_space(|error| {
        let file = File::new();
        let fault = ["pwrite64", error, "100..104"];
        let Some((said, trace)) = disk_with(&file, "-wal", fault, 20) else { return };
        assert!(
            said.count("refused the disk of the timer store is full") > 0,
            "{error}: {:?}\n{trace}",
            said.0
        );
        assert!(said.count("stored") > 0, "{error}: {:?}", said.0);
        let since = said.since_refusal();
        assert!(since.iter().any(|line| line.starts_with("stored")), "{error}: not stored again: {since:?}");
        assert!(said.closed());
        check_stored(&file, &said);
    });
}

#[test]
fn an_io_error_of_the_log_stops_the_store() {
    let file = File::new();
    let Some((said, trace)) = disk_with(&file, "-wal", ["pwrite64", "EIO", "100"], 20) else { return };
    assert!(said.count("refused the timer store failed") > 0, "{:?}\n{trace}", said.0);
    assert!(said.since_refusal().iter().all(|line| !line.starts_with("stored")), "{:?}", said.0);
    check_stored(&file, &said);
}

#[test]
fn a_failed_fsync_of_the_database_file_stops_the_store_and_loses_nothing() {
    let file = File::new();
    // The first calls are those of the new file.
    let Some((said, trace)) = disk_with(&file, "", ["fsync", "EIO", "3+"], 600) else { return };
    assert_eq!(trace.matches("INJECTED").count(), 1, "synced again: {trace}");
    let why = "refused the timer store failed: the log of the timer store could not be copied";
    assert!(said.count(why) > 0, "{:?}", said.0);
    assert!(said.since_refusal().iter().all(|line| !line.starts_with("stored")), "{:?}", said.0);
    assert!(!said.closed());
    check_stored(&file, &said);
}

#[test]
fn starts_go_on_while_the_log_cannot_be_copied_for_lack_of_space() {
    with_each_lack_of_space(|error| {
        let file = File::new();
        // The first calls are those of the new file.
        let Some((said, trace)) = disk_with(&file, "", ["pwrite64", error, "5+"], 400) else { return };
        assert_eq!(said.count("stored"), 400, "{error}: {trace}");
        let log: Vec<u64> = said.0.iter().find_map(|line| numbers(line)).unwrap();
        assert!(log[0] > 1000 * 4096 && log[1] >= 1, "{error}: bytes and failures {log:?}");
        check_stored(&file, &said);
    });
}

fn numbers(line: &str) -> Option<Vec<u64>> {
    line.strip_prefix("log ")?.split(' ').map(|number| number.parse().ok()).collect()
}

/// The limit of the shell is one of the process, so other tests do not notice it.
#[cfg(unix)]
#[test]
fn a_file_that_reached_its_largest_size_refuses_starts() {
    let file = File::new();
    let shell = ["sh", "-c", "trap '' XFSZ; ulimit -f 600; exec \"$0\" \"$@\""];
    if !Command::new("sh").args(["-c", "ulimit -f 600"]).status().is_ok_and(|status| status.success()) {
        return skip("the shell does not limit the size of files");
    }
    let said = Said::by(&file, 100, 10_000, &shell);
    assert!(said.count("stored") > 3 && said.count("stored") < 100, "{:?}", said.0);
    assert_eq!(said.count("refused the disk of the timer store is full"), 100 - said.count("stored"));
    assert!(said.closed());
    check_stored(&file, &said);
}
