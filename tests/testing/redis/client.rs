//! `Client`: a blocking client for tests, over `codec::Resp`.

use crate::support::wait::PATIENCE;
use bytes::{Bytes, BytesMut};
use netwheel::{
    Codec,
    buffer::OutboundBuffer,
    codec::{Resp, RespLimits, RespValue},
};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::{SocketAddr, TcpStream},
};

/// A connection to a server, real or simulated.
pub(super) struct Client {
    stream: Box<dyn Stream>,
    /// The server, for messages.
    server: &'static str,
    codec: Resp,
    input: BytesMut,
}

trait Stream: Read + Write {}

impl<S: Read + Write> Stream for S {}

impl Client {
    pub(super) fn tcp(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self::new(Box::new(stream), "the double")
    }

    #[cfg(unix)]
    pub(super) fn unix(path: &str) -> Self {
        let stream = std::os::unix::net::UnixStream::connect(path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        Self::new(Box::new(stream), "Redis")
    }

    fn new(stream: Box<dyn Stream>, server: &'static str) -> Self {
        let limits = RespLimits::new().max_bulk_len(4 * 1024 * 1024).max_elements(1_000_000);
        let codec = Resp::client().limits(limits).unwrap();
        Client { stream, server, codec, input: BytesMut::new() }
    }

    /// Sends commands in one piece.
    pub(super) fn send(&mut self, commands: impl IntoIterator<Item = Vec<Bytes>>) {
        let mut output = OutboundBuffer::new();
        for command in commands {
            self.codec.encode(RespValue::command(command), &mut output).unwrap();
        }
        self.stream.write_all(&output.to_bytes()).unwrap();
    }

    /// Sends a command, whose arguments are separated by spaces, and returns the reply.
    pub(super) fn ask(&mut self, command: &str) -> RespValue {
        self.send([command.split(' ').map(|arg| Bytes::copy_from_slice(arg.as_bytes())).collect()]);
        self.receive()
    }

    /// Returns the next reply or message.
    pub(super) fn receive(&mut self) -> RespValue {
        self.try_receive().unwrap().unwrap_or_else(|| panic!("{} has closed the connection", self.server))
    }

    /// Ends the connection, and waits until the server has closed its end. After that, the server
    /// has forgotten the subscriptions.
    pub(super) fn quit(mut self) {
        // Fails if the server has closed the connection before.
        let _ = self.stream.write_all(b"QUIT\r\n");
        while let Ok(Some(_)) = self.try_receive() {}
    }

    /// Returns the next reply or message, or `None` at the end of the connection.
    pub(super) fn try_receive(&mut self) -> io::Result<Option<RespValue>> {
        loop {
            let mut input = self.input.split().freeze();
            let message = self.codec.decode(&mut input).unwrap();
            self.input = BytesMut::from(&input[..]);
            if message.is_some() {
                return Ok(message);
            }
            let mut chunk = [0; 64 * 1024];
            match self.stream.read(&mut chunk) {
                Ok(0) => return Ok(None),
                Ok(n) => self.input.extend_from_slice(&chunk[..n]),
                // A read with a timeout is not restarted after a signal.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }
}
