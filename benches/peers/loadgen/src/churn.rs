//! Connects, does one echo and closes, with a fixed number of connections at a time.

use crate::{
    Options,
    message::{Message, write_some},
    report::{Report, Window},
    sys::{Epoll, connect, source},
};
use std::{
    io::{self, Read},
    net::TcpStream,
};

/// Number of source addresses over which connections are spread, because closed ones stay in
/// TIME-WAIT for a minute.
const SOURCES: u64 = 5_000;

/// Number of errors at which a run ends.
const MAX_ERRORS: u64 = 100;

struct Slot {
    stream: TcpStream,
    seq: u64,
    began: u64,
    /// Bytes of the reply that have arrived.
    offset: usize,
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    let message = Message::new(options.size, options.frames)?;
    let mut poll = Epoll::new()?;
    let mut window = Window::new(options)?;
    let (mut seq, mut bytes) = (0, Vec::new());
    // Returns `None` when all operations of the run have started.
    let mut open = |poll: &Epoll, window: &mut Window, token: usize| -> io::Result<Option<Slot>> {
        if window.begin(1) == 0 {
            return Ok(None);
        }
        let began = window.now();
        let mut stream = connect(options.addr, source((seq % SOURCES) as usize))?;
        bytes.clear();
        message.append(&mut bytes, token as u32, seq);
        stream.set_nonblocking(true)?;
        if write_some(&mut stream, &bytes)? < bytes.len() {
            return Err(io::Error::other("the first message does not fit into the socket's buffer"));
        }
        poll.add(&stream, token)?;
        seq += 1;
        Ok(Some(Slot { stream, seq: seq - 1, began, offset: 0 }))
    };
    let mut slots = Vec::new();
    for token in 0..options.connections {
        slots.push(open(&poll, &mut window, token)?);
    }
    let mut buffer = vec![0; 64 * 1024];
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
            let n = slot.stream.read(&mut buffer).unwrap_or(0);
            let fits = n > 0 && n <= message.len() - slot.offset;
            if !fits || !message.matches(token as u32, slot.seq, slot.offset, &buffer[..n]) {
                window.errors += 1;
            } else {
                slot.offset += n;
                if slot.offset < message.len() {
                    continue;
                }
                window.record(window.now() - slot.began);
            }
            // Dropping the finished connection closes it.
            slots[token] = if report.is_none() { open(&poll, &mut window, token)? } else { None };
        }
    }
    let mut report = report.unwrap_or_else(|| window.report(options.size));
    report.put("errors", window.errors as f64);
    Ok(report)
}
