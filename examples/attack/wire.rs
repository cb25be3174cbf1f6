//! A connection of an attacker: a plain socket that ignores the protocol.

use netwheel::{Error, Result};
use std::{
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

pub(crate) struct Wire {
    stream: TcpStream,
    /// Bytes of the last write that the kernel has not accepted yet.
    rest: Vec<u8>,
    /// Set when the connection has failed or the server has closed it.
    ended: bool,
    /// Number of bytes read and discarded.
    heard: u64,
    /// The last bytes read and discarded.
    tail: Vec<u8>,
}

/// Maximum length of `tail`, which is enough for a `bye`.
const TAIL: usize = 128;

impl Wire {
    /// Connects without sending anything. The socket is nonblocking.
    ///
    /// # Errors
    /// Fails if the connection is not established within five seconds.
    pub(crate) fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect_timeout(&address, Duration::from_secs(5))
            .and_then(|stream| stream.set_nonblocking(true).map(|()| stream))
            .map_err(|e| Error::io("connecting an attacker", e))?;
        Ok(Wire { stream, rest: Vec::new(), ended: false, heard: 0, tail: Vec::new() })
    }

    /// Connects and logs in.
    ///
    /// # Errors
    /// Fails if the server does not answer within ten seconds.
    pub(crate) fn login(address: SocketAddr, user: &str) -> Result<Self> {
        let mut wire = Wire::connect(address)?;
        wire.send(format!("{{\"type\":\"login\",\"user\":\"{user}\"}}\n").as_bytes());
        let answer = wire.hear_until("\"type\":\"welcome\"", Duration::from_secs(10));
        if answer.contains("\"type\":\"welcome\"") {
            Ok(wire)
        } else {
            Err("an attacker cannot log in".into())
        }
    }

    /// Sends `bytes`, unless bytes of an earlier call are still pending. Returns whether the bytes
    /// were accepted.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        self.flush();
        let accepted = self.rest.is_empty() && !self.ended;
        if accepted {
            self.rest.extend_from_slice(bytes);
            self.flush();
        }
        accepted
    }

    fn flush(&mut self) {
        while !self.rest.is_empty() {
            match self.stream.write(&self.rest) {
                Ok(n) => drop(self.rest.drain(..n)),
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => return,
                Err(_) => {
                    self.ended = true;
                    self.rest.clear();
                }
            }
        }
    }

    /// Reads and discards up to 256 KiB. Returns whether the connection is still open.
    pub(crate) fn discard(&mut self) -> bool {
        let mut buffer = [0; 65536];
        for _ in 0..4 {
            match self.stream.read(&mut buffer) {
                Ok(n) if n > 0 => {
                    self.heard += n as u64;
                    let tail = &buffer[n.saturating_sub(TAIL)..n];
                    self.tail.drain(..(self.tail.len() + tail.len()).saturating_sub(TAIL));
                    self.tail.extend_from_slice(tail);
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Ok(_) | Err(_) => {
                    self.ended = true;
                    break;
                }
            }
        }
        !self.ended
    }

    /// Returns the number of bytes read and discarded.
    pub(crate) fn heard(&self) -> u64 {
        self.heard
    }

    /// Returns whether the connection has ended, as far as it has been read.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Returns whether the last bytes discarded contain `pattern`.
    pub(crate) fn ends_with(&self, pattern: &str) -> bool {
        memchr::memmem::find(&self.tail, pattern.as_bytes()).is_some()
    }

    /// Reads and discards from all connections until nothing has arrived for 300 ms, at most for
    /// `patience`. Keeps sending `meanwhile`.
    pub(crate) fn drain(wires: &mut [Wire], meanwhile: &[u8], patience: Duration) {
        let until = Instant::now() + patience;
        let mut quiet_since = Instant::now();
        while Instant::now() < until && quiet_since.elapsed() < Duration::from_millis(300) {
            for wire in wires.iter_mut() {
                let before = wire.heard;
                wire.send(meanwhile);
                wire.discard();
                if wire.heard > before {
                    quiet_since = Instant::now();
                }
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Reads until `pattern` has arrived, the connection ends, or `patience` has passed. Returns at
    /// most the last 128 KiB.
    pub(crate) fn hear_until(&mut self, pattern: &str, patience: Duration) -> String {
        let until = Instant::now() + patience;
        let (mut heard, mut buffer) = (Vec::new(), [0; 65536]);
        loop {
            match self.stream.read(&mut buffer) {
                Ok(0) => break,
                Ok(n) => {
                    heard.extend_from_slice(&buffer[..n]);
                    if heard.len() > 2 * 65536 {
                        heard.drain(..heard.len() - 65536);
                    }
                    if memchr::memmem::find(&heard, pattern.as_bytes()).is_some() {
                        break;
                    }
                }
                Err(e) if e.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                Err(_) => break,
            }
        }
        String::from_utf8_lossy(&heard).into_owned()
    }
}
