//! The Autobahn cases for WebSocket, run by kosoku, against the example `ws_echo` and our client.

use crate::{
    interop::files::Files,
    support::{
        process::{Process, example, skip},
        tcp::ANY_PORT,
        wait::{done, receive},
    },
};
use netwheel::{
    channel::CloseCause,
    prelude::*,
    websocket::{Deflate, Message, WebSocketClient, WebSocketSettings},
};
use std::{
    process::Command,
    sync::mpsc::{Sender, channel},
};

/// The sections that take seconds, and some cases of the others. docs/websocket.md has the results
/// of all cases.
const CASES: [&str; 11] =
    ["1.*", "2.*", "3.*", "4.*", "5.*", "6.*", "7.*", "10.*", "12.1.3", "12.1.4", "13.*.3"];

/// Returns whether a module of Python is installed. If not, the test is skipped, except in CI.
pub(crate) fn has_module(module: &str) -> bool {
    let found = Command::new("python3").args(["-c", &format!("import {module}")]).output();
    let installed = found.is_ok_and(|found| found.status.success());
    if !installed {
        skip(&format!("the Python module {module} is not installed"));
    }
    installed
}

/// A running `ws_echo`.
pub(crate) struct WsEcho {
    process: Process,
    pub(crate) address: String,
}

impl WsEcho {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let program = example("ws_echo");
        let own = [program.to_str().unwrap(), "--listen", ANY_PORT];
        let mut process = Process::start(&[&own, arguments].concat());
        let port = process.stdout.wait_for("listening on 127.0.0.1:");
        WsEcho { process, address: format!("127.0.0.1:{port}") }
    }

    /// Interrupts the server, which must end with success.
    #[track_caller]
    pub(crate) fn stop(self) {
        self.process.signal("INT");
        self.process.succeed();
    }
}

fn kosoku(mode: &str, address: &str, directory: &str) -> Process {
    let mut command =
        vec!["python3", "-u", "-c", "import sys; from kosoku._cli import main; sys.exit(main())"];
    command.extend(["-m", mode, "-p", "4", "-o", directory, address]);
    command.extend(CASES.iter().flat_map(|case| ["-i", case]));
    Process::start(&command)
}

/// Asserts that all cases of a report have passed.
#[track_caller]
fn all_passed(directory: &str) {
    let index = std::fs::read_to_string(format!("{directory}/index.json")).unwrap();
    let index: serde_json::Value = serde_json::from_str(&index).unwrap();
    let cases = index.as_object().unwrap().values().next().expect("one agent");
    let cases = cases.as_object().unwrap();
    assert!(cases.len() > 250, "{} cases", cases.len());
    for (case, result) in cases {
        for kind in ["behavior", "behaviorClose"] {
            // Some cases only record the behaviour of an implementation.
            let passed = matches!(result[kind].as_str(), Some("OK" | "INFORMATIONAL"));
            assert!(passed, "case {case}: {result}");
        }
    }
}

#[test]
fn our_server_passes_the_autobahn_cases() {
    if !has_module("kosoku") {
        return;
    }
    let server = WsEcho::start(&[]);
    let files = Files::new();
    let directory = files.path("reports");
    kosoku("fuzzingclient", &server.address, &directory).succeed();
    all_passed(&directory);
    server.stop();
}

/// Echoes data, and reports texts.
struct Echo(Option<Sender<String>>);

impl Handler for Echo {
    type Read = Message;
    type Write = Message;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        match (message, &self.0) {
            (Message::Text(text), Some(texts)) => texts.send(text.to_string()).map_err(Error::other),
            (message, _) if message.is_control() => Ok(()),
            (message, _) => ctx.write(message),
        }
    }
}

/// Connects to a target of a server. The completion is for the end of the connection.
fn visit(
    group: &EventLoopGroup,
    address: &str,
    target: &str,
    texts: Option<Sender<String>>,
) -> Completion<CloseCause> {
    let settings = WebSocketSettings::new().max_message(16 << 20);
    let client = WebSocketClient::new(address).with(settings).unwrap().deflate(Deflate::new()).unwrap();
    let connected = ClientBootstrap::new(group)
        .websocket(client, target, move |accepted| accepted.into_parts().1.handler(Echo(texts.clone())))
        .connect(address);
    done(connected).unwrap().closed()
}

#[test]
fn our_client_passes_the_autobahn_cases() {
    if !has_module("kosoku") {
        return;
    }
    let files = Files::new();
    let directory = files.path("reports");
    let mut server = kosoku("fuzzingserver", ANY_PORT, &directory);
    let address = server.stderr.wait_for("listening on ws://");
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (texts, text) = channel();
    done(visit(&group, &address, "/getCaseCount", Some(texts))).unwrap();
    let count: usize = receive(&text).parse().unwrap();
    let cases: Vec<usize> = (1..=count).collect();
    // Some cases wait for seconds.
    for cases in cases.chunks(32) {
        let run =
            |case: &usize| visit(&group, &address, &format!("/runCase?case={case}&agent=netwheel"), None);
        let running: Vec<_> = cases.iter().map(run).collect();
        for closed in running {
            done(closed).unwrap();
        }
    }
    done(visit(&group, &address, "/updateReports?agent=netwheel", None)).unwrap();
    server.succeed();
    all_passed(&directory);
}
