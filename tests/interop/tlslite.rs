//! A misbehaving client, written with tlslite-ng, against our server.

use crate::{
    interop::tls_echo::TlsEcho,
    support::process::{Process, skip},
};
use std::process::Command;

/// What each script starts with: a connected client, for the version in the second argument.
const BEGIN: &str = r#"
import socket, sys
from tlslite.api import TLSConnection, HandshakeSettings
from tlslite.constants import ContentType, AlertLevel, AlertDescription
from tlslite.errors import TLSAbruptCloseError, TLSRemoteAlert
from tlslite.messages import Alert, ApplicationData, ClientHello
settings = HandshakeSettings()
settings.minVersion = settings.maxVersion = (3, int(sys.argv[2]))
stream = socket.create_connection(("127.0.0.1", int(sys.argv[1])), 60)
client = TLSConnection(stream)
client.handshakeClientCert(settings=settings, serverName="localhost")
client.sendall(b"hello\n")
assert client.recv(6) == b"hello\n"
"#;

/// Runs a script for TLS 1.2 and TLS 1.3, or only for the first. The script prints `expected`.
fn run(server: &TlsEcho, versions: &[&str], script: &str, expected: &str) {
    for version in versions {
        let program = format!("{BEGIN}{script}");
        let mut client = Process::start(&["python3", "-c", &program, &server.port, version]);
        client.stdout.wait_for(expected);
        client.succeed();
    }
}

const TLS_1_2: &str = "3";
const TLS_1_3: &str = "4";

fn is_installed() -> bool {
    let found = Command::new("python3").args(["-c", "import tlslite"]).output();
    let installed = found.is_ok_and(|found| found.status.success());
    if !installed {
        skip("tlslite-ng is not installed");
    }
    installed
}

/// S-13.
#[test]
fn an_altered_record_is_answered_with_bad_record_mac_and_echoes_nothing() {
    if !is_installed() {
        return;
    }
    let server = TlsEcho::start(&[]);
    let script = r#"
# A whole record with one bit changed on the wire.
class Altering:
    def __init__(self, inner): self.inner = inner
    def send(self, data):
        data = bytearray(data); data[-1] ^= 1
        return self.inner.send(bytes(data))
    def __getattr__(self, name): return getattr(self.inner, name)
client._recordLayer._recordSocket.sock = Altering(client._recordLayer._recordSocket.sock)
client.sendall(b"secret\n")
try:
    print("received", client.recv(10))
except TLSRemoteAlert as alert:
    print("alert", alert.description == AlertDescription.bad_record_mac)
"#;
    run(&server, &[TLS_1_2, TLS_1_3], script, "alert True");
    server.stop();
}

#[test]
fn a_missing_close_notify_ends_the_connection() {
    if !is_installed() {
        return;
    }
    let server = TlsEcho::start(&[]);
    let script = r#"
stream.shutdown(socket.SHUT_WR)
try:
    print("received", client.recv(10))
except (TLSAbruptCloseError, ConnectionResetError):
    print("ended without close_notify")
except TLSRemoteAlert as alert:
    print("ended with an alert")
"#;
    run(&server, &[TLS_1_2, TLS_1_3], script, "");
    server.stop();
}

#[test]
fn close_notify_is_answered_with_close_notify() {
    if !is_installed() {
        return;
    }
    let server = TlsEcho::start(&[]);
    let script = r#"
client.closeSocket = False
client.sendall(b"last\n")
for _ in client._sendMsg(Alert().create(AlertDescription.close_notify, AlertLevel.warning)): pass
assert client.recv(5) == b"last\n"
print("then", client.recv(10))
"#;
    run(&server, &[TLS_1_2, TLS_1_3], script, "then b''");
    server.stop();
}

/// S-11.
#[test]
fn renegotiation_is_refused() {
    if !is_installed() {
        return;
    }
    let server = TlsEcho::start(&[]);
    let script = r#"
hello = ClientHello().create((3, 3), bytearray(32), bytearray(0), [0xC02B, 0xC02F])
for _ in client._sendMsg(hello): pass
try:
    client.sendall(b"after\n")
    print("received", client.recv(10))
except TLSRemoteAlert as alert:
    print("alert", alert.description == AlertDescription.no_renegotiation
          or alert.description == AlertDescription.unexpected_message)
"#;
    run(&server, &[TLS_1_2], script, "alert True");
    server.stop();
}
