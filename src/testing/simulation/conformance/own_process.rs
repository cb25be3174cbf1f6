//! Tests that change a limit of the process, and so run in a process of their own.

use std::process::{Command, Stdio};

const ROLE: &str = "NETWHEEL_CONFORMANCE";

/// Returns whether this process runs only the calling test. If not, runs the test in a child
/// process.
///
/// # Panics
/// If the child fails.
pub(super) fn is_own_process() -> bool {
    let thread = std::thread::current();
    let test = thread.name().expect("the thread of a test has its name");
    if std::env::var_os(ROLE).is_some_and(|role| role == test) {
        return true;
    }
    let program = std::env::current_exe().expect("a test has a path");
    let mut child = Command::new(program);
    child.args(["--exact", test, "--nocapture"]).env(ROLE, test).stdin(Stdio::null());
    let output = child.output().expect("the child starts");
    let said = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    assert!(output.status.success(), "{}{}", said[0], said[1]);
    // The harness also succeeds if no test has this name.
    assert!(said[0].contains("1 passed"), "{test} did not run: {}", said[0]);
    false
}
