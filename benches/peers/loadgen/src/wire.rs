//! A connection to the server: plain, or with TLS. All but opening it and `Read` and `Write` is
//! non-blocking.

use rustls::{ClientConnection, HandshakeKind};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
};

/// Bytes of a read.
pub(crate) const READ: usize = 256 * 1024;

pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    tls: Option<Box<ClientConnection>>,
    /// Bytes that the socket did not accept, without TLS. With TLS, rustls has them.
    unsent: Vec<u8>,
}

/// Buffers that all connections share.
pub(crate) struct Buffers {
    /// Bytes of the last read, without those of TLS.
    pub(crate) plain: Vec<u8>,
    sealed: Vec<u8>,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Buffers { plain: vec![0; READ], sealed: vec![0; READ] }
    }
}

fn invalid(e: rustls::Error) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, e)
}

impl Wire {
    /// Creates a wire of an open connection. The TLS handshake starts with the first bytes sent.
    pub(crate) fn new(stream: TcpStream, tls: Option<ClientConnection>) -> Self {
        let tls = tls.map(|mut tls| {
            tls.set_buffer_limit(None);
            Box::new(tls)
        });
        Wire { stream, tls, unsent: Vec::new() }
    }

    pub(crate) fn wants_write(&self) -> bool {
        self.tls.as_ref().map_or(!self.unsent.is_empty(), |tls| tls.wants_write())
    }

    /// Returns how the TLS handshake was done, if it is complete.
    pub(crate) fn handshake(&self) -> Option<HandshakeKind> {
        self.tls.as_ref().filter(|tls| !tls.is_handshaking())?.handshake_kind()
    }

    /// Queues bytes without sending them.
    pub(crate) fn queue(&mut self, bytes: &[u8]) -> io::Result<()> {
        match &mut self.tls {
            Some(tls) => tls.writer().write_all(bytes),
            None => {
                self.unsent.extend_from_slice(bytes);
                Ok(())
            }
        }
    }

    /// Sends bytes, and keeps the bytes that the socket does not accept.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.tls.is_none() && self.unsent.is_empty() {
            let done = write_some(&mut self.stream, bytes)?;
            self.unsent.extend_from_slice(&bytes[done..]);
            return Ok(());
        }
        self.queue(bytes)?;
        self.flush()
    }

    /// Sends kept bytes until the socket would block.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            let done = write_some(&mut self.stream, &self.unsent)?;
            self.unsent.drain(..done);
            return Ok(());
        };
        while tls.wants_write() {
            match tls.write_tls(&mut self.stream) {
                Ok(_) => {}
                Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Reads once. Returns the number of bytes in `buffers.plain`, which is 0 if there were none or
    /// only those of the handshake.
    ///
    /// # Errors
    /// If the server has closed the connection, or violated the protocol.
    pub(crate) fn receive(&mut self, buffers: &mut Buffers) -> io::Result<usize> {
        let Buffers { plain, sealed } = buffers;
        let into = if self.tls.is_some() { sealed } else { &mut *plain };
        let n = match self.stream.read(into) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(n) => n,
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => return Ok(0),
            Err(e) => return Err(e),
        };
        let Some(tls) = &mut self.tls else { return Ok(n) };
        let (mut rest, mut filled) = (&buffers.sealed[..n], 0);
        while !rest.is_empty() {
            tls.read_tls(&mut rest)?;
            tls.process_new_packets().map_err(invalid)?;
            loop {
                match tls.reader().read(&mut plain[filled..]) {
                    Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
                    Ok(n) => filled += n,
                    Err(e) if e.kind() == ErrorKind::WouldBlock => break,
                    Err(e) => return Err(e),
                }
            }
        }
        if tls.wants_write() {
            self.flush()?;
        }
        Ok(filled)
    }

    /// Ends the stream as TLS requires it. Dropping the wire closes the connection.
    pub(crate) fn end(&mut self) {
        if let Some(tls) = &mut self.tls {
            tls.send_close_notify();
            // Fails if the server has closed the connection already, which is not an error here.
            let _ = self.flush();
        }
    }
}

/// Blocks, so the stream must be blocking.
impl Read for Wire {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).read(buffer),
            None => self.stream.read(buffer),
        }
    }
}

/// Blocks, so the stream must be blocking.
impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => rustls::Stream::new(tls.as_mut(), &mut self.stream).write(bytes),
            None => self.stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Wire::flush(self)
    }
}

/// Writes until all bytes are written or the socket is full. Returns the number of bytes written.
pub(crate) fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match stream.write(&bytes[done..]) {
            Ok(n) => done += n,
            Err(e) if e.kind() == ErrorKind::WouldBlock => break,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}
