//! `openssl s_client` against a server with a certificate for each of several hosts (SNI).

use crate::{
    interop::{files::Files, tls_echo::self_signed},
    support::{
        process::{Process, are_installed},
        tcp::ANY_PORT,
    },
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    tls::{TlsCertificate, TlsServer},
};
use std::net::SocketAddr;

#[test]
fn the_named_host_selects_the_certificate_and_unknown_hosts_are_refused() {
    if !are_installed(&["openssl"]) {
        return;
    }
    let files = Files::new();
    let hosts = ["one.example", "two.example"].map(|host| (host, self_signed(&files, host)));
    let read = |(chain, key): &(String, String)| TlsCertificate::from_pem_files(chain, key).unwrap();
    let tls = TlsServer::builder(read(&hosts[0].1))
        .host(hosts[0].0, read(&hosts[0].1))
        .host(hosts[1].0, read(&hosts[1].1))
        .known_hosts_only(true)
        .build()
        .unwrap();
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let server = ServerBootstrap::new(&group)
        .tls(tls)
        .pipeline(|peer| {
            let name = peer.tls().and_then(|tls| tls.server_name()).unwrap_or("no name").to_owned();
            Pipeline::codec(Line::new()).on_read(move |ctx, line: Bytes| {
                ctx.write(format!("{name}: {}", String::from_utf8_lossy(&line)).into())
            })
        })
        .bind(ANY_PORT.parse::<SocketAddr>().unwrap())
        .unwrap();
    let address = server.local_address().to_string();
    let connect = |certificate: &str, name: &[&str]| {
        let command = ["openssl", "s_client", "-connect", &address, "-CAfile", certificate];
        Process::start(&[&command, name, &["-verify_return_error", "-quiet", "-no_ign_eof"]].concat())
    };
    for (host, (certificate, _)) in &hosts {
        let mut client = connect(certificate, &["-servername", host, "-verify_hostname", host]);
        client.say("hello\n");
        client.stdout.wait_for(&format!("{host}: hello"));
        client.succeed();
    }
    let (_, (certificate, _)) = &hosts[0];
    let mut client = connect(certificate, &["-noservername"]);
    client.say("hello\n");
    client.stdout.wait_for("no name: hello");
    client.succeed();
    let mut client = connect(certificate, &["-servername", "three.example"]);
    client.stderr.wait_for("unrecognized name");
}
