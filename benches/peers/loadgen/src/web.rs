//! The client's side of HTTP/1.1 and WebSocket, as far as the generator needs it.

use crate::wire::READ;
use clap::ValueEnum;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress};
use std::{
    io::{self, ErrorKind, Read, Write},
    net::TcpStream,
};

/// How a message is sent and received.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(crate) enum Protocol {
    /// A `GET` request, and a response with the body of all servers. The size is not used.
    Http,
    /// A binary WebSocket message.
    Websocket,
    /// Like `websocket`, with permessage-deflate without context takeover.
    WebsocketDeflate,
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: loadgen\r\nAccept: */*\r\n\r\n";

/// The body of all servers.
const BODY: &[u8] = b"Hello, World!\n";

/// The key of RFC 6455, and its answer.
const KEY: &str = "dGhlIHNhbXBsZSBub25jZQ==";
const ACCEPT: &[u8] = b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=";

const EXTENSION: &str = "permessage-deflate; client_no_context_takeover; server_no_context_takeover";

/// Messages below this size are sent uncompressed.
const COMPRESSED: usize = 256;

/// The end of a compressed message that is not sent.
const TAIL: [u8; 4] = [0, 0, 0xff, 0xff];

const FIN_BINARY: u8 = 0x82;
const COMPRESSED_BIT: u8 = 0x40;

/// Encodes and decodes the messages of all connections.
pub(crate) struct Web {
    protocol: Protocol,
    compress: Compress,
    decompress: Decompress,
    /// The compressed bytes that were decompressed last, and the result: a broadcast arrives many
    /// times.
    compressed: Vec<u8>,
    plain: Vec<u8>,
    /// Changes with every frame. Its quality does not matter here.
    mask: u32,
}

fn invalid(why: &'static str) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

impl Web {
    pub(crate) fn new(protocol: Protocol) -> Self {
        Web {
            protocol,
            compress: Compress::new(Compression::fast(), false),
            decompress: Decompress::new(false),
            compressed: Vec::new(),
            plain: Vec::new(),
            mask: 0x9e37_79b9,
        }
    }

    pub(crate) fn is_http(&self) -> bool {
        self.protocol == Protocol::Http
    }

    /// Does the handshake of a WebSocket connection, blocking.
    ///
    /// # Errors
    /// If the server refuses it, or its response is wrong.
    pub(crate) fn open(&self, stream: &mut TcpStream) -> io::Result<()> {
        if self.is_http() {
            return Ok(());
        }
        let deflate = self.protocol == Protocol::WebsocketDeflate;
        let extension =
            if deflate { format!("Sec-WebSocket-Extensions: {EXTENSION}\r\n") } else { String::new() };
        let request = format!(
            "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {KEY}\r\n{extension}\r\n"
        );
        stream.write_all(request.as_bytes())?;
        let (mut head, mut buffer) = (Vec::new(), [0; 4096]);
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut buffer)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                n => head.extend_from_slice(&buffer[..n]),
            }
        }
        if !head.starts_with(b"HTTP/1.1 101 ") || header(&head, b"sec-websocket-accept") != Some(ACCEPT) {
            return Err(invalid("the server has refused the handshake"));
        }
        if header(&head, b"sec-websocket-extensions").is_some() != deflate {
            return Err(invalid("the server compresses if it is not asked to, or the other way round"));
        }
        Ok(())
    }

    /// Appends a message with that payload.
    pub(crate) fn append(&mut self, out: &mut Vec<u8>, payload: &[u8]) -> io::Result<()> {
        match self.protocol {
            Protocol::Http => out.extend_from_slice(REQUEST),
            Protocol::WebsocketDeflate if payload.len() >= COMPRESSED => {
                self.compress.reset();
                let mut compressed = Vec::with_capacity(payload.len() + 64);
                self.compress.compress_vec(payload, &mut compressed, FlushCompress::Sync)?;
                if self.compress.total_in() < payload.len() as u64 || !compressed.ends_with(&TAIL) {
                    return Err(invalid("the compressor has not written everything"));
                }
                compressed.truncate(compressed.len() - TAIL.len());
                self.frame(out, FIN_BINARY | COMPRESSED_BIT, &compressed);
            }
            _ => self.frame(out, FIN_BINARY, payload),
        }
        Ok(())
    }

    fn frame(&mut self, out: &mut Vec<u8>, first: u8, payload: &[u8]) {
        out.push(first);
        match payload.len() {
            short @ 0..126 => out.push(0x80 | short as u8),
            medium @ 126..65_536 => {
                out.push(0x80 | 126);
                out.extend_from_slice(&(medium as u16).to_be_bytes());
            }
            long => {
                out.push(0x80 | 127);
                out.extend_from_slice(&(long as u64).to_be_bytes());
            }
        }
        self.mask = self.mask.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let mask = self.mask.to_ne_bytes();
        out.extend_from_slice(&mask);
        let wide = [mask, mask].concat();
        for piece in payload.chunks(8) {
            out.extend(piece.iter().zip(&wide).map(|(byte, mask)| byte ^ mask));
        }
    }

    /// Returns the length of the first message in `bytes` and its payload, which is empty with
    /// HTTP, or `None` if the message is incomplete.
    ///
    /// # Errors
    /// If the message is wrong.
    pub(crate) fn split<'a>(&'a mut self, bytes: &'a [u8]) -> io::Result<Option<(usize, &'a [u8])>> {
        if self.is_http() {
            return Ok(response(bytes)?.map(|length| (length, &bytes[..0])));
        }
        let [first, second, ..] = *bytes else { return Ok(None) };
        let header = match second {
            0..126 => 2,
            126 => 4,
            127 => 10,
            _ => return Err(invalid("a server's frame is masked")),
        };
        if bytes.len() < header {
            return Ok(None);
        }
        let length = match header {
            2 => usize::from(second),
            _ => bytes[2..header].iter().fold(0, |length, byte| length << 8 | usize::from(*byte)),
        };
        let Some(payload) = bytes.get(header..header + length) else { return Ok(None) };
        let payload = match first {
            FIN_BINARY => payload,
            _ if first == FIN_BINARY | COMPRESSED_BIT && self.protocol == Protocol::WebsocketDeflate => {
                self.inflate(payload)?
            }
            _ => return Err(invalid("not a whole binary message")),
        };
        Ok(Some((header + length, payload)))
    }

    fn inflate(&mut self, compressed: &[u8]) -> io::Result<&[u8]> {
        if self.compressed != compressed {
            self.compressed.clear();
            self.compressed.extend_from_slice(compressed);
            self.compressed.extend_from_slice(&TAIL);
            self.plain.clear();
            self.plain.reserve(4 * READ);
            self.decompress.reset(false);
            self.decompress.decompress_vec(&self.compressed, &mut self.plain, FlushDecompress::Sync)?;
            if self.decompress.total_in() < self.compressed.len() as u64 {
                return Err(invalid("a compressed message is too long"));
            }
            self.compressed.truncate(compressed.len());
        }
        Ok(&self.plain)
    }
}

/// Returns the value of a header, whose name is in lower case.
fn header<'a>(head: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    head.split(|byte| *byte == b'\n').find_map(|line| {
        let (field, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        field.eq_ignore_ascii_case(name).then(|| value.trim_ascii())
    })
}

/// Returns the length of the response at the front of `bytes`, or `None` if it is incomplete.
fn response(bytes: &[u8]) -> io::Result<Option<usize>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let (head, rest) = bytes.split_at(end + 4);
    if !head.starts_with(b"HTTP/1.1 200 OK\r\n") || header(head, b"date").is_none() {
        return Err(invalid("the response is not 200, or has no date"));
    }
    let length =
        header(head, b"content-length").and_then(|value| std::str::from_utf8(value).ok()?.parse().ok());
    if length != Some(BODY.len()) {
        return Err(invalid("the length of the response is wrong"));
    }
    match rest.get(..BODY.len()) {
        None => Ok(None),
        Some(BODY) => Ok(Some(head.len() + BODY.len())),
        Some(_) => Err(invalid("the body of the response is wrong")),
    }
}

#[cfg(test)]
mod tests {
    use super::{BODY, Protocol, Web};

    const RESPONSE: &[u8] =
        b"HTTP/1.1 200 OK\r\ndate: today\r\nContent-LENGTH:14\r\n\r\nHello, World!\nHTTP/1.1";

    #[test]
    fn a_response_is_checked_and_cut() {
        let mut web = Web::new(Protocol::Http);
        let whole = RESPONSE.len() - 8;
        assert_eq!(web.split(RESPONSE).unwrap().unwrap().0, whole);
        assert!((0..whole).all(|n| web.split(&RESPONSE[..n]).unwrap().is_none()));
        assert!(RESPONSE[..whole].ends_with(BODY));
        for (from, to) in [("200 OK", "500 NO"), ("World", "world"), ("14", "13"), ("date", "data")] {
            let wrong = String::from_utf8_lossy(RESPONSE).replace(from, to);
            assert!(web.split(wrong.as_bytes()).is_err(), "{wrong}");
        }
    }

    /// Removes the mask of a frame.
    fn unmasked(frame: &[u8]) -> Vec<u8> {
        let header = match frame[1] & 0x7f {
            126 => 4,
            127 => 10,
            _ => 2,
        };
        let mut bytes = frame[..header].to_vec();
        bytes[1] &= 0x7f;
        let masked = frame[header + 4..].iter().enumerate();
        bytes.extend(masked.map(|(n, byte)| byte ^ frame[header + n % 4]));
        bytes
    }

    #[test]
    fn an_unmasked_frame_is_the_echo_of_a_masked_one() {
        for protocol in [Protocol::Websocket, Protocol::WebsocketDeflate] {
            for size in [0, 1, 64, 125, 126, 255, 256, 4096, 65_536] {
                let payload: Vec<u8> = (0..size).map(|n| (n * 31) as u8).collect();
                let (mut web, mut frame) = (Web::new(protocol), Vec::new());
                web.append(&mut frame, &payload).unwrap();
                assert!(web.split(&frame).is_err(), "it is masked");
                let mut echo = unmasked(&frame);
                assert!(web.split(&echo[..echo.len() - 1]).unwrap().is_none());
                assert_eq!(web.split(&echo).unwrap(), Some((echo.len(), &payload[..])));
                echo[0] = 0x81;
                assert!(web.split(&echo).is_err(), "a text message");
            }
        }
    }
}
