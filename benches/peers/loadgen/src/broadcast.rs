//! Members, some of which send frames that the server forwards to all members.
//!
//! A message is complete when every member has received it. A sender keeps a fixed number of
//! incomplete messages.

use crate::{
    Options,
    message::pattern,
    report::{Report, Window},
    sys::{Epoll, PER_SOURCE, connect, source},
    web::Web,
    wire::write_some,
};
use std::{
    io::{self, ErrorKind, Read},
    net::TcpStream,
    thread::sleep,
    time::{Duration, Instant},
};

/// Length of the header of a payload: sender (u32), sequence number (u64), time (u64).
const HEAD: usize = 20;

/// The payload of the next message, and how it is framed.
struct Format {
    payload: Vec<u8>,
    /// `None`: a length of 4 bytes, big-endian, then the payload.
    web: Option<Web>,
    /// The next message.
    wire: Vec<u8>,
}

impl Format {
    fn new(options: &Options) -> io::Result<Self> {
        u32::try_from(options.size).map_err(io::Error::other)?;
        Ok(Format { payload: pattern(options.size).collect(), web: options.web(), wire: Vec::new() })
    }

    fn encode(&mut self) -> io::Result<&[u8]> {
        self.wire.clear();
        match &mut self.web {
            Some(web) => web.append(&mut self.wire, &self.payload)?,
            None => {
                self.wire.extend_from_slice(&(self.payload.len() as u32).to_be_bytes());
                self.wire.extend_from_slice(&self.payload);
            }
        }
        Ok(&self.wire)
    }
}

/// Returns the length of the first message in `bytes` and its payload, or `None` if it is
/// incomplete.
fn split<'a>(
    bytes: &'a [u8],
    size: usize,
    web: &'a mut Option<Web>,
) -> io::Result<Option<(usize, &'a [u8])>> {
    if let Some(web) = web {
        return web.split(bytes);
    }
    let Some(payload) = bytes.get(4..4 + size) else { return Ok(None) };
    if bytes[..4] != (size as u32).to_be_bytes() {
        return Err(ErrorKind::InvalidData.into());
    }
    Ok(Some((4 + size, payload)))
}

/// Sender number of a probe. Sending may start only when the server has accepted all members. The
/// server does not report that, so the generator sends probes, which are not counted.
const PROBE: u32 = u32::MAX;

/// Maximum time for all members to join.
const PATIENCE: Duration = Duration::from_secs(60);

/// Time that a server whose work is counted has for accepting before the first probe. One probe is
/// enough then, so that its cost is the same in each run.
const REST: Duration = Duration::from_secs(3);

struct Member {
    stream: TcpStream,
    /// The next sequence number expected from each sender.
    expect: Vec<u64>,
    /// A partially received message.
    partial: Vec<u8>,
    /// Set when the member has received something, because then it has been accepted.
    joined: bool,
}

struct Sender {
    next_seq: u64,
    /// Missing deliveries, by sequence number modulo the messages in flight.
    missing: Vec<u32>,
    /// Number of messages that the sender may still send.
    sendable: usize,
}

impl Sender {
    fn new(pipeline: usize) -> Self {
        Sender { next_seq: 0, missing: vec![0; pipeline], sendable: pipeline }
    }

    fn is_complete(&self) -> bool {
        self.sendable == self.missing.len()
    }

    /// Fills the header of `payload` for the next message.
    fn prepare(&mut self, number: usize, now: u64, members: usize, payload: &mut [u8]) {
        let slot = self.next_seq as usize % self.missing.len();
        self.missing[slot] = members as u32;
        self.sendable -= 1;
        payload[..4].copy_from_slice(&(number as u32).to_le_bytes());
        payload[4..12].copy_from_slice(&self.next_seq.to_le_bytes());
        payload[12..20].copy_from_slice(&now.to_le_bytes());
        self.next_seq += 1;
    }
}

pub(crate) fn run(options: &Options) -> io::Result<Report> {
    if options.size < HEAD || options.senders > options.connections {
        return Err(io::Error::other("the size is below 20, or there are more senders than members"));
    }
    if options.operations.is_some_and(|n| !n.is_multiple_of(options.connections as u64)) {
        return Err(io::Error::other(
            "operations is not a multiple of the members: each message is one operation per member",
        ));
    }
    let mut format = Format::new(options)?;
    let mut poll = Epoll::new()?;
    let mut members = Vec::new();
    for n in 0..options.connections {
        let mut stream = connect(options.addr, source(n / PER_SOURCE))?;
        if let Some(web) = &format.web {
            web.open(&mut stream)?;
        }
        stream.set_nonblocking(true)?;
        poll.add(&stream, n)?;
        members.push(Member { stream, expect: vec![0; options.senders], partial: Vec::new(), joined: false });
    }
    if options.operations.is_some() {
        sleep(REST);
    }
    until_joined(options, &mut members, &mut poll, &mut format)?;
    let mut senders: Vec<Sender> = (0..options.senders).map(|_| Sender::new(options.pipeline)).collect();
    let mut buffer = vec![0; 256 * 1024];
    let mut window = Window::new(options)?;
    let mut report = None;
    while window.errors == 0 {
        // After the measured time no message is sent, but every delivery must arrive.
        if !window.tick() && report.is_none() {
            report = Some(window.report(options.size));
        }
        if report.is_some() && senders.iter().all(Sender::is_complete) {
            break;
        }
        for (number, sender) in senders.iter_mut().enumerate() {
            while sender.sendable > 0 && report.is_none() && window.begin(options.connections) > 0 {
                sender.prepare(number, window.now(), options.connections, &mut format.payload);
                let wire = format.encode()?;
                if write_some(&mut members[number].stream, wire)? < wire.len() {
                    return Err(io::Error::other("a sender's socket is full"));
                }
            }
        }
        let ready = poll.wait()?;
        if window.stalled(ready > 0) {
            window.errors += senders.iter().flat_map(|s| &s.missing).map(|n| u64::from(*n)).sum::<u64>();
        }
        for n in 0..ready {
            let member = &mut members[poll.ready(n).token];
            match member.stream.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    let right = member.receive(&buffer[..n], &mut format, &mut senders, &mut window);
                    window.errors += u64::from(!right);
                }
                Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
                _ => window.errors += 1,
            }
        }
    }
    let mut report = report.unwrap_or_else(|| window.report(options.size));
    report.put("errors", window.errors as f64);
    Ok(report)
}

/// Sends probes until one has reached all members. Further probes may arrive later, at members that
/// had received one before the next was sent.
fn until_joined(
    options: &Options,
    members: &mut [Member],
    poll: &mut Epoll,
    format: &mut Format,
) -> io::Result<()> {
    let (mut window, mut buffer) = (Window::new(options)?, vec![0; 64 * 1024]);
    let began = Instant::now();
    format.payload[..4].copy_from_slice(&PROBE.to_le_bytes());
    format.encode()?;
    let mut ready = 0;
    while members.iter().any(|member| !member.joined) {
        if began.elapsed() > PATIENCE {
            return Err(io::Error::other("the server does not send to all members"));
        }
        // The previous probe has reached all members that had joined.
        if ready == 0 && write_some(&mut members[0].stream, &format.wire)? < format.wire.len() {
            return Err(io::Error::other("the first member's socket is full"));
        }
        ready = poll.wait()?;
        for n in 0..ready {
            let member = &mut members[poll.ready(n).token];
            let right = match member.stream.read(&mut buffer) {
                Ok(n) => n > 0 && member.receive(&buffer[..n], format, &mut [], &mut window),
                Err(e) => matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted),
            };
            if !right {
                return Err(io::Error::other("a member received wrong bytes, or was closed"));
            }
        }
    }
    Ok(())
}

impl Member {
    /// Returns `false` if a byte is wrong.
    fn receive(
        &mut self,
        bytes: &[u8],
        format: &mut Format,
        senders: &mut [Sender],
        window: &mut Window,
    ) -> bool {
        let now = window.now();
        let mut partial = std::mem::take(&mut self.partial);
        let bytes = if partial.is_empty() {
            bytes
        } else {
            partial.extend_from_slice(bytes);
            &partial
        };
        let Format { payload: expected, web, .. } = format;
        let mut used = 0;
        loop {
            match split(&bytes[used..], expected.len(), web) {
                Ok(Some((length, payload))) => {
                    if self.count(payload, expected, now, senders, window).is_none() {
                        return false;
                    }
                    used += length;
                }
                Ok(None) => break,
                Err(_) => return false,
            }
        }
        self.partial.extend_from_slice(&bytes[used..]);
        true
    }

    /// Checks one payload and counts the delivery. Returns `None` if it is not the next one of its
    /// sender.
    fn count(
        &mut self,
        message: &[u8],
        expected: &[u8],
        now: u64,
        senders: &mut [Sender],
        window: &mut Window,
    ) -> Option<()> {
        let number = u32::from_le_bytes(message.get(..4)?.try_into().ok()?);
        let seq = u64::from_le_bytes(message.get(4..12)?.try_into().ok()?);
        let sent_at = u64::from_le_bytes(message.get(12..20)?.try_into().ok()?);
        if message[HEAD..] != expected[HEAD..] {
            return None;
        }
        if number == PROBE {
            self.joined = true;
            return Some(());
        }
        let number = number as usize;
        let sender = senders.get_mut(number)?;
        if self.expect[number] != seq {
            return None;
        }
        self.expect[number] += 1;
        window.record(now.checked_sub(sent_at)?);
        let slot = seq as usize % sender.missing.len();
        sender.missing[slot] = sender.missing[slot].checked_sub(1)?;
        sender.sendable += usize::from(sender.missing[slot] == 0);
        Some(())
    }
}
