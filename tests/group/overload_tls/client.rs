//! A client over TLS and WebSocket that uses rustls and tungstenite.

use crate::support::{tcp::connect, tls_peer, wait::receive};
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::{
    io::{Read, Write},
    net::SocketAddr,
    sync::{
        Arc,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};
use tungstenite::{WebSocket, protocol::Role};

const UPGRADE: &str = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
    Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";

pub(super) type Answer = Result<tungstenite::Message, String>;

/// A client with a WebSocket over TLS, on a thread of its own. It sends messages on command, and
/// returns the message that follows each of them.
pub(super) struct Client {
    commands: Sender<tungstenite::Message>,
    pub(super) answers: Receiver<Answer>,
    /// Reports each command that the kernel has accepted.
    sent: Receiver<()>,
}

impl Client {
    /// Connects. The first answer is an empty text if the handshakes have succeeded.
    pub(super) fn start(address: SocketAddr, config: &Arc<ClientConfig>) -> Self {
        let (commands, received) = channel();
        let (answer, answers) = channel();
        let (report, sent) = channel();
        let tls = tls_peer::client(config);
        thread::spawn(move || {
            if let Err(error) = talk(tls, address, &received, &answer, &report) {
                // Nobody receives it after the end of the test.
                let _ = answer.send(Err(error));
            }
        });
        Client { commands, answers, sent }
    }

    /// Sends a message. It has arrived at the server when this returns.
    #[track_caller]
    pub(super) fn command(&self, message: tungstenite::Message) {
        self.commands.send(message).unwrap();
        receive(&self.sent);
    }
}

fn talk(
    tls: ClientConnection,
    address: SocketAddr,
    commands: &Receiver<tungstenite::Message>,
    answers: &Sender<Answer>,
    sent: &Sender<()>,
) -> Result<(), String> {
    let mut stream = StreamOwned::new(tls, connect(address));
    stream.write_all(UPGRADE.as_bytes()).map_err(|e| format!("{:?}", e.kind()))?;
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).map_err(|e| format!("{:?}", e.kind()))?;
        head.push(byte[0]);
    }
    assert!(head.starts_with(b"HTTP/1.1 101 "));
    let mut socket = WebSocket::from_raw_socket(stream, Role::Client, None);
    let _ = answers.send(Ok(String::new().into()));
    for command in commands {
        socket.send(command).map_err(|e| e.to_string())?;
        let _ = sent.send(());
        let answer = socket.read().map_err(|e| e.to_string())?;
        let _ = answers.send(Ok(answer));
    }
    Ok(())
}
