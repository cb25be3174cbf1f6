//! A filter for tests: records of XORed bytes, after a handshake of one round.
//!
//! A record is a type, a length of two bytes, and the payload. `HELLO` carries a nonce, `DATA`
//! carries bytes that are XORed with both nonces, and `CLOSE` ends the stream.

use crate::{
    channel::filter::{
        FilterContext,
        buffers::FilterBuffers,
        filter_state::FilterState,
        filter_trait::Filter,
        filters::{Filters, Lent},
        opened::Opened,
    },
    error::{PeerError, Result},
};
use bytes::BufMut;

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
    ended: bool,
}

impl Xor {
    pub(super) fn server() -> Self {
        Xor { nonce: 0x5A, speaks_first: false, key: None, ended: false }
    }

    pub(super) fn client() -> Self {
        Xor { nonce: 0x21, speaks_first: true, ..Self::server() }
    }

    fn record(kind: u8, payload: impl ExactSizeIterator<Item = u8>, to: &mut Vec<u8>) {
        to.put_u8(kind);
        to.put_u16(payload.len() as u16);
        to.extend(payload);
    }

    fn hello(&self, to: &mut Vec<u8>) {
        Self::record(HELLO, [self.nonce].into_iter(), to);
    }
}

impl Filter for Xor {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        if self.speaks_first {
            self.hello(ctx.output());
        }
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let mut taken = 0;
        while !self.ended && input.len() - taken >= HEADER {
            let rest = &mut input[taken..];
            let (kind, len) = (rest[0], usize::from(u16::from_be_bytes([rest[1], rest[2]])));
            if ![HELLO, DATA, CLOSE].contains(&kind) {
                return Err(PeerError::Corrupted("no record").into());
            }
            if rest.len() < HEADER + len {
                break;
            }
            taken += HEADER + len;
            let payload = &mut rest[HEADER..HEADER + len];
            match (kind, self.key) {
                (HELLO, None) if len == 1 => {
                    if !self.speaks_first {
                        self.hello(ctx.output());
                    }
                    self.key = Some(self.nonce ^ payload[0]);
                }
                (DATA, Some(key)) => {
                    payload.iter_mut().for_each(|byte| *byte ^= key);
                    ctx.deliver(payload);
                }
                (CLOSE, Some(_)) => self.ended = true,
                _ => return Err(PeerError::Corrupted("a record out of order").into()),
            }
        }
        Ok(taken)
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        Err(PeerError::Truncated.into())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        let key = self.key.expect("sealed only once established");
        for record in plain.chunks(RECORD) {
            Self::record(DATA, record.iter().map(|byte| byte ^ key), ctx.output());
        }
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain + plain.div_ceil(RECORD) * HEADER
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        if self.key.is_some() {
            Self::record(CLOSE, [].into_iter(), ctx.output());
        }
        Ok(())
    }

    fn state(&self) -> FilterState {
        match self.key {
            None => FilterState::Handshaking,
            Some(_) if self.ended => FilterState::InputEnded,
            Some(_) => FilterState::Established,
        }
    }
}

/// The other end of a channel with [`Xor`] filters.
pub(super) struct Peer {
    filters: Filters,
    buffers: FilterBuffers,
}

impl Peer {
    /// Creates a peer that speaks first.
    pub(super) fn new(filters: usize) -> Self {
        Self::with(filters, Xor::client)
    }

    /// Creates a peer that is spoken to.
    pub(super) fn accepting(filters: usize) -> Self {
        Self::with(filters, Xor::server)
    }

    fn with(filters: usize, make: fn() -> Xor) -> Self {
        let filters = (0..filters).map(|_| Box::new(make()) as Box<dyn Filter>).collect();
        let filters = Filters::new(filters, crate::channel::peer::Peer::default());
        let mut peer = Peer { filters, buffers: FilterBuffers::default() };
        peer.call(Filters::begin).unwrap();
        peer
    }

    fn call<T>(&mut self, f: impl FnOnce(&mut Filters, &mut Lent<'_>) -> T) -> T {
        f(&mut self.filters, &mut Lent { buffers: &mut self.buffers, now: 0 })
    }

    /// Adds a filter above the others, which speaks first.
    pub(super) fn upgrade(&mut self) {
        self.filters.add(Box::new(Xor::client()));
        self.filters.take_added();
        self.call(Filters::begin).unwrap();
    }

    /// Takes the bytes to send: the handshake and sealed bytes.
    pub(super) fn take(&mut self) -> Vec<u8> {
        let wire = self.filters.sealed_wire().to_vec();
        self.call(|filters, lent| filters.take(wire.len(), lent));
        wire
    }

    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = crate::buffer::OutboundBuffer::new();
        out.put_slice(plain);
        let mut wire = Vec::new();
        while !out.is_empty() {
            self.call(|filters, lent| filters.seal(&out, lent)).unwrap();
            wire.extend_from_slice(self.filters.sealed_wire());
            let n = self.filters.sealed_wire().len();
            let sent = self.call(|filters, lent| filters.take(n, lent));
            out.consume(sent);
        }
        wire
    }

    pub(super) fn end(&mut self) -> Vec<u8> {
        self.call(Filters::end_output).unwrap();
        self.take()
    }

    pub(super) fn open(&mut self, wire: &[u8]) -> Vec<u8> {
        self.try_open(wire).unwrap()
    }

    /// Seals as much as the limit allows, without sending. Returns the bytes that wait.
    pub(super) fn seal_ahead(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut out = crate::buffer::OutboundBuffer::new();
        out.put_slice(plain);
        self.call(|filters, lent| filters.seal(&out, lent)).unwrap();
        self.filters.sealed_wire().to_vec()
    }

    pub(super) fn try_open(&mut self, wire: &[u8]) -> Result<Vec<u8>> {
        let mut input = wire.to_vec();
        let mut room = vec![0; 1 << 20];
        let mut opened = Opened::new(&mut room);
        self.call(|filters, lent| filters.open(&mut input, 0, &mut opened, lent))?;
        let (n, spilled) = opened.finish();
        assert!(spilled.is_empty());
        room.truncate(n);
        Ok(room)
    }

    pub(super) fn is_established(&self) -> bool {
        self.filters.is_established()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.filters.input_has_ended()
    }
}
