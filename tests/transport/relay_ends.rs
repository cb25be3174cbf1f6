//! Relays in the middle of traffic in both directions: whichever side fails, the other side sees a
//! failure and no regular end of the stream.

use crate::support::{
    loops::end,
    tls_peer,
    wait::{PATIENCE, done, receive},
};
use bytes::Bytes;
use netwheel::{
    Server,
    channel::{ChannelOptions, CloseCause},
    codec::RawBytes,
    error::PeerError,
    net::Address,
    prelude::*,
    relay::Relay,
    testing::EmbeddedChannel,
    tls::{TlsClient, TlsRoots, TlsServer},
};
use std::{
    io::{ErrorKind, Read},
    net::{Shutdown, SocketAddr, TcpListener},
    sync::mpsc::{self, Receiver, Sender},
    time::Duration,
};

const CHUNK: usize = 20_000;

#[derive(Debug, Clone, Copy, PartialEq)]
enum Over {
    Tcp,
    Tls,
}

/// How a peer gives up.
#[derive(Debug, Clone, Copy)]
enum Failure {
    Reset,
    /// The end of the stream without the end mark of TLS.
    NoCloseNotify,
}

/// Writes without end, and gives up after it has received some bytes.
struct Flood {
    gives_up: Option<(Failure, usize)>,
    received: usize,
    failed: bool,
    /// Gets whether the channel has failed.
    ends: Sender<bool>,
}

impl Flood {
    fn new(gives_up: Option<(Failure, usize)>, ends: &Sender<bool>) -> Self {
        Flood { gives_up, received: 0, failed: false, ends: ends.clone() }
    }

    fn fill(&self, ctx: &mut Context<'_, Self>) -> Result {
        while ctx.is_writable() {
            ctx.write(Bytes::from_static(&[7; CHUNK]))?;
        }
        Ok(())
    }
}

impl Handler for Flood {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.fill(ctx)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, _: bool) -> Result {
        self.fill(ctx)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, bytes: Bytes) -> Result {
        self.received += bytes.len();
        match self.gives_up {
            Some((Failure::Reset, after)) if self.received >= after => ctx.reset(),
            Some((Failure::NoCloseNotify, after)) if self.received >= after => ctx.close_now(),
            _ => {}
        }
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.failed = true;
        Err(error)
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        if self.gives_up.is_none() {
            let _ = self.ends.send(self.failed);
        }
        Ok(())
    }
}

struct Keys {
    server: TlsServer,
    client: TlsClient,
}

impl Keys {
    fn new() -> Self {
        let (certificate, root) = tls_peer::certificate();
        let roots = TlsRoots::from_der([root]).unwrap();
        Keys {
            server: TlsServer::builder(certificate).build().unwrap(),
            client: TlsClient::builder(roots).server_name("localhost").build().unwrap(),
        }
    }

    fn server(&self, over: Over, group: &EventLoopGroup) -> ServerBootstrap {
        let server = ServerBootstrap::new(group);
        if over == Over::Tls { server.tls(self.server.clone()) } else { server }
    }

    fn client(&self, over: Over, group: &EventLoopGroup) -> ClientBootstrap {
        let client = ClientBootstrap::new(group);
        if over == Over::Tls { client.tls(self.client.clone()) } else { client }
    }
}

fn anywhere() -> Address {
    SocketAddr::from(([127, 0, 0, 1], 0)).into()
}

/// Starts a proxy in front of an address.
fn proxy(group: &EventLoopGroup, keys: &Keys, (front, back): (Over, Over), to: &Address) -> Server<Address> {
    let options = ChannelOptions::new().half_close(true);
    let connector = keys.client(back, group).channel_options(options.clone());
    let to = to.clone();
    keys.server(front, group)
        .channel_options(options)
        .pipeline(move |_| {
            let (connector, to) = (connector.clone(), to.clone());
            Pipeline::codec(RawBytes).handler(Relay::dial(move |front| {
                connector
                    .pipeline(move |_| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
                    .connect(to)
            }))
        })
        .bind(anywhere())
        .unwrap()
}

/// Plays rounds in which the client or the backend gives up. Returns how many of the other sides
/// took that for a regular end.
fn regular_ends(
    rounds: usize,
    threads: usize,
    sides: (Over, Over),
    failure: Failure,
    of_client: bool,
) -> usize {
    let group = EventLoopGroup::builder().threads(threads).build().unwrap();
    let peers = EventLoopGroup::builder().threads(1).build().unwrap();
    let keys = Keys::new();
    let (sender, ends): (Sender<bool>, Receiver<bool>) = mpsc::channel();
    let give_up = |round: usize| Some((failure, 200_000 + round * 10_007));
    let mut regular = 0;
    for round in 0..rounds {
        let (of_client, of_backend) = if of_client { (give_up(round), None) } else { (None, give_up(round)) };
        let (at_backend, at_client) = (sender.clone(), sender.clone());
        let backend = keys
            .server(sides.1, &peers)
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Flood::new(of_backend, &at_backend)))
            .bind(anywhere())
            .unwrap();
        let proxy = proxy(&group, &keys, sides, &backend.local_address());
        let client = keys
            .client(sides.0, &peers)
            .pipeline(move |_| Pipeline::codec(RawBytes).handler(Flood::new(of_client, &at_client)))
            .connect(proxy.local_address());
        done(client).unwrap();
        regular += usize::from(!receive(&ends));
    }
    end(&group);
    end(&peers);
    regular
}

fn no_regular_end(rounds: usize, loops: &[usize], sides: (Over, Over), failures: &[Failure]) {
    for failure in failures {
        for (threads, of_client) in loops.iter().flat_map(|threads| [(*threads, true), (*threads, false)]) {
            let regular = regular_ends(rounds, threads, sides, *failure, of_client);
            assert_eq!(
                regular,
                0,
                "of {rounds} ends over {sides:?} with {threads} loops, {failure:?} of the {}",
                if of_client { "client" } else { "backend" }
            );
        }
    }
}

#[test]
fn a_reset_in_the_middle_of_traffic_is_relayed_as_a_reset() {
    no_regular_end(24, &[1, 2], (Over::Tcp, Over::Tcp), &[Failure::Reset]);
}

#[test]
fn a_reset_or_a_cut_of_a_tls_stream_is_not_relayed_as_its_end() {
    // Few rounds, because unoptimised TLS takes most of the time.
    no_regular_end(3, &[2], (Over::Tls, Over::Tcp), &[Failure::Reset]);
    no_regular_end(3, &[2], (Over::Tls, Over::Tls), &[Failure::Reset, Failure::NoCloseNotify]);
}

#[cfg(unix)]
mod unix {
    use super::*;
    use netwheel::net::UnixAddress;
    use std::{
        mem::MaybeUninit,
        os::unix::net::{UnixListener, UnixStream},
        thread,
    };

    /// Reads some bytes, and closes the socket while others wait in it, which is a reset.
    fn give_up(mut stream: UnixStream, after: usize) {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.read_exact(&mut vec![0; after]).unwrap();
        let unread = socket2::SockRef::from(&stream).peek(&mut [MaybeUninit::uninit()]).unwrap();
        assert_eq!(unread, 1);
    }

    #[test]
    fn a_unix_socket_that_is_closed_with_unread_bytes_is_relayed_as_a_reset() {
        let path = std::env::temp_dir().join(format!("netwheel-relay-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let listener = UnixListener::bind(&path).unwrap();
        let to = Address::from(UnixAddress::path(&path).unwrap());
        let group = EventLoopGroup::builder().threads(2).build().unwrap();
        let peers = EventLoopGroup::builder().threads(1).build().unwrap();
        let keys = Keys::new();
        let (sender, ends) = mpsc::channel();
        for round in 0..24 {
            let proxy = proxy(&group, &keys, (Over::Tcp, Over::Tcp), &to);
            let accepted = listener.try_clone().unwrap();
            let backend =
                thread::spawn(move || give_up(accepted.accept().unwrap().0, 200_000 + round * 10_007));
            let at_client = sender.clone();
            let client = ClientBootstrap::new(&peers)
                .pipeline(move |_| Pipeline::codec(RawBytes).handler(Flood::new(None, &at_client)))
                .connect(proxy.local_address());
            done(client).unwrap();
            assert!(receive(&ends), "round {round}: a regular end");
            backend.join().unwrap();
        }
        std::fs::remove_file(&path).unwrap();
        end(&group);
        end(&peers);
    }
}

#[test]
fn an_idle_timeout_of_a_relay_is_no_regular_end_for_either_side() {
    let quiet = || Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(()));
    let mut back = EmbeddedChannel::new(quiet());
    let idle = IdleTimeouts::new().all(PATIENCE);
    let relay = Relay::to(back.channel());
    let mut front = EmbeddedChannel::new(Pipeline::codec(RawBytes).idle(idle).handler(relay));
    front.write_inbound(b"half of a mess").unwrap();
    back.run_pending();
    front.advance(PATIENCE + Duration::from_secs(1));
    back.run_pending();
    for channel in [front.channel(), back.channel()] {
        assert_eq!(channel.close_cause(), Some(CloseCause::Reset));
    }
}

#[test]
fn a_relay_whose_peer_need_not_send_is_not_idle() {
    let quiet = || Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(()));
    let later = PATIENCE + Duration::from_secs(1);
    // No output is no end.
    let mut back = EmbeddedChannel::new(quiet());
    let idle = IdleTimeouts::new().writer(PATIENCE);
    let relay = Relay::to(back.channel());
    let mut front = EmbeddedChannel::new(Pipeline::codec(RawBytes).idle(idle).handler(relay));
    front.advance(later);
    assert!(front.channel().is_open() && back.channel().is_open());
    // The peer has sent its request and ended its stream. The response takes its time.
    let mut back = EmbeddedChannel::new(quiet());
    let idle = IdleTimeouts::new().reader(PATIENCE);
    let relay = Relay::to(back.channel());
    let mut front = EmbeddedChannel::builder(Pipeline::codec(RawBytes).idle(idle).handler(relay))
        .channel_options(ChannelOptions::new().half_close(true))
        .build()
        .unwrap();
    front.end_inbound();
    back.run_pending();
    front.advance(later);
    assert!(front.channel().is_open() && back.channel().is_open());
}

#[test]
fn a_connect_whose_peer_resets_or_ends_the_handshake_fails_with_the_cause() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let keys = Keys::new();
    for resets in [true, false] {
        let connecting = keys
            .client(Over::Tls, &group)
            .pipeline(|_| Pipeline::codec(RawBytes).on_read(|_, _| Ok(())))
            .connect(listener.local_addr().unwrap());
        let (mut peer, _) = listener.accept().unwrap();
        // The start of the client's first message.
        peer.read_exact(&mut [0; 50]).unwrap();
        let _open = if resets {
            socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO)).unwrap();
            drop(peer);
            None
        } else {
            peer.shutdown(Shutdown::Write).unwrap();
            Some(peer)
        };
        let error = done(connecting).unwrap_err();
        match error.io_kind() {
            Some(kind) => assert!(resets && kind == ErrorKind::ConnectionReset, "{error:#}"),
            None => assert!(!resets && matches!(error, Error::Peer(PeerError::Truncated)), "{error:#}"),
        }
    }
    end(&group);
}
