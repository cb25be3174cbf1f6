//! Numbered frames that can be checked, and the codecs that carry them.
//!
//! The body of a frame follows from its head, so a byte of another frame is found.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use netwheel::{
    buffer::OutboundBuffer, codec::LengthField, error::PeerError, prelude::*, testing::simulation::sleep,
};
use std::time::Duration;

/// The longest frame of a play, with room.
const MAX_FRAME: usize = 64 * 1024;

const HEAD: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message of a link. The numbers of a producer are consecutive.
    Data = 0,
    /// A message to a room. Its `link` is the room.
    Broadcast = 1,
    /// Asks the server to start a filter.
    Upgrade = 2,
    /// The last message before the server's filter starts.
    Upgraded = 3,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) link: u32,
    pub(super) producer: u8,
    pub(super) kind: Kind,
    pub(super) number: u32,
}

impl Frame {
    pub(super) fn encode(&self, body: usize) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD + body);
        bytes.put_u32(self.link);
        bytes.put_u8(self.producer);
        bytes.put_u8(self.kind as u8);
        bytes.put_u32(self.number);
        bytes.put_bytes(self.salt(), body);
        bytes.freeze()
    }

    /// Returns `None` if a byte was changed on the way.
    pub(super) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < HEAD {
            return None;
        }
        let (link, producer) = (bytes.get_u32(), bytes.get_u8());
        let kind = match bytes.get_u8() {
            0 => Kind::Data,
            1 => Kind::Broadcast,
            2 => Kind::Upgrade,
            3 => Kind::Upgraded,
            _ => return None,
        };
        let frame = Frame { link, producer, kind, number: bytes.get_u32() };
        // All bytes equal the first one; slices are compared faster than bytes in debug builds.
        let Some(first) = bytes.first() else { return Some(frame) };
        let is_even = bytes[1..] == bytes[..bytes.len() - 1];
        (*first == frame.salt() && is_even).then_some(frame)
    }

    fn salt(&self) -> u8 {
        (self.link.wrapping_mul(7) ^ self.number.wrapping_mul(31) ^ u32::from(self.producer)) as u8
    }
}

/// The codec of a program: four bytes of length.
struct Frames<const HINT: bool>;

impl<const HINT: bool> Codec for Frames<HINT> {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        let Some(head) = input.first_chunk::<4>() else { return Ok(None) };
        let length = u32::from_be_bytes(*head) as usize;
        if length > MAX_FRAME {
            return Err(PeerError::too_long("a frame", length as u64, MAX_FRAME).into());
        }
        if input.len() < 4 + length {
            return Ok(None);
        }
        input.advance(4);
        Ok(Some(input.split_to(length)))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        // The encoding of a broadcast takes time, so that the budget of a turn ends in its middle.
        if message.get(5) == Some(&(Kind::Broadcast as u8)) {
            sleep(Duration::from_micros(40));
        }
        output.put_u32(message.len() as u32);
        output.put(message);
        Ok(())
    }

    fn encoded_len_hint(message: &Bytes) -> Option<usize> {
        HINT.then_some(4 + message.len())
    }
}

/// How a pipeline encodes frames. All kinds make the same bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    LengthField,
    Hinted,
    Hintless,
}

impl Wire {
    pub(super) const ALL: [Wire; 3] = [Wire::LengthField, Wire::Hinted, Wire::Hintless];

    pub(super) fn pipeline<H: Handler<Read = Bytes, Write = Bytes>>(self, handler: H) -> Pipeline<Bytes> {
        match self {
            Wire::LengthField => Pipeline::codec(LengthField::u32()).handler(handler),
            Wire::Hinted => Pipeline::codec(Frames::<true>).handler(handler),
            Wire::Hintless => Pipeline::codec(Frames::<false>).handler(handler),
        }
    }
}
