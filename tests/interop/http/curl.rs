//! curl as a careful client.

use super::example::HttpExample;
use crate::{
    interop::files::Files,
    support::{
        process::{Process, are_installed},
        random::Random,
    },
};
use std::{fs, process::Command};

/// What curl received.
struct Answer {
    body: Vec<u8>,
    /// The lines of heads in both directions, each with its mark.
    heads: String,
}

/// Runs curl, which waits for `100 Continue` as long as it takes.
#[track_caller]
fn curl(arguments: &[&str]) -> Answer {
    let own = ["--silent", "--show-error", "--verbose", "--max-time", "60", "--expect100-timeout", "60"];
    let output = Command::new("curl").args(own).args(arguments).output().unwrap();
    let heads = String::from_utf8_lossy(&output.stderr).replace('\r', "");
    assert!(output.status.success(), "{}: {heads}", output.status);
    Answer { body: output.stdout, heads }
}

/// A file of 3 MiB; curl expects 100-continue from 1 MiB on.
fn large_file(files: &Files) -> (String, Vec<u8>) {
    let bytes = Random::new(7).bytes(3 << 20).to_vec();
    let path = files.path("large");
    fs::write(&path, &bytes).unwrap();
    (path, bytes)
}

#[test]
fn uploads_are_echoed_with_a_length_and_chunked_behind_100_continue() {
    if !are_installed(&["curl"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let files = Files::new();
    let (path, bytes) = large_file(&files);
    let url = server.url("/");
    let data = format!("@{path}");
    for (upload, header) in [
        (["--data-binary", &data], "> Content-Length: 3145728"),
        (["--upload-file", "-"], "> Transfer-Encoding: chunked"),
    ] {
        let answer = if upload[1] == "-" {
            let script = format!("curl -sSv --expect100-timeout 60 -X POST -T - {url} < {path}");
            let output = Command::new("sh").args(["-c", &script]).output().unwrap();
            let heads = String::from_utf8_lossy(&output.stderr).replace('\r', "");
            Answer { body: output.stdout, heads }
        } else {
            curl(&[&upload[..], &[&url]].concat())
        };
        assert!(answer.heads.contains(header), "{}", answer.heads);
        assert!(answer.heads.contains("< HTTP/1.1 100 Continue"), "{}", answer.heads);
        assert!(answer.heads.contains("< HTTP/1.1 200 OK"), "{}", answer.heads);
        assert!(answer.body == bytes, "{} bytes came back", answer.body.len());
    }
    server.stop();
}

#[test]
fn a_body_that_is_too_long_is_refused_whether_curl_sends_it_at_once_or_not() {
    if !are_installed(&["curl"]) {
        return;
    }
    let server = HttpExample::start(&["--max-body", "1000"]);
    let files = Files::new();
    let (path, _) = large_file(&files);
    for expectation in ["Expect: 100-continue", "Expect:"] {
        let data = format!("@{path}");
        let answer = curl(&["--header", expectation, "--data-binary", &data, &server.url("/")]);
        assert!(answer.heads.contains("< HTTP/1.1 413"), "{}", answer.heads);
        assert!(!answer.heads.contains("100 Continue"), "{}", answer.heads);
    }
    server.stop();
}

#[test]
fn one_connection_serves_several_urls_and_methods() {
    if !are_installed(&["curl"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let (root, empty, none) = (server.url("/"), server.url("/empty"), server.url("/none"));
    let report = ["--write-out", "%{http_code} %{num_connects},"];
    let answer = curl(&[&report[..], &[&root, &empty, &none, &root]].concat());
    let text = String::from_utf8(answer.body).unwrap();
    assert_eq!(text, "Hello, World!\n200 1,204 0,404 Not Found\n404 0,Hello, World!\n200 0,");
    let answer = curl(&[&report[..], &["--head", &root, &root]].concat());
    assert_eq!(answer.heads.matches("< Content-Length: 14\n").count(), 2, "{}", answer.heads);
    assert!(String::from_utf8(answer.body).unwrap().ends_with("\r\n\r\n200 0,"));
    // HTTP/1.0 without keep-alive: the connection closes.
    let answer = curl(&[&report[..], &["--http1.0", &root, &root]].concat());
    assert_eq!(answer.body, b"Hello, World!\n200 1,Hello, World!\n200 1,");
    server.stop();
}

#[test]
fn events_arrive_one_by_one() {
    if !are_installed(&["curl"]) {
        return;
    }
    let server = HttpExample::start(&[]);
    let mut curl = Process::start(&["curl", "--silent", "--no-buffer", &server.url("/clock")]);
    for second in 0..2 {
        curl.stdout.wait_for("event: tick");
        curl.stdout.wait_for(&format!("data: {second} s"));
    }
}
