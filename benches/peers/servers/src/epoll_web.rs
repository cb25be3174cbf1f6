//! HTTP/1.1 and WebSocket over raw epoll, written by hand around httparse: the lower limits. One
//! buffer for all reads, one read and one write for each readiness event.
//!
//! A server for measurements, not for use: it is unbounded, ignores accept errors, and makes only
//! necessary checks. It does not support bodies of requests, limits, fragments or control frames.

mod options;
mod web;

use options::{Mode, Options};
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsFd, AsRawFd, OwnedFd},
    time::{Duration, Instant, SystemTime},
};

/// Most headers of a request.
const HEADERS: usize = 100;

struct Connection {
    stream: TcpStream,
    /// A partially received request or frame.
    partial: Vec<u8>,
    /// Bytes that the socket did not accept.
    unsent: Vec<u8>,
    /// WebSocket: the handshake is done.
    is_open: bool,
}

/// The response, with the date of the current second.
struct Response {
    bytes: Vec<u8>,
    at: Instant,
}

const DATE: usize = b"HTTP/1.1 200 OK\r\nDate: ".len();

impl Response {
    fn new() -> Self {
        let (date, body) = (httpdate::fmt_http_date(SystemTime::now()), web::BODY);
        let head = format!("HTTP/1.1 200 OK\r\nDate: {date}\r\nContent-Length: {}\r\n", body.len());
        let bytes = format!("{head}Content-Type: {}\r\n\r\n{body}", web::CONTENT_TYPE).into_bytes();
        Response { bytes, at: Instant::now() }
    }

    fn renew(&mut self) {
        if self.at.elapsed() >= Duration::from_secs(1) {
            self.at = Instant::now();
            let date = httpdate::fmt_http_date(SystemTime::now());
            self.bytes[DATE..DATE + date.len()].copy_from_slice(date.as_bytes());
        }
    }
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
            poll.want(&self.stream, EventFlags::IN | EventFlags::OUT)?;
        }
        Ok(())
    }

    fn flush(&mut self, poll: &Poll) -> io::Result<()> {
        let n = write_some(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..n);
        if self.unsent.is_empty() { poll.want(&self.stream, EventFlags::IN) } else { Ok(()) }
    }

    /// Appends the answers to all complete messages in `bytes` to `out`. Keeps the rest.
    fn answer(&mut self, bytes: &[u8], mode: Mode, response: &Response, out: &mut Vec<u8>) -> io::Result<()> {
        if self.partial.is_empty() {
            let used = self.messages(bytes, mode, response, out)?;
            self.partial.extend_from_slice(&bytes[used..]);
        } else {
            let mut partial = std::mem::take(&mut self.partial);
            partial.extend_from_slice(bytes);
            let used = self.messages(&partial, mode, response, out)?;
            partial.drain(..used);
            self.partial = partial;
        }
        Ok(())
    }

    /// Returns the number of bytes used.
    fn messages(
        &mut self,
        bytes: &[u8],
        mode: Mode,
        response: &Response,
        out: &mut Vec<u8>,
    ) -> io::Result<usize> {
        let mut at = 0;
        while at < bytes.len() {
            let rest = &bytes[at..];
            let used = match (mode, self.is_open) {
                (Mode::Http, _) => request(rest, |_| out.extend_from_slice(&response.bytes))?,
                (_, false) => {
                    let used = request(rest, |key| shake_hands(key, out))?;
                    self.is_open = used > 0;
                    used
                }
                (_, true) => frame(rest, out)?,
            };
            if used == 0 {
                break;
            }
            at += used;
        }
        Ok(at)
    }
}

/// Parses a request for `/` without a body, and calls `answer` with the key of a handshake. Returns
/// its length, or 0 if it is incomplete.
fn request(bytes: &[u8], answer: impl FnOnce(&[u8])) -> io::Result<usize> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let parsed = request.parse(bytes).map_err(io::Error::other)?;
    let httparse::Status::Complete(length) = parsed else { return Ok(0) };
    if (request.method, request.path) != (Some("GET"), Some("/")) {
        return Err(ErrorKind::InvalidData.into());
    }
    let mut key: &[u8] = b"";
    for header in request.headers.iter() {
        let name = header.name;
        // A server must look at these two, which decide where the next request starts.
        if name.eq_ignore_ascii_case("Content-Length") || name.eq_ignore_ascii_case("Transfer-Encoding") {
            return Err(ErrorKind::InvalidData.into());
        }
        if name.eq_ignore_ascii_case("Sec-WebSocket-Key") {
            key = header.value;
        }
    }
    answer(key);
    Ok(length)
}

/// Appends the response to a handshake with that key.
fn shake_hands(key: &[u8], out: &mut Vec<u8>) {
    let mut hash = sha1_smol::Sha1::new();
    hash.update(key);
    hash.update(b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11");
    out.extend_from_slice(
        b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n",
    );
    out.extend_from_slice(b"Sec-WebSocket-Accept: ");
    base64(&hash.digest().bytes(), out);
    out.extend_from_slice(b"\r\n\r\n");
}

fn base64(bytes: &[u8], out: &mut Vec<u8>) {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for group in bytes.chunks(3) {
        let byte = |n: usize| u32::from(group.get(n).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        for n in 0..4 {
            let digit = DIGITS[(bits >> (18 - 6 * n) & 63) as usize];
            out.push(if n > group.len() { b'=' } else { digit });
        }
    }
}

/// Appends the echo of a masked binary frame. Returns the frame's length, or 0 if it is incomplete.
fn frame(bytes: &[u8], out: &mut Vec<u8>) -> io::Result<usize> {
    let [0x82, second, ..] = bytes else {
        return if bytes.len() < 2 { Ok(0) } else { Err(ErrorKind::InvalidData.into()) };
    };
    let header = match second & 0x7f {
        126 => 4,
        127 => 10,
        _ => 2,
    };
    if bytes.len() < header + 4 {
        return Ok(0);
    }
    let length = match header {
        4 => usize::from(u16::from_be_bytes([bytes[2], bytes[3]])),
        10 => bytes[2..10].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
        _ => usize::from(second & 0x7f),
    };
    if second & 0x80 == 0 || length > 1 << 20 {
        return Err(ErrorKind::InvalidData.into());
    }
    let mask = u32::from_ne_bytes([bytes[header], bytes[header + 1], bytes[header + 2], bytes[header + 3]]);
    let Some(masked) = bytes.get(header + 4..header + 4 + length) else { return Ok(0) };
    out.extend_from_slice(&[0x82, second & 0x7f]);
    out.extend_from_slice(&bytes[2..header]);
    unmask(masked, mask, out);
    Ok(header + 4 + length)
}

fn unmask(masked: &[u8], mask: u32, out: &mut Vec<u8>) {
    let from = out.len();
    out.extend_from_slice(masked);
    let wide = u64::from(mask) << 32 | u64::from(mask);
    let mut words = out[from..].chunks_exact_mut(8);
    for word in &mut words {
        let bytes: [u8; 8] = word.try_into().unwrap_or_default();
        word.copy_from_slice(&(u64::from_ne_bytes(bytes) ^ wide).to_ne_bytes());
    }
    let mask = mask.to_ne_bytes();
    words.into_remainder().iter_mut().enumerate().for_each(|(n, byte)| *byte ^= mask[n % 4]);
}

struct Server {
    mode: Mode,
    poll: Poll,
    listener: TcpListener,
    /// By descriptor.
    connections: Vec<Option<Connection>>,
    response: Response,
    buffer: Vec<u8>,
    out: Vec<u8>,
}

impl Server {
    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            self.poll.add(&stream)?;
            let at = stream.as_raw_fd() as usize;
            self.connections.resize_with(self.connections.len().max(at + 1), || None);
            let (partial, unsent) = (Vec::new(), Vec::new());
            self.connections[at] = Some(Connection { stream, partial, unsent, is_open: false });
        }
        Ok(())
    }

    fn serve(&mut self, at: usize, flags: EventFlags) -> io::Result<()> {
        let Server { mode, poll, connections, response, buffer, out, .. } = self;
        let Some(connection) = connections[at].as_mut() else { return Ok(()) };
        if flags.contains(EventFlags::OUT) {
            connection.flush(poll)?;
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
        out.clear();
        connection.answer(&buffer[..n], *mode, response, out)?;
        if out.is_empty() { Ok(()) } else { connection.send(poll, out) }
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::Http, Mode::Ws])?;
    let listener = options.listen()?;
    let poll = Poll(epoll::create(epoll::CreateFlags::CLOEXEC)?);
    poll.add(&listener)?;
    let accepting = listener.as_raw_fd() as u64;
    let mut server = Server {
        mode: options.mode,
        poll,
        listener,
        connections: Vec::new(),
        response: Response::new(),
        buffer: vec![0; 64 * 1024],
        out: Vec::new(),
    };
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&server.poll.0, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        if server.mode == Mode::Http {
            server.response.renew();
        }
        for event in &events {
            let (fd, flags) = (event.data.u64(), event.flags);
            if fd == accepting {
                server.accept()?;
            } else if server.serve(fd as usize, flags).is_err() {
                // Dropping the connection closes it, which also deregisters it.
                server.connections[fd as usize] = None;
            }
        }
    }
}
