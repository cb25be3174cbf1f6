//! Connections with a fixed number of messages in flight each, optionally beside idle connections.

use crate::{
    Options,
    idle::Idle,
    message::Message,
    report::{Report, Window},
    sys::{Epoll, PER_SOURCE, Ready, connect, source},
    tls::Tls,
    web::Web,
    wire::{Buffers, Wire},
};
use std::{collections::VecDeque, io};

pub(crate) struct Connection {
    pub(crate) wire: Wire,
    id: u32,
    next_seq: u64,
    /// The message whose reply is next, and the number of its bytes that have arrived.
    expect: u64,
    offset: usize,
    /// An incomplete message of the protocol.
    partial: Vec<u8>,
    sent_at: VecDeque<u64>,
}

/// State that all connections of a run share.
pub(crate) struct Run {
    pub(crate) message: Message,
    web: Option<Web>,
    pub(crate) window: Window,
    scratch: Vec<u8>,
    payload: Vec<u8>,
    pub(crate) buffers: Buffers,
}

impl Run {
    pub(crate) fn new(options: &Options) -> io::Result<Self> {
        Ok(Run {
            message: Message::new(options.size, options.frames)?,
            web: options.web(),
            window: Window::new(options)?,
            scratch: Vec::new(),
            payload: Vec::new(),
            buffers: Buffers::new(),
        })
    }

    /// Appends a message to the messages that are sent next.
    fn append(&mut self, connection: u32, seq: u64) -> io::Result<()> {
        let Some(web) = &mut self.web else {
            self.message.append(&mut self.scratch, connection, seq);
            return Ok(());
        };
        self.payload.clear();
        self.message.append(&mut self.payload, connection, seq);
        web.append(&mut self.scratch, &self.payload)
    }
}

impl Connection {
    pub(crate) fn open(options: &Options, tls: Option<&Tls>, n: usize) -> io::Result<Self> {
        let mut stream = connect(options.addr, source((options.idle + n) / PER_SOURCE))?;
        if let Some(web) = options.web() {
            web.open(&mut stream)?;
        }
        stream.set_nonblocking(true)?;
        Ok(Connection {
            wire: Wire::new(stream, tls.map(Tls::connection).transpose()?),
            id: n as u32,
            next_seq: 0,
            expect: 0,
            offset: 0,
            partial: Vec::new(),
            sent_at: VecDeque::with_capacity(options.pipeline),
        })
    }

    /// Returns the number of messages whose reply is incomplete.
    pub(crate) fn in_flight(&self) -> usize {
        self.sent_at.len()
    }

    /// Sends up to `n` more messages, limited by the operations left. `now` is their start.
    pub(crate) fn send(&mut self, n: usize, now: u64, run: &mut Run) -> io::Result<()> {
        run.scratch.clear();
        for _ in 0..run.window.begin(n) {
            run.append(self.id, self.next_seq)?;
            self.next_seq += 1;
            self.sent_at.push_back(now);
        }
        self.wire.send(&run.scratch)
    }

    /// Queues a message, which is sent by the next flush.
    pub(crate) fn queue(&mut self, now: u64, run: &mut Run) -> io::Result<()> {
        run.scratch.clear();
        run.message.append(&mut run.scratch, self.id, self.next_seq);
        self.next_seq += 1;
        self.sent_at.push_back(now);
        self.wire.queue(&run.scratch)
    }

    /// Compares received bytes with the sent ones. Returns the number of completed messages, or
    /// `None` if a byte is wrong.
    fn receive(&mut self, mut bytes: &[u8], message: &Message, mut record: impl FnMut(u64)) -> Option<usize> {
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
                record(self.sent_at.pop_front()?);
            }
        }
        Some(whole)
    }

    /// Like `receive`, with a protocol.
    fn receive_messages(
        &mut self,
        bytes: &[u8],
        web: &mut Web,
        message: &Message,
        mut record: impl FnMut(u64),
    ) -> Option<usize> {
        let mut partial = std::mem::take(&mut self.partial);
        let bytes = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        let (mut used, mut whole, is_http) = (0, 0, web.is_http());
        while let Some((length, payload)) = web.split(&bytes[used..]).ok()? {
            let right = payload.len() == message.len() && message.matches(self.id, self.expect, 0, payload);
            if !right && !is_http {
                return None;
            }
            used += length;
            whole += 1;
            self.expect += 1;
            record(self.sent_at.pop_front()?);
        }
        let rest = bytes[used..].to_vec();
        self.partial = rest;
        Some(whole)
    }

    /// Handles readiness without recording latencies. Returns `false` if the connection has failed.
    pub(crate) fn reply(&mut self, ready: Ready, run: &mut Run) -> bool {
        if ready.write && self.wire.flush().is_err() {
            return false;
        }
        let Ok(n) = self.wire.receive(&mut run.buffers) else { return false };
        self.receive(&run.buffers.plain[..n], &run.message, |_| {}).is_some()
    }

    /// Handles readiness. Returns `false` if the connection has failed.
    pub(crate) fn serve(&mut self, ready: Ready, run: &mut Run, more: bool) -> bool {
        if ready.write && self.wire.wants_write() && self.wire.flush().is_err() {
            return false;
        }
        if !ready.read {
            return true;
        }
        let Ok(n) = self.wire.receive(&mut run.buffers) else { return false };
        let now = run.window.now();
        let Run { buffers, message, web, window, .. } = run;
        let (bytes, record) = (&buffers.plain[..n], |sent_at| window.record(now - sent_at));
        let received = match web {
            Some(web) => self.receive_messages(bytes, web, message, record),
            None => self.receive(bytes, message, record),
        };
        match received {
            Some(whole) if whole == 0 || !more => true,
            Some(whole) => self.send(whole, now, run).is_ok(),
            None => false,
        }
    }
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    let tls = options.client()?;
    let idle = Idle::open(options, options.idle)?;
    let mut poll = Epoll::new()?;
    let mut connections = Vec::new();
    for n in 0..options.connections {
        let connection = Connection::open(options, tls.as_ref(), n)?;
        poll.add(&connection.wire.stream, n)?;
        connections.push(Some(connection));
    }
    let mut run = Run::new(options)?;
    for (n, connection) in connections.iter_mut().flatten().enumerate() {
        connection.send(options.pipeline, run.window.now(), &mut run)?;
        if connection.wire.wants_write() {
            poll.want_write(&connection.wire.stream, n, true)?;
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
            connections.iter().flatten().filter(|connection| connection.in_flight() > 0).count()
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
            let wanted = connection.wire.wants_write();
            if !connection.serve(ready, &mut run, report.is_none()) {
                run.window.errors += 1;
                alive -= 1;
                connections[ready.token] = None;
            } else if connection.wire.wants_write() != wanted {
                poll.want_write(&connection.wire.stream, ready.token, !wanted)?;
            }
        }
    }
    let mut report = report.unwrap_or_else(|| run.window.report(options.size));
    report.put("errors", (run.window.errors + idle.errors + idle.disturbed()?) as f64);
    Ok(report)
}
