//! A conversation between a client and a server of which any features are on, and its checks.

use crate::{
    executor::OneThread,
    feature::{Feature, Features},
    support::{
        recorder::{Event, Recorder, silent},
        wait::{PATIENCE, SECOND, done, receive, wait_until},
    },
    worker::{Seen, Shared, accepted},
    xor::Xor,
};
use bytes::Bytes;
use netwheel::{
    Pipeline,
    buffer::WaterMark,
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    pool::{ChannelPool, PooledChannel},
    prelude::*,
    proxy::{ProxyHeader, ProxyProtocol},
    relay::Relay,
    shutdown::{ShutdownOptions, ShutdownReport},
    tls::{TlsCertificate, TlsClient, TlsRoots, TlsServer},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver},
    },
    time::Duration,
};

/// The number of lines that the client sends, and that the server answers.
pub(crate) const LINES: usize = 60;

/// Asks the server to close once it has answered all lines.
pub(crate) const BYE: &[u8] = b"bye";
/// Asks the server to replace its pipeline.
pub(crate) const SWITCH: &[u8] = b"switch";
pub(crate) const SWITCHED: &[u8] = b"switched";
/// Begins another conversation on the same connection.
pub(crate) const AGAIN: &[u8] = b"again";

/// The address that the client announces in its PROXY header.
const ANNOUNCED: &str = "192.0.2.7:4321";

/// Returns line `n` of the conversation.
fn line(n: usize) -> Bytes {
    format!("{n} {}", "x".repeat(n * 3)).into()
}

/// Who resets the connection in the middle of the conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    Server,
    Client,
}

/// Lets a client and a server with these features talk three times: to the end, and until either
/// side resets the connection. Checks every promise that holds for all features.
pub(crate) fn holds(features: Features) {
    Conversation::new(features, None).talk();
    Conversation::new(features, Some(Cut::Server)).break_off();
    Conversation::new(features, Some(Cut::Client)).break_off();
}

struct Conversation {
    features: Features,
    cut: Option<Cut>,
    servers: EventLoopGroup,
    clients: EventLoopGroup,
    shared: Shared,
    pool: Option<ChannelPool<Bytes>>,
    events: Receiver<Event>,
    connection: Option<Connection>,
}

enum Connection {
    Own(Channel<Bytes>),
    Pooled(PooledChannel<Bytes>),
}

impl Connection {
    fn channel(&self) -> &Channel<Bytes> {
        match self {
            Connection::Own(channel) => channel,
            Connection::Pooled(channel) => channel,
        }
    }
}

impl Conversation {
    fn new(features: Features, cut: Option<Cut>) -> Self {
        let servers = EventLoopGroup::builder().threads(2).executor(OneThread::new());
        let servers = servers.wheel_tick(Duration::from_millis(1)).build().unwrap();
        let clients = EventLoopGroup::builder().threads(1).build().unwrap();
        let shared = Shared::new(features, cut == Some(Cut::Server));
        let results = shared.clone();

        let tls = features.has(Feature::Tls).then(tls_pair);
        let relayed = features.has(Feature::Relay);
        let options = ChannelOptions::new()
            .water_mark(WaterMark::new(64, 256).unwrap())
            .half_close(features.has(Feature::HalfClose));
        let backend_options = options
            .clone()
            .auto_read(!features.has(Feature::AutoReadOff))
            .one_message_per_read(features.has(Feature::AutoReadOff));

        // With relays, the wire to the client is at the front.
        let (front_options, front_group) =
            if relayed { (options.half_close(true), &clients) } else { (backend_options.clone(), &servers) };
        let backend = relayed.then(|| {
            let shared = shared.clone();
            let backend = ServerBootstrap::new(&servers)
                .channel_options(backend_options.half_close(true))
                .pipeline(move |_| accepted(&shared));
            backend.bind("127.0.0.1:0").unwrap().local_address()
        });
        let mut front = ServerBootstrap::new(front_group).channel_options(front_options.clone());
        if features.has(Feature::Proxy) {
            front = front.proxy_protocol(ProxyProtocol::required().trust("127.0.0.0/8").unwrap());
        }
        if let Some((server, _)) = &tls {
            front = front.tls(server.clone());
        }
        if features.has(Feature::Filter) {
            front = front.filter(|_: &Peer| Xor::new(0x21));
        }
        let dialer = clients.clone();
        let factory = move |peer: &Peer| {
            if features.has(Feature::Proxy) {
                assert_eq!(peer.address(), Some(ANNOUNCED.parse().unwrap()), "the announced address");
            }
            let Some(backend) = backend else { return accepted(&shared) };
            let client = ClientBootstrap::new(&dialer).channel_options(front_options.clone());
            Pipeline::codec(RawBytes).handler(Relay::dial(move |front| {
                client
                    .pipeline(move |_| Pipeline::codec(RawBytes).handler(Relay::to(front.clone())))
                    .connect(backend)
            }))
        };
        let address = front.pipeline(factory).bind("127.0.0.1:0").unwrap().local_address();

        let (sender, events) = mpsc::channel();
        let (pool, connection) = connect(&clients, features, tls.map(|(_, client)| client), address, sender);
        Conversation {
            features,
            cut,
            servers,
            clients,
            shared: results,
            pool,
            events,
            connection: Some(connection),
        }
    }

    fn has(&self, feature: Feature) -> bool {
        self.features.has(feature)
    }

    fn channel(&self) -> &Channel<Bytes> {
        self.connection.as_ref().expect("connected").channel()
    }

    fn send(&self, line: impl Into<Bytes>) {
        self.channel().write(line.into()).unwrap();
    }

    fn talk(mut self) {
        if self.has(Feature::Pool) {
            self.ask_all(false);
            // The pool has one place, so it hands out the same channel again.
            let id = self.channel().id();
            self.connection = None;
            let pool = self.pool.as_ref().expect("a pool");
            self.connection = Some(Connection::Pooled(done(pool.acquire()).unwrap()));
            assert_eq!(self.channel().id(), id);
            self.send(AGAIN);
        }
        let (answers, shutdown) = self.ask_and_end();
        self.check_answers(&answers);
        self.check_ends(shutdown);
    }

    /// Talks until one side resets the connection.
    fn break_off(mut self) {
        // A shutdown refuses connections that are not accepted yet.
        wait_until("the server has accepted the client", || self.shared.seen().active == 1);
        let shutdown = self.has(Feature::GracefulShutdown).then(|| self.servers.shutdown(patient()));
        // One line is missing, so a server that shuts down does not close.
        for n in 0..LINES - 1 {
            // The connection may be gone already.
            drop(self.channel().write(line(n)));
        }
        if self.cut == Some(Cut::Client) {
            self.collect(&mut Vec::new(), 1);
            self.channel().reset();
        }
        let mut errors = 0;
        loop {
            match receive(&self.events) {
                Event::Error(_) => errors += 1,
                Event::ReadClosed => panic!("{self:?}: the cut looks like a clean end"),
                Event::Inactive => break,
                _ => {}
            }
        }
        assert_eq!(errors, usize::from(self.cut == Some(Cut::Server)), "{self:?}: errors of the client");
        wait_until("the server's channel has ended", || self.shared.seen().inactive == 1);
        let errors = self.shared.seen().errors.clone();
        assert_eq!(errors.len(), usize::from(self.cut == Some(Cut::Client)), "{self:?}: {errors:?}");
        wait_until("the tasks of the channel are dropped", || self.shared.pending_steps() == 0);

        self.connection = None;
        if let (Some(pool), None) = (&self.pool, &shutdown) {
            let channel = done(pool.acquire()).unwrap();
            assert!(channel.is_open(), "{self:?}: the pool replaces the channel");
            channel.discard();
            wait_until("the new connection has ended", || self.shared.seen().inactive == 2);
        }
        let report = shutdown.unwrap_or_else(|| self.servers.shutdown(patient()));
        assert_eq!(done(report).unwrap().forced, 0, "{self:?}");
        assert_eq!(done(self.clients.shutdown(patient())).unwrap().forced, 0, "{self:?}");
    }

    /// Sends all lines, and returns after all answers.
    fn ask_all(&self, ends: bool) -> Vec<Bytes> {
        let mut answers = Vec::new();
        for n in 0..LINES {
            if n == LINES / 2 && ends && self.has(Feature::ReplacePipeline) {
                self.collect(&mut answers, LINES / 2);
                self.send(SWITCH);
            }
            self.send(line(n));
        }
        if !ends {
            self.collect(&mut answers, LINES);
        }
        answers
    }

    /// Sends all lines, ends the conversation in the way of the features, and returns all answers.
    fn ask_and_end(&self) -> (Vec<Bytes>, Option<Completion<ShutdownReport>>) {
        let mut answers = self.ask_all(true);
        let mut shutdown = None;
        if self.has(Feature::GracefulShutdown) {
            self.collect(&mut answers, 1);
            // Without a quiet period, no socket lingers during a shutdown.
            let quiet = if self.has(Feature::Lingering) { 3 * SECOND } else { Duration::ZERO };
            shutdown = Some(self.servers.shutdown(patient().quiet_period(quiet)));
        }
        if self.has(Feature::Lingering) {
            // The server may have closed already: a shutdown closes it after its last answer.
            drop(self.channel().write(BYE.into()));
            for n in 0..200 {
                drop(self.channel().write(format!("unread {n}").into()));
            }
        }
        match self.has(Feature::HalfClose) {
            true => self.channel().shutdown_write(),
            false if shutdown.is_none() && !self.has(Feature::Lingering) => self.send(BYE),
            false => {}
        }
        let mut ends = 0;
        loop {
            match receive(&self.events) {
                Event::Read(line) => answers.push(line),
                Event::ReadClosed => ends += 1,
                Event::Error(error) => panic!("{self:?}: the client's channel failed: {error}"),
                Event::Inactive => break,
                _ => {}
            }
        }
        assert_eq!(ends, usize::from(self.has(Feature::HalfClose)), "{self:?}: ends of the server's stream");
        (answers, shutdown)
    }

    /// Receives messages until there are `n`.
    fn collect(&self, answers: &mut Vec<Bytes>, n: usize) {
        while answers.len() < n {
            match receive(&self.events) {
                Event::Read(line) => answers.push(line),
                Event::Error(error) => panic!("{self:?}: the client's channel failed: {error}"),
                Event::Inactive => panic!("{self:?}: ended after {} answers", answers.len()),
                _ => {}
            }
        }
    }

    fn check_answers(&self, answers: &[Bytes]) {
        let mut answers = answers.to_vec();
        if self.has(Feature::ReplacePipeline) {
            let switched = answers.iter().position(|answer| answer == SWITCHED);
            assert_eq!(switched, Some(LINES / 2), "{:?}: the pipeline is replaced in order", self.features);
            answers.remove(LINES / 2);
        }
        let expected: Vec<_> = (0..LINES).map(line).collect();
        if self.features.may_reorder() {
            answers.sort_by_key(|answer| answer.len());
        }
        let text = |lines: &[Bytes]| lines.iter().map(|line| line.len()).collect::<Vec<_>>();
        assert_eq!(
            text(&answers),
            text(&expected),
            "{:?}: each line has one answer, in order",
            self.features
        );
        assert_eq!(answers, expected, "{:?}", self.features);
    }

    fn check_ends(self, shutdown: Option<Completion<ShutdownReport>>) {
        let in_progress = shutdown.is_some();
        let report = shutdown.unwrap_or_else(|| self.servers.shutdown(patient()));
        let report = done(report).unwrap();
        assert_eq!((report.incomplete, report.forced), (0, 0), "{:?}: {report}", self.features);
        if in_progress {
            assert_eq!(report.graceful, 1, "{:?}: {report}", self.features);
        }
        drop(self.connection);
        let report = done(self.clients.shutdown(patient())).unwrap();
        assert_eq!((report.incomplete, report.forced), (0, 0), "{:?}: {report}", self.features);
        let replaced = usize::from(self.features.has(Feature::ReplacePipeline));
        let expected = Seen { active: 1 + replaced, inactive: 1, errors: Vec::new() };
        assert_eq!(*self.shared.seen(), expected, "{:?}", self.features);
    }
}

impl std::fmt::Debug for Conversation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", self.features)?;
        self.cut.map_or(Ok(()), |side| write!(f, ", reset by the {side:?}"))
    }
}

fn patient() -> ShutdownOptions {
    ShutdownOptions::new().timeout(PATIENCE).quiet_period(Duration::ZERO)
}

/// Connects a client whose events go to `sender`, directly or by a pool with one place.
fn connect(
    group: &EventLoopGroup,
    features: Features,
    tls: Option<TlsClient>,
    to: SocketAddr,
    sender: mpsc::Sender<Event>,
) -> (Option<ChannelPool<Bytes>>, Connection) {
    let options = ChannelOptions::new().half_close(features.has(Feature::HalfClose));
    let mut client = ClientBootstrap::new(group).channel_options(options);
    if features.has(Feature::Proxy) {
        client = client.proxy_protocol(|peer| {
            ProxyHeader::v2(ANNOUNCED.parse().unwrap(), peer.address().expect("an address"))
        });
    }
    if let Some(tls) = tls {
        client = client.tls(tls);
    }
    if features.has(Feature::Filter) {
        client = client.filter(|_: &Peer| Xor::new(0x42));
    }
    let sender = Mutex::new(sender);
    let hook = Arc::new(silent);
    let client = client.pipeline(move |_: &Peer| {
        let handler = Recorder::sending(sender.lock().unwrap().clone(), hook.clone());
        Pipeline::codec(Line::new()).handler(handler)
    });
    if features.has(Feature::Pool) {
        let pool = client.pool().size(1).build(to).unwrap();
        let channel = done(pool.acquire()).unwrap();
        (Some(pool), Connection::Pooled(channel))
    } else {
        (None, Connection::Own(done(client.connect(to)).unwrap()))
    }
}

/// Returns the settings of a server and a client that trust each other.
fn tls_pair() -> (TlsServer, TlsClient) {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (chain, key) = (made.cert.pem(), made.signing_key.serialize_pem());
    let certificate = TlsCertificate::from_pem(chain.as_bytes(), key.as_bytes()).unwrap();
    let roots = TlsRoots::from_pem(chain.as_bytes()).unwrap();
    let client = TlsClient::builder(roots).server_name("localhost").build().unwrap();
    (TlsServer::builder(certificate).build().unwrap(), client)
}
