//! A filter for tests: records of XORed bytes, after a handshake of one round.
//!
//! A record is a type, a length of two bytes, and the payload. `HELLO` carries a nonce, `DATA`
//! carries bytes that are XORed with both nonces, and `CLOSE` ends the stream.

use crate::{Result, channel::filter::Filter, error::PeerError};
use bytes::{Buf, BufMut, BytesMut};

const HELLO: u8 = 0x48;
const DATA: u8 = 0x44;
const CLOSE: u8 = 0x43;
const HEADER: usize = 3;
const RECORD: usize = 16 * 1024;

#[derive(Debug)]
pub(super) struct Xor {
    nonce: u8,
    speaks_first: bool,
    key: Option<u8>,
    input: BytesMut,
    ended: bool,
}

impl Xor {
    pub(super) fn server() -> Self {
        Xor { nonce: 0x5A, speaks_first: false, key: None, input: BytesMut::new(), ended: false }
    }

    pub(super) fn client() -> Self {
        Xor { nonce: 0x21, speaks_first: true, ..Self::server() }
    }

    fn record(kind: u8, payload: impl ExactSizeIterator<Item = u8>, to: &mut BytesMut) {
        to.put_u8(kind);
        to.put_u16(payload.len() as u16);
        to.extend(payload);
    }

    fn hello(&self, to: &mut BytesMut) {
        Self::record(HELLO, [self.nonce].into_iter(), to);
    }
}

impl Filter for Xor {
    fn begin(&mut self, reply: &mut BytesMut) -> Result {
        if self.speaks_first {
            self.hello(reply);
        }
        Ok(())
    }

    fn is_established(&self) -> bool {
        self.key.is_some()
    }

    fn open(&mut self, input: &[u8], plain: &mut BytesMut, reply: &mut BytesMut) -> Result {
        self.input.extend_from_slice(input);
        while !self.ended && self.input.len() >= HEADER {
            let (kind, len) =
                (self.input[0], usize::from(u16::from_be_bytes([self.input[1], self.input[2]])));
            if ![HELLO, DATA, CLOSE].contains(&kind) {
                return Err(PeerError::Corrupted("no record").into());
            }
            if self.input.len() < HEADER + len {
                break;
            }
            self.input.advance(HEADER);
            let payload = self.input.split_to(len);
            match (kind, self.key) {
                (HELLO, None) if len == 1 => {
                    if !self.speaks_first {
                        self.hello(reply);
                    }
                    self.key = Some(self.nonce ^ payload[0]);
                }
                (DATA, Some(key)) => plain.extend(payload.iter().map(|byte| byte ^ key)),
                (CLOSE, Some(_)) => self.ended = true,
                _ => return Err(PeerError::Corrupted("a record out of order").into()),
            }
        }
        Ok(())
    }

    fn kept(&self) -> usize {
        self.input.len()
    }

    fn has_ended(&self) -> bool {
        self.ended
    }

    fn end_of_input(&mut self) -> Result {
        if self.ended { Ok(()) } else { Err(PeerError::Corrupted("truncated").into()) }
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain + plain.div_ceil(RECORD) * HEADER
    }

    fn seal(&mut self, plain: &[u8], sealed: &mut BytesMut) -> Result {
        let key = self.key.expect("sealed only once established");
        for record in plain.chunks(RECORD) {
            Self::record(DATA, record.iter().map(|byte| byte ^ key), sealed);
        }
        Ok(())
    }

    fn end_output(&mut self, sealed: &mut BytesMut) -> Result {
        if self.is_established() {
            Self::record(CLOSE, [].into_iter(), sealed);
        }
        Ok(())
    }
}

/// The other end of a channel with [`Xor`] filters.
#[derive(Debug)]
pub(super) struct Peer {
    filters: crate::channel::filter::Filters,
}

impl Peer {
    pub(super) fn new(filters: usize) -> Self {
        let filters = (0..filters).map(|_| Box::new(Xor::client()) as Box<dyn Filter>).collect();
        let mut filters = crate::channel::filter::Filters::new(filters);
        filters.begin().unwrap();
        Peer { filters }
    }

    /// Takes the bytes to send: the handshake and sealed bytes.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let wire = self.filters.wire().to_vec();
        self.filters.take(wire.len());
        wire
    }

    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = crate::buffer::OutboundBuffer::new();
        out.put_slice(plain);
        let mut wire = Vec::new();
        while !out.is_empty() {
            self.filters.seal(&out).unwrap();
            let n = self.filters.wire().len();
            wire.extend_from_slice(self.filters.wire());
            let sent = self.filters.take(n);
            out.consume(sent);
        }
        wire
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        self.filters.end_output().unwrap();
        self.take()
    }

    pub(super) fn open(&mut self, wire: &[u8]) -> Vec<u8> {
        self.filters.open(wire).unwrap().to_vec()
    }

    pub(super) fn is_established(&self) -> bool {
        self.filters.is_established()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.filters.input_has_ended()
    }
}
