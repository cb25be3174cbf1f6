//! Load generators: no connection is reset, and each request is answered with 200.

use super::example::HttpExample;
use crate::support::process::are_installed;
use serde_json::Value;
use std::process::Command;

/// Runs a program until it ends, and returns its output.
#[track_caller]
fn run(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {errors}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn wrk_gets_an_answer_to_each_request() {
    if !are_installed(&["wrk"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let report = run("wrk", &["-t1", "-c32", "-d1s", &server.url("/")]);
    assert!(!report.contains("Socket errors") && !report.contains("Non-2xx"), "{report}");
    let requests = report.split("requests in").next().unwrap().split_whitespace().next_back();
    assert!(requests.unwrap().parse::<u64>().unwrap() > 32, "{report}");
    server.stop();
}

/// ab sends HTTP/1.0 with `Connection: keep-alive`.
#[test]
fn ab_keeps_its_connections() {
    if !are_installed(&["ab"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let report = run("ab", &["-q", "-k", "-n", "3000", "-c", "16", &server.url("/")]);
    let value = |name: &str| {
        let line = report.lines().find(|line| line.starts_with(name));
        line.map(|line| line.split_whitespace().next_back().unwrap().to_owned())
    };
    assert_eq!(value("Complete requests:").as_deref(), Some("3000"), "{report}");
    assert_eq!(value("Keep-Alive requests:").as_deref(), Some("3000"), "{report}");
    assert_eq!(value("Failed requests:").as_deref(), Some("0"), "{report}");
    assert_eq!(value("Non-2xx responses:"), None, "{report}");
    server.stop();
}

#[test]
fn h2load_gets_an_answer_to_each_request() {
    if !are_installed(&["h2load"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let report = run("h2load", &["--h1", "-n", "3000", "-c", "16", &server.url("/")]);
    assert!(report.contains("3000 succeeded, 0 failed, 0 errored, 0 timeout"), "{report}");
    assert!(report.contains("3000 2xx, 0 3xx, 0 4xx, 0 5xx"), "{report}");
    server.stop();
}

/// autocannon writes 16 requests before it reads the first response.
#[test]
fn autocannon_gets_pipelined_answers() {
    if !are_installed(&["autocannon"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let get = server.url("/");
    let post = ["-m", "POST", "-b", "hello, world", "-E", "hello, world", &get];
    for arguments in [&[&get[..]][..], &post] {
        let options = ["-d", "1", "-c", "8", "-p", "16", "--json"];
        let report = run("autocannon", &[&options, arguments].concat());
        let report: Value = serde_json::from_str(&report).unwrap();
        for errors in ["errors", "timeouts", "mismatches", "non2xx", "resets"] {
            assert_eq!(report[errors], 0, "{errors}: {report}");
        }
        assert!(report["2xx"].as_u64().unwrap() > 128, "{report}");
    }
    server.stop();
}
