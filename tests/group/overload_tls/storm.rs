//! A server with overload control on a manual clock, and its clients.

use super::client::{Answer, Client};
use crate::support::{
    tcp::{ANY_PORT, connect},
    tls_peer,
    wait::{PATIENCE, SECOND, ms},
};
use bytes::Bytes;
use netwheel::{
    admission::Work,
    group::ManualEventLoop,
    http::{HttpServer, Part, Request, Response},
    metrics::LoopMetrics,
    prelude::*,
    testing::ManualClock,
    tls::TlsServer,
    websocket::{CloseCode, Message, WebSocketServer, WebSocketSettings},
    worker_pool::WorkerPool,
};
use rustls::ClientConfig;
use std::{
    io::{ErrorKind, Read},
    net::{SocketAddr, TcpStream},
    sync::{Arc, mpsc::TryRecvError},
    time::{Duration, Instant},
};

const TARGET: Duration = ms(50);

/// The time that a login blocks the loop.
pub(super) const LOGIN: Duration = ms(60);

/// Turns each connection into a WebSocket. `login` is submitted to overload control, and blocks the
/// loop if it is admitted.
#[derive(Clone)]
struct Site {
    clock: ManualClock,
    websocket: WebSocketServer,
}

impl Handler for Site {
    type Read = Part<Request>;
    type Write = Part<Response>;

    fn read(&mut self, ctx: &mut Context<'_, Self>, part: Part<Request>) -> Result {
        let Part::Head(request) = part else { return Ok(()) };
        let (response, links) = self.websocket.accept(&request).unwrap().into_parts();
        ctx.write(response.into())?;
        let clock = self.clock.clone();
        ctx.replace_pipeline(links.on_read(move |ctx, message| match message {
            Message::Text(text) if text == "login" => match ctx.admit(Work::Login) {
                Ok(()) => {
                    clock.advance(LOGIN);
                    ctx.write(Message::text("welcome"))
                }
                Err(refused) => {
                    let hint = format!("retry after {} ms", refused.retry_after().as_millis());
                    ctx.write(Message::close(CloseCode::TRY_AGAIN_LATER, hint))
                }
            },
            _ => Ok(()),
        }))
    }
}

pub(super) struct Storm {
    by_hand: ManualEventLoop,
    clock: ManualClock,
    pub(super) address: SocketAddr,
    config: Arc<ClientConfig>,
    /// The time that the other work of each turn takes.
    pub(super) busy: Duration,
    _server: Server,
}

impl Storm {
    /// Starts a server. With `workers`, they compute its handshakes.
    pub(super) fn new(workers: Option<&WorkerPool>, handshakes_per_turn: usize) -> Self {
        let clock = ManualClock::new();
        let group = EventLoopGroup::builder().clock(clock.clone()).seed(1).overload_target(TARGET);
        let by_hand = group.handshakes_per_turn(handshakes_per_turn).build_manual().unwrap();
        let (certificate, config) = tls_peer::settings();
        let mut tls = TlsServer::builder(certificate).build().unwrap();
        if let Some(workers) = workers {
            tls = tls.offload_handshakes(workers);
        }
        // The clock runs far ahead of the clients.
        let settings = WebSocketSettings::new().ping_interval(Duration::ZERO);
        let site = Site { clock: clock.clone(), websocket: WebSocketServer::with(settings).unwrap() };
        let http = HttpServer::new().deferrable(|_| false);
        let server = ServerBootstrap::new(by_hand.group())
            .tls(tls)
            .handshake_timeout(1_000_000 * SECOND)
            .pipeline(move |_| http.pipeline().handler(site.clone()))
            .bind(ANY_PORT)
            .unwrap();
        let address = server.local_address();
        Storm { by_hand, clock, address, config, busy: Duration::ZERO, _server: server }
    }

    pub(super) fn metrics(&self) -> LoopMetrics {
        self.by_hand.event_loop().metrics()
    }

    fn turn(&mut self) {
        if !self.busy.is_zero() {
            let (clock, busy) = (self.clock.clone(), self.busy);
            self.by_hand.event_loop().execute(move || clock.advance(busy)).unwrap();
        }
        self.by_hand.run_once(ms(1));
    }

    /// Runs turns until `find` returns a value.
    #[track_caller]
    pub(super) fn turn_until<T>(&mut self, mut find: impl FnMut(&LoopMetrics) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            self.turn();
            if let Some(found) = find(&self.metrics()) {
                return found;
            }
            assert!(began.elapsed() < PATIENCE, "{:?}", self.metrics());
        }
    }

    #[track_caller]
    pub(super) fn answer_of(&mut self, client: &Client) -> Answer {
        self.turn_until(|_| match client.answers.try_recv() {
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => panic!("the client has ended"),
            Ok(answer) => Some(answer),
        })
    }

    /// Connects a client, which must succeed.
    #[track_caller]
    pub(super) fn connect(&mut self) -> Client {
        let client = Client::start(self.address, &self.config);
        assert_eq!(self.answer_of(&client), Ok(String::new().into()));
        client
    }

    /// Opens connections that have been accepted, and have sent nothing.
    pub(super) fn connect_silent(&mut self, n: usize) -> Vec<TcpStream> {
        let before = self.metrics().accepted;
        let streams = (0..n).map(|_| connect(self.address)).collect();
        self.turn_until(|metrics| (metrics.accepted == before + n as u64).then_some(()));
        streams
    }

    /// Lets each connection begin its handshake.
    pub(super) fn send_hellos(&self, streams: &mut [TcpStream]) {
        for stream in streams {
            tls_peer::client(&self.config).write_tls(stream).unwrap();
        }
    }

    /// Waits until each connection is answered or reset. Returns the number of the answered ones.
    pub(super) fn count_answered(&mut self, streams: &mut [TcpStream]) -> usize {
        let mut answered = 0;
        for stream in streams {
            stream.set_nonblocking(true).unwrap();
            answered += self.turn_until(|_| match stream.read(&mut [0; 64]) {
                Ok(n) if n > 0 => Some(1),
                Err(e) if e.kind() == ErrorKind::WouldBlock => None,
                Err(e) if e.kind() == ErrorKind::ConnectionReset => Some(0),
                other => panic!("neither answered nor reset: {other:?}"),
            });
        }
        answered
    }

    #[track_caller]
    pub(super) fn assert_pong(&mut self, client: &Client, payload: &str) {
        let payload: Bytes = payload.to_owned().into();
        client.command(tungstenite::Message::Ping(payload.clone()));
        assert_eq!(self.answer_of(client), Ok(tungstenite::Message::Pong(payload)));
    }

    /// Lets the loop be idle until it limits nothing.
    pub(super) fn recover(&mut self) {
        self.busy = Duration::ZERO;
        let began = self.clock.elapsed();
        while self.metrics().overload_level > 0 {
            self.clock.advance(ms(10));
            self.by_hand.run_once(Duration::ZERO);
            assert!(self.clock.elapsed() - began < 60 * SECOND, "{:?}", self.metrics());
        }
    }
}
