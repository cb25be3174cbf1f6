//! curl and haproxy announce their clients to our server.

use crate::{
    interop::files::Files,
    support::{
        process::{Process, are_installed},
        tcp::{ANY_PORT, ask, connect},
        wait::wait_until,
    },
};
use bytes::Bytes;
use netwheel::{
    codec::Line,
    prelude::*,
    proxy::{ProxyProtocol, ProxyVersion},
};
use std::net::{SocketAddr, TcpListener, TcpStream};

/// Answers each line with the announced address of the peer, the version of the header, and the
/// line.
fn serve(group: &EventLoopGroup) -> Server<SocketAddr> {
    ServerBootstrap::new(group)
        .proxy_protocol(ProxyProtocol::required().trust("127.0.0.0/8").unwrap())
        .pipeline(|peer| {
            let version = peer.proxy().map(|header| header.version());
            let address = peer.address().unwrap();
            Pipeline::codec(Line::new()).on_read(move |ctx, line: Bytes| {
                let line = String::from_utf8_lossy(&line);
                let version = if version == Some(ProxyVersion::V1) { 1 } else { 2 };
                ctx.write(format!("{address} v{version} {line}").into())
            })
        })
        .bind(ANY_PORT.parse::<SocketAddr>().unwrap())
        .unwrap()
}

#[test]
fn curl_sends_a_header() {
    if !are_installed(&["curl"]) {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let server = serve(&group);
    // The answer to its request line is taken for HTTP/0.9; it waits for the end otherwise.
    let mut curl = Process::start(&[
        "curl",
        "--silent",
        "--http0.9",
        "--no-buffer",
        "--haproxy-protocol",
        "--max-time",
        "30",
        &format!("http://{}/path", server.local_address()),
    ]);
    let answer = curl.stdout.wait_for("127.0.0.1:");
    assert!(answer.ends_with(" v1 GET /path HTTP/1.1"), "{answer}");
}

#[test]
fn haproxy_announces_its_clients_with_both_versions() {
    if !are_installed(&["haproxy"]) {
        return;
    }
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let server = serve(&group);
    for (option, version) in [("send-proxy", 1), ("send-proxy-v2", 2)] {
        let files = Files::new();
        // haproxy cannot report a port that the system has chosen. No other test uses this address.
        let front = TcpListener::bind("127.0.37.1:0").unwrap().local_addr().unwrap();
        let configuration = format!(
            "defaults\n mode tcp\n timeout connect 30s\n timeout client 60s\n timeout server 60s\n\
             listen front\n bind {front}\n server back {} {option}\n",
            server.local_address(),
        );
        let path = files.write("haproxy.cfg", &configuration);
        let haproxy = Process::start(&["haproxy", "-db", "-f", &path]);
        wait_until("haproxy listens", || TcpStream::connect(front).is_ok());
        let mut client = connect(front);
        let own = client.local_addr().unwrap();
        ask(&mut client, "hello\n", &format!("{own} v{version} hello\n"));
        drop(haproxy);
    }
}
