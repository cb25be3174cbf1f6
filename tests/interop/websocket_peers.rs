//! Other implementations of WebSocket, both ways and with compression: websockets for Python, and
//! ws for Node.js.

use crate::{
    interop::websocket::{WsEcho, has_module},
    support::{
        process::{Process, are_installed, skip},
        wait::{done, receive},
    },
};
use netwheel::{
    prelude::*,
    websocket::{CloseCode, Deflate, Message, WebSocketClient},
};
use std::{
    process::Command,
    sync::mpsc::{Sender, channel},
};

/// A client of websockets: compressed and long messages, fragments, a ping, a close code.
const PYTHON_CLIENT: &str = r#"
import sys
from websockets.sync.client import connect
for compression in ("deflate", None):
    with connect(f"ws://{sys.argv[1]}/", compression=compression, max_size=None) as ws:
        extensions = [e.name for e in ws.protocol.extensions]
        assert extensions == (["permessage-deflate"] if compression else []), extensions
        for message in ["short", "", "κόσμε " * 1000, b"\x00\xff" * 100_000, "x" * 126]:
            ws.send(message)
            assert ws.recv() == message
        ws.send(["one ", "two ", "three"])
        assert ws.recv() == "one two three"
        assert ws.ping("payload").wait(30)
        ws.close(4001, "bye")
        assert (ws.close_code, ws.close_reason) == (4001, ""), (ws.close_code, ws.close_reason)
print("passed")
"#;

/// A server of websockets, which echoes.
const PYTHON_SERVER: &str = r#"
from websockets.exceptions import ConnectionClosed
from websockets.sync.server import serve
def echo(ws):
    assert [e.name for e in ws.protocol.extensions] == ["permessage-deflate"]
    try:
        while True:
            ws.send(ws.recv())
    except ConnectionClosed as closed:
        print("closed", closed.rcvd.code, closed.rcvd.reason)
with serve(echo, "127.0.0.1", 0, max_size=None) as server:
    print("listening on", "127.0.0.1:%d" % server.socket.getsockname()[1])
    server.serve_forever()
"#;

/// A client of ws.
const NODE_CLIENT: &str = r#"
const { WebSocket } = require("ws");
const run = (deflate) => new Promise((resolve) => {
  const ws = new WebSocket(`ws://${process.argv[1]}/`, { perMessageDeflate: deflate });
  const messages = ["short", "", "κόσμε ".repeat(1000), Buffer.alloc(200000, 7), "x".repeat(126)];
  let n = 0, ponged = false;
  ws.on("open", () => {
    if ((ws.extensions === "permessage-deflate") !== deflate) throw new Error(ws.extensions);
    ws.ping("payload");
    ws.send(messages[0]);
  });
  ws.on("pong", (data) => { ponged = data.toString() === "payload"; });
  ws.on("message", (data, binary) => {
    const sent = messages[n++];
    if (binary !== (typeof sent !== "string") || !data.equals(Buffer.from(sent))) throw new Error(`message ${n}`);
    if (n < messages.length) ws.send(messages[n]); else ws.close(4001, "bye");
  });
  ws.on("close", (code) => {
    if (code !== 4001 || !ponged) throw new Error(`close ${code}`);
    resolve();
  });
});
run(true).then(() => run(false)).then(() => console.log("passed"));
"#;

/// A server of ws, which echoes.
const NODE_SERVER: &str = r#"
const { WebSocketServer } = require("ws");
const server = new WebSocketServer({ host: "127.0.0.1", port: 0, perMessageDeflate: true });
server.on("connection", (ws) => {
  if (ws.extensions !== "permessage-deflate") throw new Error(ws.extensions);
  ws.on("message", (data, binary) => ws.send(data, { binary }));
  ws.on("close", (code, reason) => console.log("closed", code, reason.toString()));
});
server.on("listening", () => console.log("listening on", `127.0.0.1:${server.address().port}`));
"#;

/// Returns the command that runs a program with the packages that npm has installed globally.
fn node(program: &str) -> Option<Vec<String>> {
    if !are_installed(&["node", "npm"]) {
        return None;
    }
    let root = Command::new("npm").args(["root", "-g"]).output().unwrap();
    let modules = String::from_utf8(root.stdout).unwrap();
    let environment = format!("NODE_PATH={}", modules.trim());
    let found = Command::new("env").args([&environment, "node", "-e", "require('ws')"]).output();
    if !found.is_ok_and(|found| found.status.success()) {
        skip("the npm package ws is not installed");
        return None;
    }
    Some(["env", &environment, "node", "-e", program].map(str::to_owned).to_vec())
}

/// Sends messages one after the other, reports the echoes, and closes the connection.
struct Talk {
    left: Vec<Message>,
    echoes: Sender<Message>,
}

impl Talk {
    fn next(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(self.left.pop().unwrap_or_else(|| Message::close(CloseCode::new(4001), "bye")))
    }
}

impl Handler for Talk {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.next(ctx)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Message) -> Result {
        let is_last = matches!(message, Message::Close(_));
        self.echoes.send(message).map_err(Error::other)?;
        if is_last { Ok(()) } else { self.next(ctx) }
    }
}

/// Talks to an echo server, which reports the close.
fn talk_to(mut server: Process) {
    let address = server.stdout.wait_for("listening on ");
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let messages = [
        Message::text("short"),
        Message::text(""),
        Message::text("κόσμε ".repeat(1000)),
        Message::binary(vec![7; 200_000]),
        Message::text("x".repeat(256)),
    ];
    let (echoes, received) = channel();
    let client = WebSocketClient::new(&address).deflate(Deflate::new()).unwrap();
    let left: Vec<Message> = messages.iter().rev().cloned().collect();
    let connected = ClientBootstrap::new(&group)
        .websocket(client, "/", move |accepted| {
            assert!(accepted.is_compressed());
            accepted.into_parts().1.handler(Talk { left: left.clone(), echoes: echoes.clone() })
        })
        .connect(&*address);
    let connection = done(connected).unwrap();
    for message in messages {
        assert_eq!(receive(&received), message);
    }
    let Message::Close(Some(frame)) = receive(&received) else { panic!("no Close frame") };
    assert_eq!(frame.code, CloseCode::new(4001));
    server.stdout.wait_for("closed 4001 bye");
    done(connection.closed()).unwrap();
}

#[test]
fn the_client_of_python_talks_to_our_server() {
    if !has_module("websockets") {
        return;
    }
    for arguments in [&[][..], &["--context-takeover"]] {
        let server = WsEcho::start(arguments);
        let mut client = Process::start(&["python3", "-c", PYTHON_CLIENT, &server.address]);
        client.stdout.wait_for("passed");
        client.succeed();
        server.stop();
    }
}

#[test]
fn our_client_talks_to_the_server_of_python() {
    if has_module("websockets") {
        talk_to(Process::start(&["python3", "-u", "-c", PYTHON_SERVER]));
    }
}

#[test]
fn the_client_of_node_talks_to_our_server() {
    let Some(mut command) = node(NODE_CLIENT) else { return };
    for arguments in [&[][..], &["--context-takeover"]] {
        let server = WsEcho::start(arguments);
        command.truncate(5);
        command.push(server.address.clone());
        let mut client = Process::start(&command);
        client.stdout.wait_for("passed");
        client.succeed();
        server.stop();
    }
}

#[test]
fn our_client_talks_to_the_server_of_node() {
    if let Some(command) = node(NODE_SERVER) {
        talk_to(Process::start(&command));
    }
}

#[test]
fn a_shutdown_closes_every_client_with_1001() {
    if !has_module("websockets") {
        return;
    }
    let server = WsEcho::start(&[]);
    let program = r#"
import sys
from websockets.sync.client import connect
from websockets.exceptions import ConnectionClosed
clients = [connect(f"ws://{sys.argv[1]}/") for _ in range(20)]
print("connected")
for ws in clients:
    try:
        ws.recv()
    except ConnectionClosed as closed:
        assert closed.rcvd.code == 1001, closed
print("passed")
"#;
    let mut clients = Process::start(&["python3", "-u", "-c", program, &server.address]);
    clients.stdout.wait_for("connected");
    server.stop();
    clients.stdout.wait_for("passed");
    clients.succeed();
}
