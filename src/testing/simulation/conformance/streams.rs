//! The calls of TCP connections in scripts.

use super::{
    backend::{BUFFER, Side},
    bench::{Bench, Id, Socket},
};
use crate::{
    channel::driver::{Ready, Transport},
    error::{Error, Result},
    transport::{Address, Stream, TcpOptions},
};
use std::{io, io::IoSlice, net::SocketAddr, time::Duration};

/// The most bytes that a script writes to fill buffers.
const MOST: usize = 16 << 20;

/// The length after which the data of all scripts repeats itself.
const PERIOD: usize = 251;

/// Returns a part of the data that all scripts write.
fn data(from: usize, len: usize) -> Vec<u8> {
    let period: Vec<u8> = (0..PERIOD as u8).collect();
    let begin = from % PERIOD;
    let mut data = period.repeat((begin + len).div_ceil(PERIOD));
    data.drain(..begin);
    data.truncate(len);
    data
}

/// Returns the options of all connections. Small buffers are full sooner.
pub(super) fn options() -> TcpOptions {
    TcpOptions::new().send_buffer(BUFFER).receive_buffer(BUFFER)
}

impl Bench {
    pub(super) fn stream(&mut self, id: Id) -> &mut Stream {
        match self.slots[id.0].socket.as_mut() {
            Some(Socket::Stream(stream)) => stream,
            _ => panic!("an open stream"),
        }
    }

    /// Starts to connect the client. Notes nothing.
    pub(super) fn open(&mut self, side: Side, to: SocketAddr, local: Option<SocketAddr>) -> Result<Stream> {
        let _entered = self.backend.enter(side);
        Stream::connect(&Address::Tcp(to), local, &options())
    }

    /// Starts to connect, and notes an error.
    pub(super) fn connect(
        &mut self,
        name: &'static str,
        to: SocketAddr,
        local: Option<SocketAddr>,
    ) -> Option<Id> {
        match self.open(Side::Client, to, local) {
            Ok(stream) => Some(self.watch(name, Socket::Stream(stream))),
            Err(e) => {
                self.note(format!("{name}.connect = {}", name_of(&e)));
                None
            }
        }
    }

    /// Returns both ends of a connection: the client and the server. Their first events are
    /// forgotten.
    pub(super) fn pair(&mut self) -> (Id, Id) {
        let listener = self.listen();
        let (client, server) = self.pair_at(listener);
        self.close(listener);
        (client, server)
    }

    /// Connects to a listener and accepts the connection.
    pub(super) fn pair_at(&mut self, listener: Id) -> (Id, Id) {
        let to = self.local(listener);
        let client = self.connect("client", to, None).expect("the client connects");
        let server = self.accept(listener);
        for end in [client, server] {
            self.wait_for(end, Ready::WRITABLE);
        }
        self.settle();
        for end in [client, server] {
            self.forget_seen(end);
        }
        (client, server)
    }

    /// Writes once.
    pub(super) fn write(&mut self, id: Id, len: usize) -> usize {
        let bytes = data(self.slots[id.0].written, len);
        let result = self.stream(id).write(&bytes);
        let n = *result.as_ref().unwrap_or(&0);
        self.slots[id.0].written += n;
        self.note_call(id, &format!("write({len})"), &result);
        n
    }

    /// Writes several slices at once.
    pub(super) fn write_vectored(&mut self, id: Id, lens: &[usize]) {
        let mut from = self.slots[id.0].written;
        let mut parts = Vec::new();
        for len in lens {
            parts.push(data(from, *len));
            from += len;
        }
        let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(part)).collect();
        let result = self.stream(id).write_vectored(&slices);
        self.slots[id.0].written += *result.as_ref().unwrap_or(&0);
        self.note_call(id, &format!("write_vectored({lens:?})"), &result);
    }

    /// Writes all bytes, as soon as there is room.
    pub(super) fn write_all(&mut self, id: Id, len: usize) {
        let end = self.slots[id.0].written + len;
        self.until("all is written", |bench| {
            loop {
                let from = bench.slots[id.0].written;
                if from == end {
                    return true;
                }
                match bench.stream(id).write(&data(from, end - from)) {
                    Ok(n) => bench.slots[id.0].written += n,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                    Err(e) => {
                        bench.note_call::<usize>(id, "write", &Err(e));
                        return true;
                    }
                }
            }
        });
        self.backend.pause();
    }

    /// Writes until a write would block. Notes only the result of the last write.
    pub(super) fn fill(&mut self, id: Id) {
        let mut room = MOST;
        let lull = self.backend.acknowledgement();
        while room > 0 {
            let len = room.min(1 << 16);
            let bytes = data(self.slots[id.0].written, len);
            match self.stream(id).write(&bytes) {
                Ok(n) => {
                    self.slots[id.0].written += n;
                    room -= n;
                }
                // A full buffer drains for a while into that of the peer.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if self.poll(0, lull).is_none() {
                        break;
                    }
                }
                Err(e) => return self.note_call::<usize>(id, "fill", &Err(e)),
            }
        }
        let is_full = room > 0;
        self.note(if is_full { "the buffers are full" } else { "the buffers are never full" });
    }

    /// Reads once, and checks the bytes.
    pub(super) fn read(&mut self, id: Id, len: usize) -> usize {
        let result = self.read_checked(id, len);
        let n = *result.as_ref().unwrap_or(&0);
        self.note_call(id, &format!("read({len})"), &result);
        n
    }

    fn read_checked(&mut self, id: Id, len: usize) -> io::Result<usize> {
        let mut buffer = vec![0; len];
        let result = self.stream(id).read(&mut buffer);
        let n = *result.as_ref().unwrap_or(&0);
        let from = self.slots[id.0].read;
        if buffer[..n] != data(from, n) {
            self.note("wrong bytes");
        }
        self.slots[id.0].read += n;
        result
    }

    /// Reads until this number of bytes has arrived, or the stream ends or fails.
    pub(super) fn read_all(&mut self, id: Id, len: usize) {
        let end = self.slots[id.0].read + len;
        let mut result = "all";
        self.until("all is read", |bench| {
            loop {
                let left = end - bench.slots[id.0].read;
                if left == 0 {
                    return true;
                }
                match bench.read_checked(id, left.min(1 << 16)) {
                    Ok(0) => result = "the end",
                    Ok(_) => continue,
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                    Err(_) => result = "an error",
                }
                return true;
            }
        });
        self.note(format!("read {result}"));
        self.backend.pause();
    }

    /// Reads until a read returns 0 or an error, and notes the total and the last result.
    pub(super) fn read_to_end(&mut self, id: Id) {
        let mut last: io::Result<usize> = Ok(0);
        let from = self.slots[id.0].read;
        self.until("the end", |bench| {
            loop {
                match bench.read_checked(id, 1 << 16) {
                    Ok(0) => return true,
                    Ok(_) => {}
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock => return false,
                    Err(e) => {
                        last = Err(e);
                        return true;
                    }
                }
            }
        });
        let n = self.slots[id.0].read - from;
        self.note_call(id, &format!("read_to_end, after {n} bytes"), &last);
    }

    pub(super) fn peek(&mut self, id: Id) {
        let result = self.stream(id).peek();
        self.note_call(id, "peek", &result);
    }

    pub(super) fn shut_down(&mut self, id: Id) {
        let result = self.stream(id).shutdown_write().map(|()| "done");
        self.note_call(id, "shutdown_write", &result);
    }

    pub(super) fn take_error(&mut self, id: Id) {
        let result = self.stream(id).take_error();
        let result = result.map(|error| error.map_or("none".to_owned(), |e| super::bench::error_name(&e)));
        self.note_call(id, "take_error", &result);
    }

    pub(super) fn has_peer(&mut self, id: Id) {
        let result = self.stream(id).has_peer().map(|()| "yes");
        self.note_call(id, "has_peer", &result);
    }

    /// Closes a socket with `SO_LINGER` 0, which resets the connection.
    pub(super) fn reset(&mut self, id: Id) {
        self.stream(id).linger(Duration::ZERO).expect("the socket takes the option");
        self.close(id);
    }
}

/// Returns the name of an error of opening a socket.
pub(super) fn name_of(error: &Error) -> String {
    match error {
        Error::Io { source, .. } => super::bench::error_name(source),
        other => format!("{other:?}"),
    }
}
