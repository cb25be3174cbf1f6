//! Many connections start their TLS handshakes at the same time, while established ones send at a
//! fixed rate. Measures the latency of the established connections.
//!
//! The generator has one thread too, so it does one step of one handshake at a time and looks after
//! the established connections in between. Its own work delays a reply by less than a millisecond.

use crate::{
    Options,
    echo::{Connection, Run},
    report::Report,
    sys::{Epoll, Ready},
};
use std::{
    collections::VecDeque,
    io,
    time::{Duration, Instant},
};

/// Messages per second of each established connection.
const RATE: u64 = 200;

/// Number of handshakes that start between two looks at the established connections.
const STARTS: usize = 8;

/// Maximum time for all handshakes.
const PATIENCE: Duration = Duration::from_secs(30);

/// The connections that do handshakes.
struct Storm {
    connections: Vec<Option<Connection>>,
    poll: Epoll,
    /// Readiness that was reported but not handled.
    ready: VecDeque<Ready>,
    started: usize,
    /// Number of connections whose handshake and echo are complete.
    done: usize,
    failed: usize,
}

impl Storm {
    /// Opens the connections, and queues the first flight of each.
    fn open(options: &Options, run: &mut Run) -> io::Result<Self> {
        let tls = options.client()?;
        let poll = Epoll::new()?;
        let mut connections = Vec::new();
        for n in 0..options.storm {
            let mut connection = Connection::open(options, tls.as_ref(), options.connections + n)?;
            connection.queue(0, run)?;
            poll.add(&connection.wire.stream, n)?;
            connections.push(Some(connection));
        }
        Ok(Storm { connections, poll, ready: VecDeque::new(), started: 0, done: 0, failed: 0 })
    }

    fn is_over(&self) -> bool {
        self.done + self.failed == self.connections.len()
    }

    /// Starts some handshakes, or goes on with one.
    fn step(&mut self, run: &mut Run) -> io::Result<()> {
        if self.started < self.connections.len() {
            for connection in self.connections.iter_mut().skip(self.started).take(STARTS).flatten() {
                connection.wire.flush()?;
            }
            self.started = (self.started + STARTS).min(self.connections.len());
            return Ok(());
        }
        if self.ready.is_empty() {
            let ready = self.poll.poll(Duration::ZERO)?;
            self.ready.extend((0..ready).map(|n| self.poll.ready(n)));
        }
        let Some(ready) = self.ready.pop_front() else { return Ok(()) };
        let slot = &mut self.connections[ready.token];
        let Some(connection) = slot else { return Ok(()) };
        let waited = connection.in_flight() > 0;
        // A finished connection stays open until the end, like that of a real client.
        match connection.reply(ready, run) {
            true if waited && connection.in_flight() == 0 => self.done += 1,
            true => {}
            false => {
                self.failed += usize::from(waited);
                *slot = None;
            }
        }
        Ok(())
    }
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    if options.storm == 0 || options.connections == 0 {
        return Err(io::Error::other("a storm needs --storm and --connections"));
    }
    let tls = options.client()?;
    let mut run = Run::new(options)?;
    let mut poll = Epoll::new()?;
    let mut established = Vec::new();
    for n in 0..options.connections {
        let connection = Connection::open(options, tls.as_ref(), n)?;
        poll.add(&connection.wire.stream, n)?;
        established.push(connection);
    }
    let mut storm = Storm::open(options, &mut run)?;
    // The first message of each connection includes its handshake, so it is before the schedule.
    for connection in &mut established {
        connection.send(1, run.window.now(), &mut run)?;
    }
    let began = Instant::now();
    while established.iter().any(|connection| connection.in_flight() > 0) {
        let ready = poll.wait()?;
        for n in 0..ready {
            let ready = poll.ready(n);
            if !established[ready.token].serve(ready, &mut run, false) {
                return Err(io::Error::other("an established connection has failed"));
            }
        }
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("the connections are not established in time"));
        }
    }
    let interval = 1_000_000_000 / (RATE * options.connections as u64);
    let from = run.window.now();
    let warm_until = from + (options.warmup * 1e9) as u64;
    let (mut sent, mut stormy_since, mut over) = (0, None, None);
    loop {
        let now = run.window.now();
        if stormy_since.is_none() && now >= warm_until {
            run.window.open();
            stormy_since = Some(now);
        }
        if stormy_since.is_some() && over.is_none() {
            storm.step(&mut run)?;
            if storm.is_over() {
                over = Some(run.window.now());
            } else if now - warm_until > PATIENCE.as_nanos() as u64 {
                over = Some(now);
            }
        }
        // After the storm no message is sent, but every reply counts.
        while over.is_none() && from + sent * interval <= run.window.now() {
            let at = (sent % established.len() as u64) as usize;
            established[at].send(1, from + sent * interval, &mut run)?;
            sent += 1;
        }
        if over.is_some_and(|over| {
            run.window.now() - over > PATIENCE.as_nanos() as u64
                || established.iter().all(|connection| connection.in_flight() == 0)
        }) {
            break;
        }
        let busy = stormy_since.is_some() && over.is_none();
        let wait = if busy { Duration::ZERO } else { Duration::from_nanos(interval) };
        let ready = poll.poll(wait)?;
        for n in 0..ready {
            let ready = poll.ready(n);
            if !established[ready.token].serve(ready, &mut run, false) {
                return Err(io::Error::other("an established connection has failed"));
            }
        }
    }
    let mut report = run.window.report(options.size);
    let lost: usize = established.iter().map(Connection::in_flight).sum();
    let nanoseconds = over.unwrap_or(0).saturating_sub(stormy_since.unwrap_or(0));
    report.put("handshakes", storm.done as f64);
    report.put("storm_ms", nanoseconds as f64 / 1e6);
    report.put("errors", (lost + options.storm - storm.done) as f64);
    Ok(report)
}
