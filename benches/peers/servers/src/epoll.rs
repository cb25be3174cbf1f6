//! Raw epoll without any library: the lower limit. One buffer for all reads, one read and one write
//! for each readiness event, no allocations on an open connection.
//!
//! A server for measurements, not for use: it is unbounded and ignores accept errors.

mod frames;
mod options;

use frames::Partial;
use options::{Mode, Options};
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
    time::Timespec,
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::Instant,
};

/// Idle time in seconds after which a connection is closed (`echo-frames-idle`).
const IDLE: i64 = 60;

struct Connection {
    stream: TcpStream,
    partial: Partial,
    /// Echo: bytes that the socket did not accept.
    unsent: Vec<u8>,
    /// Broadcast: position in the log.
    cursor: u64,
    /// Broadcast: the socket is full.
    late: bool,
    /// In seconds.
    last_read: i64,
}

struct Poll(OwnedFd);

impl Poll {
    fn add<F: AsFd + AsRawFd>(&self, fd: &F) -> io::Result<()> {
        let data = EventData::new_u64(fd.as_raw_fd() as u64);
        Ok(epoll::add(&self.0, fd, data, EventFlags::IN)?)
    }

    fn want(&self, stream: &TcpStream, flags: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(stream.as_raw_fd() as u64);
        Ok(epoll::modify(&self.0, stream, data, flags)?)
    }
}

const READ: EventFlags = EventFlags::IN;
const BOTH: EventFlags = EventFlags::IN.union(EventFlags::OUT);

/// Returns the number of bytes that the socket accepted, or 0 if it is full.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

impl Connection {
    fn send(&mut self, poll: &Poll, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let n = write_some(&mut self.stream, bytes)?;
        if n < bytes.len() {
            self.unsent.extend_from_slice(&bytes[n..]);
            poll.want(&self.stream, BOTH)?;
        }
        Ok(())
    }

    fn flush(&mut self, poll: &Poll) -> io::Result<()> {
        let n = write_some(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..n);
        if self.unsent.is_empty() { poll.want(&self.stream, READ) } else { Ok(()) }
    }
}

/// Broadcast: all members receive the same bytes, so the log has one copy, and every member has a
/// position in it.
#[derive(Default)]
struct Log {
    bytes: Vec<u8>,
    /// Position of the start of `bytes`.
    base: u64,
}

impl Log {
    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    fn flush(&mut self, poll: &Poll, connections: &mut [Option<Connection>]) -> io::Result<()> {
        let (end, mut least) = (self.end(), self.end());
        for slot in connections {
            let Some(member) = slot else { continue };
            if member.cursor < end && !member.late {
                let Ok(n) =
                    write_some(&mut member.stream, &self.bytes[(member.cursor - self.base) as usize..])
                else {
                    *slot = None;
                    continue;
                };
                member.cursor += n as u64;
                if member.cursor < end {
                    member.late = true;
                    poll.want(&member.stream, BOTH)?;
                }
            }
            least = least.min(member.cursor);
        }
        self.bytes.drain(..(least - self.base) as usize);
        self.base = least;
        Ok(())
    }
}

struct Server {
    mode: Mode,
    poll: Poll,
    listener: TcpListener,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    log: Log,
    buffer: Vec<u8>,
    out: Vec<u8>,
}

impl Server {
    fn accept(&mut self, now: i64) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            self.poll.add(&stream)?;
            let at = stream.as_raw_fd() as usize;
            self.connections.resize_with(self.connections.len().max(at + 1), || None);
            self.connections[at] = Some(Connection {
                stream,
                partial: Partial::default(),
                unsent: Vec::new(),
                cursor: self.log.end(),
                late: false,
                last_read: now,
            });
        }
        Ok(())
    }

    fn serve(&mut self, at: usize, flags: EventFlags, now: i64) {
        // Dropping the connection closes it, which also deregisters it.
        if self.try_serve(at, flags, now).is_err() {
            self.connections[at] = None;
        }
    }

    fn try_serve(&mut self, at: usize, flags: EventFlags, now: i64) -> io::Result<()> {
        let Server { mode, poll, connections, log, buffer, out, .. } = self;
        let Some(connection) = connections[at].as_mut() else { return Ok(()) };
        if flags.contains(EventFlags::OUT) {
            if *mode == Mode::Broadcast {
                connection.late = false;
                poll.want(&connection.stream, READ)?;
            } else {
                connection.flush(poll)?;
            }
        }
        if (flags - EventFlags::OUT).is_empty() {
            return Ok(());
        }
        let n = match connection.stream.read(buffer) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        connection.last_read = now;
        match mode {
            Mode::EchoRaw => connection.send(poll, &buffer[..n]),
            Mode::Broadcast => connection.partial.take(&buffer[..n], &mut log.bytes),
            Mode::EchoFrames | Mode::EchoFramesIdle => {
                out.clear();
                connection.partial.take(&buffer[..n], out)?;
                if out.is_empty() { Ok(()) } else { connection.send(poll, out) }
            }
            // Refused at the start.
            Mode::Http | Mode::Ws | Mode::WsBroadcast => Err(ErrorKind::Unsupported.into()),
        }
    }

    fn close_idle(&mut self, now: i64) {
        for slot in &mut self.connections {
            if slot.as_ref().is_some_and(|connection| now - connection.last_read > IDLE) {
                *slot = None;
            }
        }
    }
}

fn main() -> io::Result<()> {
    let all = [Mode::EchoRaw, Mode::EchoFrames, Mode::EchoFramesIdle, Mode::Broadcast];
    let options = Options::of(1, &all)?;
    let listener = options.listen()?;
    let poll = Poll(epoll::create(epoll::CreateFlags::CLOEXEC)?);
    poll.add(&listener)?;
    let accepting = listener.as_raw_fd() as u64;
    let mut server = Server {
        mode: options.mode,
        poll,
        listener,
        connections: Vec::new(),
        log: Log::default(),
        buffer: vec![0; 64 * 1024],
        out: Vec::new(),
    };
    // Only the mode that closes idle connections reads the clock. It reads it once in a turn, and
    // checks the connections once a second.
    let with_idle = server.mode == Mode::EchoFramesIdle;
    // This uses the standard library, because rustix reads the clock without libc, which does not
    // work under valgrind.
    let origin = Instant::now();
    let seconds = || if with_idle { origin.elapsed().as_secs() as i64 } else { 0 };
    let second = Timespec { tv_sec: 1, tv_nsec: 0 };
    let mut swept = seconds();
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&server.poll.0, spare_capacity(&mut events), with_idle.then_some(&second)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        let now = seconds();
        for event in &events {
            let (fd, flags) = (event.data.u64(), event.flags);
            if fd == accepting {
                server.accept(now)?;
            } else {
                server.serve(fd as usize, flags, now);
            }
        }
        if !server.log.bytes.is_empty() {
            server.log.flush(&server.poll, &mut server.connections)?;
        }
        if now > swept {
            swept = now;
            server.close_idle(now);
        }
    }
}
