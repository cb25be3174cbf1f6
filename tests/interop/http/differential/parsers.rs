//! The parsers h11 and httptools (llhttp), from Python.

use crate::{interop::files::Files, support::process::skip};
use serde::Deserialize;
use std::{
    fs,
    io::{BufWriter, Write},
    process::{Child, Command, Stdio},
};

/// What a parser makes of a stream of bytes. Bytes are Latin-1.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Reading {
    pub(crate) requests: Vec<Seen>,
    pub(crate) end: End,
    /// Why the parser refuses the rest.
    pub(crate) reason: String,
}

/// A request. It is not complete if the stream ends, or is refused, within its body.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(crate) struct Seen {
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) trailers: Vec<(String, String)>,
    pub(crate) is_complete: bool,
}

/// How a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum End {
    /// More bytes may follow.
    Waiting,
    /// The last request ends the connection.
    Closed,
    Refused,
    /// The parser ignores the rest.
    Unknown,
}

/// The readings of one stream.
#[derive(Debug, Deserialize)]
pub(crate) struct Readings {
    pub(crate) h11: Reading,
    pub(crate) llhttp: Reading,
}

/// Returns whether the parsers are installed. If not, the test is skipped, except in CI.
pub(crate) fn are_parsers_installed() -> bool {
    let found = Command::new("python3").args(["-c", "import h11, httptools"]).output();
    let installed = found.is_ok_and(|found| found.status.success());
    if !installed {
        skip("h11 and httptools are not installed");
    }
    installed
}

/// A process that parses streams.
pub(crate) struct Parsers {
    process: Child,
    files: Files,
}

impl Parsers {
    /// Begins to parse the streams.
    pub(crate) fn start<'a>(streams: impl Iterator<Item = &'a [u8]>) -> Self {
        let files = Files::new();
        let path = files.path("streams");
        let mut file = BufWriter::new(fs::File::create(&path).unwrap());
        for stream in streams {
            file.write_all(&u32::try_from(stream.len()).unwrap().to_be_bytes()).unwrap();
            file.write_all(stream).unwrap();
        }
        file.into_inner().unwrap();
        let process = Command::new("python3")
            .args(["-c", include_str!("parsers.py"), &path, &files.path("results")])
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        Parsers { process, files }
    }

    /// Waits for the readings of all streams.
    pub(crate) fn finish(self) -> Vec<Readings> {
        let output = self.process.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let results = fs::read_to_string(self.files.path("results")).unwrap();
        results.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}
