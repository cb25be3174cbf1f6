//! Raw epoll and rustls' unbuffered connections: the lower limit with TLS. One buffer each for
//! ciphertext, plaintext and sealed output, shared by all connections. One read and one write for
//! each readiness event. Idle connections do not have buffers.
//!
//! A server for measurements, not for use: it is unbounded, ignores accept errors, and waits for a
//! handshake forever.

mod options;
mod tls;

use options::{Mode, Options};
use rustix::{
    buffer::spare_capacity,
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};
use rustls::{
    ServerConfig,
    server::UnbufferedServerConnection,
    unbuffered::{ConnectionState, UnbufferedStatus},
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{TcpListener, TcpStream},
    os::fd::{AsRawFd, OwnedFd},
    sync::Arc,
};

/// Bytes of a read.
const READ: usize = 64 * 1024;

/// Bytes of the sealed output of one read. A record adds 22 bytes to at most 16 KiB of plaintext,
/// but a peer may send smaller records than the server.
const SEALED: usize = 2 * READ;

struct Connection {
    stream: TcpStream,
    tls: UnbufferedServerConnection,
    /// An incomplete record.
    partial: Vec<u8>,
    /// Bytes that the socket did not accept.
    unsent: Vec<u8>,
}

/// Buffers that all connections share.
struct Buffers {
    input: Vec<u8>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
}

/// Result of handling input.
struct Step {
    /// Bytes of the input that were consumed.
    used: usize,
    /// Bytes of output.
    sealed: usize,
    /// The peer has sent its `close_notify`, and the output ends with the server's.
    closed: bool,
}

/// Opens all complete records of `input`, and seals the plaintext.
fn advance(
    tls: &mut UnbufferedServerConnection,
    input: &mut [u8],
    plain: &mut Vec<u8>,
    sealed: &mut [u8],
) -> io::Result<Step> {
    let mut step = Step { used: 0, sealed: 0, closed: false };
    plain.clear();
    loop {
        let UnbufferedStatus { mut discard, state } = tls.process_tls_records(&mut input[step.used..]);
        let out = &mut sealed[step.sealed..];
        let mut last = false;
        match state.map_err(io::Error::other)? {
            ConnectionState::ReadTraffic(mut traffic) => {
                while let Some(record) = traffic.next_record() {
                    let record = record.map_err(io::Error::other)?;
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
            }
            ConnectionState::EncodeTlsData(mut data) => {
                step.sealed += data.encode(out).map_err(io::Error::other)?;
            }
            // The output of the whole step is sent with one write.
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::PeerClosed => step.closed = true,
            ConnectionState::WriteTraffic(mut traffic) => {
                if !plain.is_empty() {
                    step.sealed += traffic.encrypt(plain, out).map_err(io::Error::other)?;
                }
                if step.closed {
                    let out = &mut sealed[step.sealed..];
                    step.sealed += traffic.queue_close_notify(out).map_err(io::Error::other)?;
                }
                last = true;
            }
            _ => last = true,
        }
        step.used += discard;
        if last {
            return Ok(step);
        }
    }
}

impl Connection {
    /// Handles readiness for reading.
    fn read(&mut self, poll: &OwnedFd, buffers: &mut Buffers) -> io::Result<()> {
        let Buffers { input, plain, sealed } = buffers;
        let kept = self.partial.len();
        input[..kept].copy_from_slice(&self.partial);
        let n = match self.stream.read(&mut input[kept..]) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
            Err(e) => return Err(e),
        };
        let input = &mut input[..kept + n];
        let step = advance(&mut self.tls, input, plain, sealed)?;
        let rest = &input[step.used..];
        if rest.is_empty() {
            self.partial = Vec::new();
        } else {
            self.partial.clear();
            self.partial.extend_from_slice(rest);
        }
        if step.sealed > 0 {
            self.send(poll, &sealed[..step.sealed])?;
        }
        if step.closed { Err(ErrorKind::UnexpectedEof.into()) } else { Ok(()) }
    }

    fn send(&mut self, poll: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
        if !self.unsent.is_empty() {
            self.unsent.extend_from_slice(bytes);
            return Ok(());
        }
        let n = write_some(&mut self.stream, bytes)?;
        if n < bytes.len() {
            self.unsent.extend_from_slice(&bytes[n..]);
            self.want(poll, EventFlags::IN | EventFlags::OUT)?;
        }
        Ok(())
    }

    fn flush(&mut self, poll: &OwnedFd) -> io::Result<()> {
        let n = write_some(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..n);
        if !self.unsent.is_empty() {
            return Ok(());
        }
        self.unsent = Vec::new();
        self.want(poll, EventFlags::IN)
    }

    fn want(&self, poll: &OwnedFd, flags: EventFlags) -> io::Result<()> {
        let data = EventData::new_u64(self.stream.as_raw_fd() as u64);
        Ok(epoll::modify(poll, &self.stream, data, flags)?)
    }
}

/// Returns the number of bytes that the socket accepted, or 0 if it is full.
fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

struct Server {
    poll: OwnedFd,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    /// By descriptor.
    connections: Vec<Option<Box<Connection>>>,
    buffers: Buffers,
}

impl Server {
    fn accept(&mut self) -> io::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let at = stream.as_raw_fd() as usize;
            epoll::add(&self.poll, &stream, EventData::new_u64(at as u64), EventFlags::IN)?;
            let tls = UnbufferedServerConnection::new(self.config.clone()).map_err(io::Error::other)?;
            self.connections.resize_with(self.connections.len().max(at + 1), || None);
            self.connections[at] =
                Some(Box::new(Connection { stream, tls, partial: Vec::new(), unsent: Vec::new() }));
        }
        Ok(())
    }

    fn serve(&mut self, at: usize, flags: EventFlags) {
        let Some(connection) = self.connections[at].as_mut() else { return };
        let mut served = Ok(());
        if flags.contains(EventFlags::OUT) {
            served = connection.flush(&self.poll);
        }
        if served.is_ok() && !(flags - EventFlags::OUT).is_empty() {
            served = connection.read(&self.poll, &mut self.buffers);
        }
        // Dropping the connection closes it, which also deregisters it.
        if served.is_err() {
            self.connections[at] = None;
        }
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::EchoRaw])?;
    let listener = options.listen()?;
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let accepting = listener.as_raw_fd() as u64;
    epoll::add(&poll, &listener, EventData::new_u64(accepting), EventFlags::IN)?;
    let buffers = Buffers { input: vec![0; READ], plain: Vec::with_capacity(READ), sealed: vec![0; SEALED] };
    let config = tls::config()?;
    let mut server = Server { poll, listener, config, connections: Vec::new(), buffers };
    let mut events = Vec::with_capacity(1024);
    loop {
        events.clear();
        match epoll::wait(&server.poll, spare_capacity(&mut events), None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(e) => return Err(e.into()),
        }
        for event in &events {
            let (fd, flags) = (event.data.u64(), event.flags);
            if fd == accepting {
                server.accept()?;
            } else {
                server.serve(fd as usize, flags);
            }
        }
    }
}
