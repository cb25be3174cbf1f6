//! `openssl s_client` against our server, and our client against `openssl s_server`.

use crate::{
    interop::{
        files::Files,
        tls_echo::{TlsEcho, self_signed},
    },
    support::process::{Process, are_installed},
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    error::PeerError,
    prelude::*,
    tls::{TlsClient, TlsRoots, TlsVersion},
};
use std::sync::mpsc;

/// Starts a server, unless openssl is missing.
fn server(arguments: &[&str]) -> Option<TlsEcho> {
    are_installed(&["openssl"]).then(|| TlsEcho::start(arguments))
}

/// Starts a client that verifies the server's certificate.
fn s_client(server: &TlsEcho, options: &[&str]) -> Process {
    let address = server.address();
    let own = [
        "openssl",
        "s_client",
        "-connect",
        &address,
        "-CAfile",
        &server.certificate,
        "-servername",
        "localhost",
        "-verify_hostname",
        "localhost",
        "-verify_return_error",
    ];
    // `-quiet` would ignore the end of the input.
    Process::start(&[&own, options, &["-no_ign_eof"]].concat())
}

/// Sends a line and waits until it comes back. Lines that begin with k, K, Q or R are commands.
#[track_caller]
fn echo(client: &mut Process, line: &str) {
    client.say(&format!("{line}\n"));
    client.stdout.wait_for(line);
}

#[test]
fn both_versions_echo_and_end_cleanly() {
    let Some(server) = server(&[]) else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        let mut client = s_client(&server, &[version, "-quiet"]);
        echo(&mut client, "hello");
        client.succeed();
    }
    server.stop();
}

#[test]
fn tls_1_2_is_refused_where_tls_1_3_is_the_oldest_version() {
    let Some(server) = server(&["--min-version", "1.3"]) else { return };
    let mut client = s_client(&server, &["-tls1_2"]);
    client.stderr.wait_for("alert protocol version");
    echo(&mut s_client(&server, &["-tls1_3", "-quiet"]), "hello");
    server.stop();
}

#[test]
fn an_application_protocol_is_agreed_on_or_refused() {
    let Some(server) = server(&["--alpn", "chat,echo"]) else { return };
    let mut client = s_client(&server, &["-alpn", "other,echo"]);
    client.stdout.wait_for("ALPN protocol: echo");
    let mut client = s_client(&server, &["-alpn", "other"]);
    client.stderr.wait_for("alert no application protocol");
    let mut client = s_client(&server, &[]);
    client.stdout.wait_for("No ALPN negotiated");
    server.stop();
}

#[test]
fn a_session_is_resumed() {
    let Some(server) = server(&[]) else { return };
    for version in ["-tls1_2", "-tls1_3"] {
        let session = server.files.path("session");
        let mut client = s_client(&server, &[version, "-sess_out", &session]);
        client.stdout.wait_for("New, ");
        // The tickets of TLS 1.3 follow the handshake, before the echo.
        echo(&mut client, "first");
        client.succeed();
        let mut client = s_client(&server, &[version, "-sess_in", &session]);
        client.stdout.wait_for("Reused, ");
        echo(&mut client, "second");
        client.succeed();
    }
    server.stop();
}

#[test]
fn a_session_is_resumed_by_many_connections() {
    let Some(server) = server(&[]) else { return };
    // Five more connections with the session of the first one.
    let mut client = s_client(&server, &["-tls1_2", "-reconnect"]);
    for _ in 0..5 {
        client.stdout.wait_for("Reused, ");
    }
    echo(&mut client, "hello");
    client.succeed();
    server.stop();
}

#[test]
fn keys_are_updated_by_the_client_with_and_without_an_answer() {
    let Some(server) = server(&[]) else { return };
    let mut client = s_client(&server, &["-tls1_3"]);
    echo(&mut client, "before");
    // A line `k` updates the client's keys, and `K` asks for new keys of the server too.
    for command in ["k", "K", "K"] {
        client.say(&format!("{command}\n"));
        client.stderr.wait_for("KEYUPDATE");
        echo(&mut client, &format!("after {command}"));
    }
    client.succeed();
    server.stop();
}

#[test]
fn small_fragments_and_long_lines_come_back_whole() {
    let Some(server) = server(&[]) else { return };
    let mut client = s_client(&server, &["-quiet", "-max_send_frag", "512", "-split_send_frag", "512"]);
    let long = "x".repeat(100_000);
    client.say(&format!("{long}\n"));
    client.stdout.wait_for(&long);
    client.succeed();
    server.stop();
}

#[test]
fn client_certificates_are_required_or_optional() {
    if !are_installed(&["openssl"]) {
        return;
    }
    for optional in [false, true] {
        let files = Files::new();
        let (certificate, key) = self_signed(&files, "client.example");
        let (stranger, stranger_key) = self_signed(&files, "stranger.example");
        let mut arguments = vec!["--client-ca", &certificate];
        if optional {
            arguments.push("--client-cert-optional");
        }
        let server = TlsEcho::start_with(files, &arguments);
        let mut client = s_client(&server, &["-quiet", "-cert", &certificate, "-key", &key]);
        echo(&mut client, "member");
        client.succeed();
        let mut client = s_client(&server, &["-quiet"]);
        if optional {
            echo(&mut client, "nobody");
        } else {
            client.stderr.wait_for("alert certificate required");
        }
        let mut client = s_client(&server, &["-quiet", "-cert", &stranger, "-key", &stranger_key]);
        client.stderr.wait_for("alert");
        server.stop();
    }
}

#[test]
fn early_data_is_never_accepted() {
    let Some(server) = server(&[]) else { return };
    let (session, early) = (server.files.path("session"), server.files.write("early", "early\n"));
    let mut client = s_client(&server, &["-tls1_3", "-sess_out", &session]);
    echo(&mut client, "first");
    client.succeed();
    let mut client = s_client(&server, &["-tls1_3", "-sess_in", &session, "-early_data", &early]);
    client.stdout.wait_for("Early data was not sent");
    echo(&mut client, "second");
    let (rest, _) = client.succeed();
    assert!(!rest.contains("early\n"), "{rest}");
    server.stop();
}

#[test]
fn our_client_talks_to_s_server() {
    if !are_installed(&["openssl"]) {
        return;
    }
    let files = Files::new();
    let (certificate, key) = self_signed(&files, "localhost");
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    for (option, version) in [("-tls1_2", TlsVersion::Tls12), ("-tls1_3", TlsVersion::Tls13)] {
        // It sends each line back in reverse.
        let mut server = Process::start(&[
            "openssl",
            "s_server",
            "-accept",
            "127.0.0.1:0",
            "-cert",
            &certificate,
            "-key",
            &key,
            "-rev",
            option,
            "-alpn",
            "rev",
        ]);
        let address = server.stdout.wait_for("ACCEPT ");
        let (sender, lines) = mpsc::channel();
        let roots = TlsRoots::from_pem_file(&certificate).unwrap();
        let tls = TlsClient::builder(roots).server_name("localhost").alpn(["rev"]).build().unwrap();
        let client = ClientBootstrap::new(&group).tls(tls).pipeline(move |peer| {
            let sender = sender.clone();
            let info = peer.tls().unwrap();
            sender.send(format!("{:?} {:?}", info.version(), info.alpn_protocol())).unwrap();
            Pipeline::codec(Line::new()).on_read(move |_, line: Bytes| {
                sender.send(String::from_utf8_lossy(&line).into_owned()).map_err(Error::other)
            })
        });
        let channel = client.connect(address.trim()).wait().unwrap();
        assert_eq!(lines.recv().unwrap(), format!("{version:?} Some(\"rev\")"));
        channel.write("hello".into()).unwrap();
        assert_eq!(lines.recv().unwrap(), "olleh");
        channel.close();
        channel.closed().wait().unwrap();
    }
}

#[test]
fn our_client_refuses_a_server_of_another_name() {
    if !are_installed(&["openssl"]) {
        return;
    }
    let files = Files::new();
    let (certificate, key) = self_signed(&files, "other.example");
    let mut server = Process::start(&[
        "openssl",
        "s_server",
        "-accept",
        "127.0.0.1:0",
        "-cert",
        &certificate,
        "-key",
        &key,
    ]);
    let address = server.stdout.wait_for("ACCEPT ");
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let roots = TlsRoots::from_pem_file(&certificate).unwrap();
    let client = ClientBootstrap::new(&group)
        .tls(TlsClient::builder(roots).server_name("localhost").build().unwrap())
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|_, _: Bytes| Ok(())));
    let error = client.connect(address.trim()).wait().map(drop).unwrap_err();
    assert!(matches!(&error, Error::Peer(PeerError::Protocol { protocol: "TLS", .. })), "{error:#}");
    server.stderr.wait_for("alert");
}
