//! The PROXY protocol over sockets.

use crate::support::{
    logs,
    loops::{metrics, some_turns, turn_until},
    tcp::{ANY_PORT, ask, connect, read_all},
    wait::PATIENCE,
};
use bytes::Bytes;
use netwheel::{
    admission::{Admission, IpFilter, IpRule},
    codec::Line,
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    proxy::{ProxyHeader, ProxyProtocol},
};
use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr},
    time::Duration,
};

const CLIENT: &str = "192.0.2.7:4321";

fn header(client: &str) -> Vec<u8> {
    let (client, server): (SocketAddr, SocketAddr) =
        (client.parse().unwrap(), "198.51.100.1:443".parse().unwrap());
    let mut bytes = Vec::new();
    ProxyHeader::v2(client, server).crc32c().unwrap().encode(&mut bytes);
    bytes
}

fn local() -> ProxyProtocol {
    ProxyProtocol::required().trust("127.0.0.0/8").unwrap()
}

/// Answers each line with the peer's addresses, as the factory, the context and a handle see them.
fn serve(group: &EventLoopGroup, set: impl FnOnce(ServerBootstrap) -> ServerBootstrap) -> Server<SocketAddr> {
    set(ServerBootstrap::new(group))
        .pipeline(|peer| {
            let of_factory = peer.address();
            Pipeline::codec(Line::new()).on_read(move |ctx, _: Bytes| {
                let seen = [of_factory, ctx.peer_address(), ctx.channel().peer_address()];
                let [first, second, third] = seen.map(|address| address.unwrap());
                assert!(first == second && second == third);
                ctx.write(first.to_string().into())
            })
        })
        .bind(ANY_PORT.parse::<SocketAddr>().unwrap())
        .unwrap()
}

fn group() -> EventLoopGroup {
    EventLoopGroup::builder().threads(1).build().unwrap()
}

/// H-22: the data behind the header reaches the codec.
#[test]
fn a_header_and_data_in_one_segment_give_the_announced_address_and_the_data() {
    let group = group();
    let server = serve(&group, |server| server.proxy_protocol(local()));
    let mut stream = connect(server.local_address());
    stream.write_all(&[header(CLIENT), b"who\n".to_vec()].concat()).unwrap();
    ask(&mut stream, "", &format!("{CLIENT}\n"));
    let mut stream = connect(server.local_address());
    stream.write_all(b"PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\r\nwho\n").unwrap();
    ask(&mut stream, "", &format!("{CLIENT}\n"));
}

/// S-27.
#[test]
fn local_and_unknown_headers_leave_the_real_address() {
    let group = group();
    let server = serve(&group, |server| server.proxy_protocol(local()));
    let mut local = Vec::new();
    ProxyHeader::v2_local().encode(&mut local);
    for header in [local, b"PROXY UNKNOWN\r\n".to_vec()] {
        let mut stream = connect(server.local_address());
        stream.write_all(&[header, b"who\n".to_vec()].concat()).unwrap();
        let own = stream.local_addr().unwrap();
        ask(&mut stream, "", &format!("{own}\n"));
    }
}

/// H-23: bytes that are not a header.
#[test]
fn a_connection_without_a_header_is_closed_and_gets_no_pipeline() {
    let group = group();
    let server = serve(&group, |server| server.proxy_protocol(local()));
    let mut stream = connect(server.local_address());
    stream.write_all(b"who\nthis is no header\n").unwrap();
    let mut rest = Vec::new();
    // The unread rest may cause a reset.
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    turn_until(&group, |metrics| metrics.handshakes_failed == 1);
}

#[test]
fn a_header_that_never_comes_ends_the_connection() {
    let group = group();
    let timeout = Duration::from_millis(50);
    let server = serve(&group, |server| server.proxy_protocol(local()).handshake_timeout(timeout));
    let mut stream = connect(server.local_address());
    stream.write_all(b"PROXY TCP4").unwrap();
    assert_eq!(read_all(&mut stream), b"");
    turn_until(&group, |metrics| metrics.handshakes_timed_out == 1);
}

/// S-25.
#[test]
fn an_untrusted_peer_is_refused_or_taken_as_it_is_and_its_bytes_are_never_a_header() {
    let group = group();
    let elsewhere = || "203.0.113.0/24";
    let required = ProxyProtocol::required().trust(elsewhere()).unwrap();
    let server = serve(&group, |server| server.proxy_protocol(required));
    let mut stream = connect(server.local_address());
    stream.write_all(&header(CLIENT)).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert_eq!(rest, b"");

    let optional = ProxyProtocol::optional().trust(elsewhere()).unwrap();
    let server = serve(&group, |server| server.proxy_protocol(optional));
    let mut stream = connect(server.local_address());
    let own = stream.local_addr().unwrap();
    ask(&mut stream, "PROXY TCP4 192.0.2.7 198.51.100.1 4321 443\n", &format!("{own}\n"));
}

/// S-27.
#[test]
fn the_filter_of_addresses_decides_about_the_announced_one() {
    let group = group();
    let filter = IpFilter::new([IpRule::deny("192.0.2.0/24").unwrap(), IpRule::deny("127.0.0.0/8").unwrap()]);
    let server =
        serve(&group, |server| server.proxy_protocol(local()).admission(Admission::new().ip_filter(filter)));
    // The balancer's own address is denied, and its connections are not refused for that.
    let mut allowed = connect(server.local_address());
    allowed.write_all(&[header("198.51.100.9:1"), b"who\n".to_vec()].concat()).unwrap();
    ask(&mut allowed, "", "198.51.100.9:1\n");
    let mut denied = connect(server.local_address());
    denied.write_all(&[header(CLIENT), b"who\n".to_vec()].concat()).unwrap();
    let mut rest = Vec::new();
    let _ = denied.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    turn_until(&group, |metrics| metrics.rejected_filter == 1);
}

/// A client that keeps its end open does not linger in the place of another one.
#[test]
fn a_denied_client_is_logged_and_gives_up_its_place_at_once() {
    logs::collect();
    let group = EventLoopGroup::builder().name("announced").threads(1).build().unwrap();
    let filter = IpFilter::new([IpRule::deny("192.0.2.0/24").unwrap()]);
    let server = serve(&group, |server| {
        server.proxy_protocol(local()).admission(Admission::new().ip_filter(filter).max_connections(1))
    });
    let mut denied = connect(server.local_address());
    denied.write_all(&header(CLIENT)).unwrap();
    turn_until(&group, |metrics| metrics.rejected_filter == 1 && metrics.channels == 0);
    some_turns(&group);
    assert_eq!(metrics(&group).lingering, 0);
    let line =
        format!("INFO announced-0: a connection from {CLIENT} was rejected: filter rule: deny 192.0.2.0/24");
    assert_eq!(logs::lines_with("announced-0"), [line]);
    let mut allowed = connect(server.local_address());
    allowed.write_all(&[header("198.51.100.9:1"), b"who\n".to_vec()].concat()).unwrap();
    ask(&mut allowed, "", "198.51.100.9:1\n");
}

/// S-27.
#[test]
fn the_limit_per_address_counts_announced_addresses_and_not_the_balancer() {
    let group = group();
    let server = serve(&group, |server| {
        server.proxy_protocol(local()).admission(Admission::new().max_connections_per_ip(2))
    });
    let open = |client: &str| {
        let mut stream = connect(server.local_address());
        stream.write_all(&[header(client), b"who\n".to_vec()].concat()).unwrap();
        stream
    };
    let clients = ["192.0.2.1:1", "192.0.2.1:2", "192.0.2.2:1", "192.0.2.2:2", "192.0.2.3:1"];
    let mut streams = clients.map(open);
    for (stream, client) in streams.iter_mut().zip(clients) {
        ask(stream, "", &format!("{client}\n"));
    }
    let mut third = open("192.0.2.1:3");
    let mut rest = Vec::new();
    let _ = third.read_to_end(&mut rest);
    assert_eq!(rest, b"");
    // The place of a closed connection is free again.
    let [first, ..] = streams;
    let channels = metrics(&group).channels;
    drop((first, third));
    turn_until(&group, |metrics| metrics.channels < channels && metrics.lingering == 0);
    ask(&mut open("192.0.2.1:4"), "", "192.0.2.1:4\n");
}

#[test]
fn a_client_announces_addresses_before_everything_else() {
    let group = group();
    let server = serve(&group, |server| server.proxy_protocol(local()));
    let (sender, lines) = std::sync::mpsc::channel();
    let client = ClientBootstrap::new(&group)
        .proxy_protocol(|_| ProxyHeader::v1(CLIENT.parse().unwrap(), "198.51.100.1:443".parse().unwrap()))
        .pipeline(move |_| {
            let sender = sender.clone();
            Pipeline::codec(Line::new()).on_read(move |_, line: Bytes| {
                sender.send(String::from_utf8_lossy(&line).into_owned()).map_err(Error::other)
            })
        });
    let channel = client.connect(server.local_address()).wait().unwrap();
    channel.write("who".into()).unwrap();
    assert_eq!(lines.recv_timeout(PATIENCE).unwrap(), CLIENT);
}

/// The header and the first message of TLS in one segment: the address is checked before TLS
/// answers.
/// S-27.
#[cfg(feature = "tls")]
#[test]
fn a_client_hello_behind_the_header_of_a_denied_address_is_not_answered() {
    use crate::support::tls_peer;
    let group = group();
    let filter = IpFilter::new([IpRule::deny("192.0.2.0/24").unwrap()]);
    let (certificate, config) = tls_peer::settings();
    let server = serve(&group, |server| {
        let tls = netwheel::tls::TlsServer::builder(certificate).build().unwrap();
        server.proxy_protocol(local()).tls(tls).admission(Admission::new().ip_filter(filter))
    });
    let hello = |client: &mut rustls::ClientConnection, address: &str| {
        let mut segment = header(address);
        client.write_tls(&mut segment).unwrap();
        let mut stream = connect(server.local_address());
        stream.write_all(&segment).unwrap();
        stream
    };
    let mut denied = hello(&mut tls_peer::client(&config), CLIENT);
    let mut answer = Vec::new();
    // The unread message may cause a reset.
    let _ = denied.read_to_end(&mut answer);
    assert_eq!(answer, b"");
    turn_until(&group, |metrics| (metrics.rejected_filter, metrics.handshakes_failed) == (1, 1));

    let mut client = tls_peer::client(&config);
    let mut stream = hello(&mut client, "198.51.100.9:1");
    ask(&mut rustls::Stream::new(&mut client, &mut stream), "who\n", "198.51.100.9:1\n");
}

/// Flips bits in both directions.
struct Flip;

impl Filter for Flip {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        input.iter_mut().for_each(|byte| *byte ^= 0x55);
        ctx.deliver(input);
        Ok(input.len())
    }
    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend(plain.iter().map(|byte| byte ^ 0x55));
        Ok(())
    }
    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }
    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn a_header_is_in_plaintext_below_a_filter_that_was_added_before() {
    let flip = |text: &str| text.bytes().map(|byte| byte ^ 0x55).collect::<Vec<u8>>();
    let group = group();
    let server = serve(&group, |server| server.filter(|_| Flip).proxy_protocol(local()));
    let mut stream = connect(server.local_address());
    stream.write_all(&[header(CLIENT), flip("who\n")].concat()).unwrap();
    let expected = flip(&format!("{CLIENT}\n"));
    let mut answer = vec![0; expected.len()];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(answer, expected);
}

#[test]
fn settings_that_trust_nobody_are_refused_when_the_server_is_bound() {
    let group = group();
    let server = ServerBootstrap::new(&group)
        .proxy_protocol(ProxyProtocol::required())
        .pipeline(|_| Pipeline::codec(Line::new()).on_read(|_, _: Bytes| Ok(())));
    let refused = server.bind(ANY_PORT.parse::<SocketAddr>().unwrap()).map(drop);
    assert!(matches!(refused, Err(Error::Setting(setting)) if setting.setting() == "trust"));
}
