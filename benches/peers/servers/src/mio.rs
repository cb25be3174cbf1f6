//! Raw mio: edge-triggered, a slab of connections, one read buffer for all. A read that does not
//! fill the buffer has emptied the socket, which is true with epoll.
//!
//! A server for measurements, not for use: it is unbounded and ignores accept errors.

mod frames;
mod options;

use frames::Partial;
use mio::{
    Events, Interest, Poll, Token,
    net::{TcpListener, TcpStream},
};
use options::{Mode, Options};
use slab::Slab;
use std::io::{self, ErrorKind, Read, Write};

const LISTENER: Token = Token(usize::MAX);

struct Connection {
    stream: TcpStream,
    partial: Partial,
    unsent: Vec<u8>,
}

impl Connection {
    /// Writes as much as possible and keeps the rest. The socket is registered for writing from the
    /// start.
    fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while self.unsent.is_empty() && done < bytes.len() {
            match self.stream.write(&bytes[done..]) {
                Ok(n) => done += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        self.unsent.extend_from_slice(&bytes[done..]);
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        let unsent = std::mem::take(&mut self.unsent);
        self.send(&unsent)
    }
}

struct Server {
    mode: Mode,
    connections: Slab<Connection>,
    /// Echo: the reply to one read. Broadcast: the frames of all reads of a turn.
    out: Vec<u8>,
    buffer: Vec<u8>,
}

impl Server {
    fn read(&mut self, key: usize) -> io::Result<()> {
        let Server { mode, connections, out, buffer } = self;
        let connection = &mut connections[key];
        loop {
            let n = match connection.stream.read(buffer) {
                Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            match mode {
                Mode::EchoRaw => connection.send(&buffer[..n])?,
                Mode::Broadcast => connection.partial.take(&buffer[..n], out)?,
                Mode::EchoFrames | Mode::EchoFramesIdle => {
                    out.clear();
                    connection.partial.take(&buffer[..n], out)?;
                    connection.send(out)?;
                }
                // Refused at the start.
                Mode::Http | Mode::Ws | Mode::WsBroadcast => return Err(ErrorKind::Unsupported.into()),
            }
            if n < buffer.len() {
                return Ok(());
            }
        }
    }

    /// Sends the frames of this turn to every member.
    fn broadcast(&mut self) {
        let out = &self.out;
        self.connections.retain(|_, member| member.send(out).is_ok());
        self.out.clear();
    }
}

fn main() -> io::Result<()> {
    let options = Options::of(1, &[Mode::EchoRaw, Mode::EchoFrames, Mode::Broadcast])?;
    let mut poll = Poll::new()?;
    let mut events = Events::with_capacity(1024);
    let mut listener = TcpListener::from_std(options.listen()?);
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let (connections, buffer) = (Slab::new(), vec![0; 64 * 1024]);
    let mut server = Server { mode: options.mode, connections, out: Vec::new(), buffer };
    loop {
        match poll.poll(&mut events, None) {
            Err(e) if e.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        for event in &events {
            if event.token() == LISTENER {
                while let Ok((mut stream, _)) = listener.accept() {
                    stream.set_nodelay(true)?;
                    let entry = server.connections.vacant_entry();
                    let both = Interest::READABLE | Interest::WRITABLE;
                    poll.registry().register(&mut stream, Token(entry.key()), both)?;
                    entry.insert(Connection { stream, partial: Partial::default(), unsent: Vec::new() });
                }
                continue;
            }
            let key = event.token().0;
            let Some(connection) = server.connections.get_mut(key) else { continue };
            let mut done = Ok(());
            if event.is_writable() && !connection.unsent.is_empty() {
                done = connection.flush();
            }
            if event.is_readable() && done.is_ok() {
                done = server.read(key);
            }
            if done.is_err() {
                server.connections.remove(key);
            }
        }
        if options.mode == Mode::Broadcast && !server.out.is_empty() {
            server.broadcast();
        }
    }
}
