//! Round trips of connections with one request in flight each, while the loop receives tasks.

use crate::{
    record::{Record, Snapshot, latencies, micros},
    stage::{Running, Stage, compute, offer_tasks, on},
};
use bytes::Bytes;
use hdrhistogram::Histogram;
use mio::{Events, Interest, Poll, Token, net::TcpStream};
use netwheel::{Error, codec::RawBytes, prelude::*};
use std::{
    io::{ErrorKind, Read, Write},
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

/// Requests in flight at any time.
const CONNECTIONS: usize = 64;

/// Time that the handler takes for a request.
const REQUEST: Duration = Duration::from_micros(20);

const SIZE: usize = 64;

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        compute(REQUEST);
        ctx.write(message)
    }
}

pub(crate) fn measure(ratio: u32, load: u32, time: Duration) -> Result<Record> {
    let stage = Stage::new(ratio)?;
    let server = ServerBootstrap::new(&stage.group)
        .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
        .bind("127.0.0.1:0")?;
    let tasks = offer_tasks(&stage.event_loop, load);
    let (counts, histogram) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(latencies())));
    let mut clients = Clients::connect(server.local_address(), histogram.clone(), counts.clone())?;
    let asking = Running::repeat(move |_| clients.step());
    stage.warm_up();
    let begin = Snapshot::take(&stage.event_loop);
    counts.store(true, Ordering::Relaxed);
    thread::sleep(time);
    counts.store(false, Ordering::Relaxed);
    let end = Snapshot::take(&stage.event_loop);
    drop(asking);
    drop(tasks);
    on(&stage.event_loop, || ());
    stage.end();
    let latencies = histogram.lock().map_err(|_| Error::other("a client has panicked"))?.clone();
    Ok(Record::new(latencies, &begin, &end))
}

struct Clients {
    poll: Poll,
    events: Events,
    clients: Vec<Client>,
    histogram: Arc<Mutex<Histogram<u64>>>,
    counts: Arc<AtomicBool>,
}

struct Client {
    stream: TcpStream,
    asked: Instant,
    /// Bytes of the reply that have not arrived.
    missing: usize,
}

impl Clients {
    fn connect(
        server: SocketAddr,
        histogram: Arc<Mutex<Histogram<u64>>>,
        counts: Arc<AtomicBool>,
    ) -> Result<Self> {
        let failed = |e| Error::other(format!("connecting: {e}"));
        let poll = Poll::new().map_err(failed)?;
        let connect = |n| {
            let stream = std::net::TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            let mut stream = TcpStream::from_std(stream);
            poll.registry().register(&mut stream, Token(n), Interest::READABLE)?;
            Ok(Client { stream, asked: Instant::now(), missing: 0 })
        };
        let mut clients =
            (0..CONNECTIONS).map(connect).collect::<std::io::Result<Vec<_>>>().map_err(failed)?;
        clients.iter_mut().for_each(Client::ask);
        Ok(Clients { poll, events: Events::with_capacity(CONNECTIONS), clients, histogram, counts })
    }

    /// Waits for replies, records their latency, and sends the next requests.
    fn step(&mut self) {
        // Limited, so that the end of the measurement is noticed.
        self.poll.poll(&mut self.events, Some(Duration::from_millis(50))).expect("polling");
        let counts = self.counts.load(Ordering::Relaxed);
        let mut histogram = self.histogram.lock().expect("no other thread has panicked");
        for event in &self.events {
            let client = &mut self.clients[event.token().0];
            if let Some(took) = client.answer() {
                if counts {
                    histogram.saturating_record(micros(took));
                }
                client.ask();
            }
        }
    }
}

impl Client {
    fn ask(&mut self) {
        (self.asked, self.missing) = (Instant::now(), SIZE);
        self.stream.write_all(&[7; SIZE]).expect("there is room for a request");
    }

    /// Returns the latency of the reply if it has arrived.
    fn answer(&mut self) -> Option<Duration> {
        while self.missing > 0 {
            match self.stream.read(&mut [0; SIZE]) {
                Ok(n) => self.missing -= n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return None,
                Err(e) => panic!("reading an answer: {e}"),
            }
        }
        Some(self.asked.elapsed())
    }
}
