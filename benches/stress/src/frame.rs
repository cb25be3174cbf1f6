//! Numbered frames that can be checked, and the codecs that carry them.
//!
//! A frame is `link, producer, kind, number` and a body that follows from them, so that a byte of
//! another frame is found.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use netwheel::{Codec, Result, buffer::OutboundBuffer, error::PeerError};

/// The longest frame of a plan, with room.
pub(crate) const MAX_FRAME: usize = 64 * 1024;

const HEAD: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A frame of the link's own stream, whose numbers have no gap.
    Data = 0,
    /// Of a room: numbers increase.
    Broadcast = 1,
    /// A frame of a connection that is not a link.
    Visit = 2,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Frame {
    /// The link; of a broadcast, the room.
    pub(crate) link: u32,
    pub(crate) producer: u8,
    pub(crate) kind: Kind,
    pub(crate) number: u32,
}

impl Frame {
    pub(crate) fn encode(&self, body: usize) -> Bytes {
        let mut bytes = BytesMut::with_capacity(HEAD + body);
        bytes.put_u32(self.link);
        bytes.put_u8(self.producer);
        bytes.put_u8(self.kind as u8);
        bytes.put_u32(self.number);
        let salt = self.salt();
        bytes.extend((0..body).map(|i| salt.wrapping_add(i as u8)));
        bytes.freeze()
    }

    /// Returns `None` if a byte differs from the written one.
    pub(crate) fn decode(mut bytes: Bytes) -> Option<Self> {
        if bytes.len() < HEAD {
            return None;
        }
        let (link, producer) = (bytes.get_u32(), bytes.get_u8());
        let kind = match bytes.get_u8() {
            0 => Kind::Data,
            1 => Kind::Broadcast,
            2 => Kind::Visit,
            _ => return None,
        };
        let frame = Frame { link, producer, kind, number: bytes.get_u32() };
        let salt = frame.salt();
        let intact = bytes.iter().enumerate().all(|(i, byte)| *byte == salt.wrapping_add(i as u8));
        intact.then_some(frame)
    }

    fn salt(&self) -> u8 {
        (self.link.wrapping_mul(7) ^ self.number.wrapping_mul(31) ^ u32::from(self.producer)) as u8
    }
}

/// The codec of a program: four bytes of length.
pub(crate) struct Frames<const HINT: bool>;

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
        output.put_u32(message.len() as u32);
        output.put(message);
        Ok(())
    }

    fn encoded_len_hint(message: &Bytes) -> Option<usize> {
        HINT.then_some(4 + message.len())
    }
}

/// Calls a function with the codec of a wire.
macro_rules! with_codec {
    ($wire:expr, |$codec:ident| $pipeline:expr) => {
        match $wire {
            $crate::plan::Wire::LengthField => {
                let $codec = netwheel::codec::LengthField::u32();
                $pipeline
            }
            $crate::plan::Wire::Hinted => {
                let $codec = $crate::frame::Frames::<true>;
                $pipeline
            }
            $crate::plan::Wire::Hintless => {
                let $codec = $crate::frame::Frames::<false>;
                $pipeline
            }
        }
    };
}
pub(crate) use with_codec;
