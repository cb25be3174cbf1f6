//! A server that limits its connections, behind a proxy that announces the addresses of others.
//!
//! No limit is exceeded, each rejected connection is reported and gets at most its farewell, and an
//! announced address counts instead of the proxy's.

use super::{
    kit::{Draw, MS, PATIENCE, Play, SECOND, lock},
    settings,
};
use bytes::Bytes;
use netwheel::{
    admission::{Admission, IpFilter, IpRule, RejectReason, Rejection},
    codec::Line,
    net::{ListenerOptions, TcpOptions},
    prelude::*,
    proxy::{ProxyHeader, ProxyProtocol},
    testing::simulation::{Failure, Simulation, sleep, sometimes},
};
use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

const CLIENTS: usize = 2;
/// The client that is a proxy.
const PROXY: &str = "10.0.0.2/32";
/// The farewell of the server.
const BUSY: &str = "busy";

/// The connections of the server. Clones share them.
#[derive(Clone)]
struct Desk {
    play: Play,
    limit: usize,
    limit_per_ip: usize,
    open: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    rejected: Arc<AtomicU64>,
}

pub(super) fn play(simulation: &mut Simulation, is_strict: bool) -> Result<(), Failure> {
    let play = Play::new(simulation, is_strict);
    let shared = play.clone();
    let server = simulation.node("server", "10.0.0.1", move || serve(&shared));
    let mut nodes = vec![server];
    for n in 2..2 + CLIENTS {
        let shared = play.clone();
        let run = move || client(&shared, n == 2);
        nodes.push(simulation.node(&format!("client-{n}"), &format!("10.0.0.{n}"), run));
    }
    play.run_amid_faults(simulation, 10 * SECOND)?;
    play.end(simulation, server, &nodes)
}

/// Returns an address that the proxy announces. The filter denies one of the networks.
fn announced(draw: &mut Draw) -> SocketAddr {
    let ip: IpAddr = match draw.below(4) {
        0 => [192, 168, 0, 1 + draw.below(2) as u8].into(),
        1 => [172, 16, 0, 1].into(),
        _ => [0xfd00, 0, 0, draw.below(2) as u16, 0, 0, 0, 1 + draw.below(9) as u16].into(),
    };
    (ip, 1000 + draw.below(1000) as u16).into()
}

fn is_denied(ip: IpAddr) -> bool {
    ip == IpAddr::from([172, 16, 0, 1])
}

/// Returns the addresses that one limit covers.
fn network(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V6(ip) => {
            let [a, b, c, d, ..] = ip.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
        ip @ IpAddr::V4(_) => ip,
    }
}

impl Desk {
    fn enter(&self, ip: IpAddr) {
        let mut open = lock(&self.open);
        *open.entry(network(ip)).or_default() += 1;
        let (all, of_ip) = (open.values().sum::<usize>(), open[&network(ip)]);
        drop(open);
        self.play.must(all <= self.limit, || format!("{all} connections, and a limit of {}", self.limit));
        self.play.must(of_ip <= self.limit_per_ip, || {
            format!("{of_ip} connections of {ip}, and a limit of {}", self.limit_per_ip)
        });
        self.play.must(!is_denied(ip), || format!("{ip} is denied, and connected"));
    }

    fn leave(&self, ip: IpAddr) {
        *lock(&self.open).entry(network(ip)).or_default() -= 1;
    }

    fn reject(&self, rejection: &Rejection) {
        self.rejected.fetch_add(1, SeqCst);
        let is_right = match rejection.reason {
            RejectReason::Denied(_) => rejection.address.is_some_and(|address| is_denied(address.ip())),
            RejectReason::ServerFull { limit } => limit == self.limit,
            RejectReason::IpFull { limit } => limit == self.limit_per_ip,
            _ => true,
        };
        self.play.must(is_right, || format!("{rejection}"));
        sometimes("a connection was rejected");
    }
}

/// Answers each line with the address of its peer.
struct Clerk {
    desk: Desk,
    peer: SocketAddr,
}

impl Handler for Clerk {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let address = ctx.peer_address();
        self.desk.play.must(address == Some(self.peer) && ctx.peer().address() == address, || {
            format!("the peer is {address:?}, not {}", self.peer)
        });
        let is_announced = ctx.peer().info::<ProxyHeader>().is_some();
        let is_proxy = self.peer.ip().to_string().starts_with("10.0.0.");
        self.desk.play.must(is_announced || is_proxy, || format!("{} has no header", self.peer));
        self.desk.enter(self.peer.ip());
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, _line: Bytes) -> Result {
        ctx.write(self.peer.to_string().into())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _error: Error) -> Result {
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _ctx: &mut Context<'_, Self>) -> Result {
        self.desk.leave(self.peer.ip());
        Ok(())
    }
}

fn serve(play: &Play) -> Result {
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).handshakes_per_turn(draw.pick(&[1, 256])).build()?;
    let desk = Desk {
        play: play.clone(),
        limit: draw.pick(&[2, 4, 100]),
        limit_per_ip: draw.pick(&[1, 2, 100]),
        open: Arc::default(),
        rejected: Arc::default(),
    };
    let (has_farewell, is_required) = (draw.chance(70), draw.chance(20));
    // A server that is bound again, because its listener has failed, counts from the beginning.
    let open_of_servers = Mutex::new(Vec::new());
    let bind = || {
        let desk = Desk { open: Arc::default(), ..desk.clone() };
        lock(&open_of_servers).push(desk.open.clone());
        let of_hook = desk.clone();
        let admission = Admission::new()
            .max_connections(desk.limit)
            .max_connections_per_ip(desk.limit_per_ip)
            .ip_filter(IpFilter::new([IpRule::deny("172.16.0.0/16")?]))
            .on_rejected(move |rejection| of_hook.reject(rejection))
            .farewell(move |_| has_farewell.then(|| Bytes::from_static(b"busy\n")));
        let protocol = if is_required { ProxyProtocol::required() } else { ProxyProtocol::optional() };
        let server = ServerBootstrap::new(&group)
            .admission(admission)
            .proxy_protocol(protocol.trust(PROXY)?)
            .listener_options(ListenerOptions::new().backlog(64))
            .tcp_options(TcpOptions::new().nodelay(true))
            .handshake_timeout(2 * SECOND)
            .accepting(false)
            .pipeline(move |peer| {
                let peer = peer.address().expect("a peer has an address");
                Pipeline::codec(Line::new()).handler(Clerk { desk: desk.clone(), peer })
            })
            .bind("10.0.0.1:7000")?;
        server.set_accepting(true)?;
        Ok(server)
    };
    let server = settings::bound(play, bind)?;
    settings::keep(play, CLIENTS, server, bind)?;
    play.eventually(
        || format!("all connections end: {:?}", lock(&open_of_servers)),
        || lock(&open_of_servers).iter().all(|open| lock(open).values().all(|open| *open == 0)),
    );
    let counted: u64 = group.metrics().iter().map(|of| of.rejected_filter + of.rejected_limit).sum();
    let told = desk.rejected.load(SeqCst);
    play.must(told == counted, || format!("{told} of {counted} rejected connections are reported"));
    settings::end(play, &group, "the server")
}

/// What a client has received on a connection.
#[derive(Default)]
struct Received(Mutex<Vec<Bytes>>);

fn client(play: &Play, is_proxy: bool) -> Result {
    play.wait_for_listener();
    let mut draw = Draw::new();
    let group = settings::group(&mut draw).build()?;
    for half in 0..2 {
        let mut open: Vec<Channel<Bytes>> = Vec::new();
        for _ in 0..8 + draw.below(8) {
            open.extend(visit(play, &group, is_proxy, &mut draw));
            sleep(draw.millis(80));
            if open.len() > 3 || draw.chance(20) && !open.is_empty() {
                open.remove(draw.below(open.len() as u64) as usize).close();
            }
        }
        for channel in open {
            channel.close();
            play.must(channel.closed().wait_timeout(PATIENCE).is_ok(), || "a channel stays open".to_owned());
        }
        if half == 0 {
            play.wait_for_calm();
        }
    }
    settings::end(play, &group, "a client")?;
    play.finished();
    Ok(())
}

/// Connects, announces an address, and asks for the address that the server sees.
fn visit(play: &Play, group: &EventLoopGroup, is_proxy: bool, draw: &mut Draw) -> Option<Channel<Bytes>> {
    let received = Arc::<Received>::default();
    let (source, is_silent) = (announced(draw), is_proxy && draw.chance(10));
    let destination = if source.is_ipv4() { "10.0.0.1:7000" } else { "[fd00::1]:7000" };
    let destination: SocketAddr = destination.parse().expect("an address");
    let is_first_version = draw.chance(30);
    let client = ClientBootstrap::new(group).tcp_options(TcpOptions::new().nodelay(false));
    let client = if is_proxy && !is_silent {
        client.proxy_protocol(move |_peer| {
            if is_first_version {
                ProxyHeader::v1(source, destination)
            } else {
                ProxyHeader::v2(source, destination)
            }
        })
    } else {
        client.local_address(([0, 0, 0, 0], 0).into())
    };
    let of_client = received.clone();
    let client = client.connect_timeout(20 * SECOND).pipeline(move |_peer| {
        let received = of_client.clone();
        Pipeline::codec(Line::new()).on_read(move |_ctx, line| {
            lock(&received.0).push(line);
            Ok(())
        })
    });
    let Ok(Ok(channel)) = client.connect("server:7000").wait_timeout(PATIENCE) else {
        play.must(!play.is_strict(), || "a connect fails".to_owned());
        return None;
    };
    if is_silent {
        // It has announced nothing, so the server must not wait for it forever.
        let has_closed = channel.closed().wait_timeout(PATIENCE).is_ok();
        play.must(has_closed || !play.is_strict(), || "a silent proxy stays connected".to_owned());
        sometimes("a silent proxy was closed");
        return None;
    }
    let seen = if is_proxy { Some(source) } else { channel.local_address() };
    let _ = channel.write("who am I".into());
    let is_over = || !lock(&received.0).is_empty() || !channel.is_open();
    for _ in 0..100 {
        if !is_over() {
            sleep(10 * MS);
        }
    }
    play.must(is_over() || !play.is_strict(), || "neither an answer nor an end".to_owned());
    let lines = lock(&received.0).clone();
    let expected = seen.map(|address| address.to_string()).unwrap_or_default();
    let is_right = lines.iter().all(|line| *line == expected || *line == BUSY) && lines.len() <= 1;
    play.must(is_right, || format!("{lines:?} instead of {expected}"));
    play.must(!is_proxy || !is_denied(source.ip()) || lines.iter().all(|line| *line == BUSY), || {
        format!("{source} is denied, and gets {lines:?}")
    });
    if !channel.is_open() {
        sleep(Duration::from_millis(1));
        return None;
    }
    Some(channel)
}
