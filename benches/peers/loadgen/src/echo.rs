//! Connections with a fixed number of messages in flight each, optionally beside idle connections.

use crate::{
    Options,
    idle::Idle,
    message::{Message, write_some},
    report::{Report, Window},
    sys::{Epoll, PER_SOURCE, Ready, connect, source},
};
use std::{
    collections::VecDeque,
    io::{self, ErrorKind, Read},
    net::TcpStream,
};

struct Connection {
    stream: TcpStream,
    id: u32,
    next_seq: u64,
    /// The message whose reply is next, and the number of its bytes that have arrived.
    expect: u64,
    offset: usize,
    sent_at: VecDeque<u64>,
    unsent: Vec<u8>,
}

/// State that all connections of a run share.
struct Run {
    message: Message,
    window: Window,
    scratch: Vec<u8>,
    buffer: Vec<u8>,
}

impl Connection {
    fn open(options: &Options, n: usize) -> io::Result<Self> {
        let stream = connect(options.addr, source((options.idle + n) / PER_SOURCE))?;
        stream.set_nonblocking(true)?;
        Ok(Connection {
            stream,
            id: n as u32,
            next_seq: 0,
            expect: 0,
            offset: 0,
            sent_at: VecDeque::with_capacity(options.pipeline),
            unsent: Vec::new(),
        })
    }

    fn wants_write(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// Sends up to `n` more messages, limited by the operations left, and keeps the bytes that the
    /// socket does not accept.
    fn send(&mut self, n: usize, now: u64, run: &mut Run) -> io::Result<()> {
        run.scratch.clear();
        for _ in 0..run.window.begin(n) {
            run.message.append(&mut run.scratch, self.id, self.next_seq);
            self.next_seq += 1;
            self.sent_at.push_back(now);
        }
        let done = if self.wants_write() { 0 } else { write_some(&mut self.stream, &run.scratch)? };
        self.unsent.extend_from_slice(&run.scratch[done..]);
        Ok(())
    }

    /// Compares received bytes with the sent ones. Returns the number of completed messages, or
    /// `None` if a byte is wrong.
    fn receive(
        &mut self,
        mut bytes: &[u8],
        now: u64,
        message: &Message,
        window: &mut Window,
    ) -> Option<usize> {
        let mut whole = 0;
        while !bytes.is_empty() {
            let n = bytes.len().min(message.len() - self.offset);
            if self.sent_at.is_empty() || !message.matches(self.id, self.expect, self.offset, &bytes[..n]) {
                return None;
            }
            bytes = &bytes[n..];
            self.offset += n;
            if self.offset == message.len() {
                self.offset = 0;
                self.expect += 1;
                whole += 1;
                window.record(now - self.sent_at.pop_front()?);
            }
        }
        Some(whole)
    }

    /// Handles readiness. Returns `false` if the connection has failed.
    fn serve(&mut self, ready: Ready, run: &mut Run, more: bool) -> bool {
        if ready.write && self.wants_write() {
            match write_some(&mut self.stream, &self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(_) => return false,
            }
        }
        if !ready.read {
            return true;
        }
        match self.stream.read(&mut run.buffer) {
            Ok(0) => false,
            Ok(n) => {
                let now = run.window.now();
                match self.receive(&run.buffer[..n], now, &run.message, &mut run.window) {
                    Some(whole) if whole == 0 || !more => true,
                    Some(whole) => self.send(whole, now, run).is_ok(),
                    None => false,
                }
            }
            Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
        }
    }
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    let idle = Idle::open(options, options.idle)?;
    let mut poll = Epoll::new()?;
    let mut connections = Vec::new();
    for n in 0..options.connections {
        let connection = Connection::open(options, n)?;
        poll.add(&connection.stream, n)?;
        connections.push(Some(connection));
    }
    let mut run = Run {
        message: Message::new(options.size, options.frames)?,
        window: Window::new(options)?,
        scratch: Vec::new(),
        buffer: vec![0; 256 * 1024],
    };
    for (n, connection) in connections.iter_mut().flatten().enumerate() {
        connection.send(options.pipeline, run.window.now(), &mut run)?;
        if connection.wants_write() {
            poll.want_write(&connection.stream, n, true)?;
        }
    }
    let mut alive = connections.len();
    let mut report = None;
    while alive > 0 {
        // After the measured time no message is sent, but every reply must arrive.
        if !run.window.tick() && report.is_none() {
            report = Some(run.window.report(options.size));
        }
        let waiting = |connections: &[Option<Connection>]| {
            connections.iter().flatten().filter(|connection| !connection.sent_at.is_empty()).count()
        };
        if report.is_some() && waiting(&connections) == 0 {
            break;
        }
        let ready = poll.wait()?;
        if run.window.stalled(ready > 0) {
            run.window.errors += waiting(&connections) as u64;
            break;
        }
        for n in 0..ready {
            let ready = poll.ready(n);
            let Some(connection) = connections[ready.token].as_mut() else { continue };
            let wanted = connection.wants_write();
            if !connection.serve(ready, &mut run, report.is_none()) {
                run.window.errors += 1;
                alive -= 1;
                connections[ready.token] = None;
            } else if connection.wants_write() != wanted {
                poll.want_write(&connection.stream, ready.token, !wanted)?;
            }
        }
    }
    let mut report = report.unwrap_or_else(|| run.window.report(options.size));
    report.put("errors", (run.window.errors + idle.errors + idle.disturbed()?) as f64);
    Ok(report)
}
