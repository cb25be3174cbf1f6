//! Connects, does one echo and closes, with a fixed number of connections at a time.

use crate::{
    Options,
    message::Message,
    report::{Report, Window},
    sys::{Epoll, connect, source},
    tls::{Handshakes, Tls},
    wire::{Buffers, Wire},
};
use std::io::{self, Read, Write};

/// Number of source addresses over which connections are spread, because closed ones stay in
/// TIME-WAIT for a minute.
const SOURCES: u64 = 5_000;

/// Number of errors at which a run ends.
const MAX_ERRORS: u64 = 100;

struct Slot {
    wire: Wire,
    seq: u64,
    began: u64,
    /// Bytes of the reply that have arrived.
    offset: usize,
}

/// Gets the tickets for the first resumption of a slot.
fn prime(options: &Options, tls: &Tls, message: &Message) -> io::Result<()> {
    let mut bytes = Vec::new();
    message.append(&mut bytes, 0, 0);
    let mut wire = Wire::new(connect(options.addr, source(0))?, Some(tls.connection()?));
    wire.write_all(&bytes)?;
    wire.read_exact(&mut bytes)?;
    wire.end();
    Ok(())
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    let message = Message::new(options.size, options.frames)?;
    let mut poll = Epoll::new()?;
    let mut clients = Vec::new();
    for _ in 0..options.connections {
        let tls = options.client()?;
        if let Some(tls) = tls.as_ref().filter(|tls| tls.handshakes == Handshakes::Resumed) {
            prime(options, tls, &message)?;
        }
        clients.push(tls);
    }
    let mut window = Window::new(options)?;
    let (mut seq, mut bytes) = (0, Vec::new());
    // Returns `None` when all operations of the run have started.
    let mut open = |poll: &Epoll, window: &mut Window, token: usize| -> io::Result<Option<Slot>> {
        if window.begin(1) == 0 {
            return Ok(None);
        }
        let began = window.now();
        let stream = connect(options.addr, source((seq % SOURCES) as usize))?;
        bytes.clear();
        message.append(&mut bytes, token as u32, seq);
        stream.set_nonblocking(true)?;
        let tls = clients[token].as_ref().map(Tls::connection).transpose()?;
        let mut wire = Wire::new(stream, tls);
        wire.send(&bytes)?;
        if wire.wants_write() {
            return Err(io::Error::other("the first message does not fit into the socket's buffer"));
        }
        poll.add(&wire.stream, token)?;
        seq += 1;
        Ok(Some(Slot { wire, seq: seq - 1, began, offset: 0 }))
    };
    let mut slots = Vec::new();
    for token in 0..options.connections {
        slots.push(open(&poll, &mut window, token)?);
    }
    let mut buffers = Buffers::new();
    let mut report = None;
    loop {
        // After the measured time no connection is opened, but every reply must arrive.
        if !window.tick() && report.is_none() {
            report = Some(window.report(options.size));
        }
        let waiting = slots.iter().flatten().count();
        if waiting == 0 || window.errors > MAX_ERRORS {
            break;
        }
        let ready = poll.wait()?;
        if window.stalled(ready > 0) {
            window.errors += waiting as u64;
            break;
        }
        for n in 0..ready {
            let token = poll.ready(n).token;
            let Some(slot) = slots[token].as_mut() else { continue };
            let received = slot.wire.receive(&mut buffers);
            let kind = clients[token].as_ref().is_none_or(|tls| tls.is_kind(slot.wire.handshake()));
            match received {
                // The handshake goes on.
                Ok(0) if clients[token].is_some() => continue,
                Ok(n) if n > 0 && kind && n <= message.len() - slot.offset => {
                    let bytes = &buffers.plain[..n];
                    if message.matches(token as u32, slot.seq, slot.offset, bytes) {
                        slot.offset += n;
                        if slot.offset < message.len() {
                            continue;
                        }
                        window.record(window.now() - slot.began);
                        slot.wire.end();
                    } else {
                        window.errors += 1;
                    }
                }
                _ => window.errors += 1,
            }
            // Dropping the finished connection closes it.
            slots[token] = if report.is_none() { open(&poll, &mut window, token)? } else { None };
        }
    }
    let mut report = report.unwrap_or_else(|| window.report(options.size));
    report.put("errors", window.errors as f64);
    Ok(report)
}
