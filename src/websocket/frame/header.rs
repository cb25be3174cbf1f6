//! The header of a frame.
//!
//! ```text
//!   bit 0 1 2 3 4       8 9         16
//!      ┌─┬─────┬───────┬─┬───────────┬──────────────────┬───────────┐
//!      │F│ RSV │opcode │M│ length 7  │ length 16 or 64  │ mask 32   │
//!      └─┴─────┴───────┴─┴───────────┴──────────────────┴───────────┘
//! ```
//!
//! Invariants: the bytes of a header are checked in order as they arrive. So the first error of a
//! frame does not depend on how the network splits it.

use super::mask::MaskKey;
use crate::{buffer::OutboundBuffer, websocket::error::WebSocketError};

/// The opcode of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Opcode {
    Continuation = 0,
    Text = 1,
    Binary = 2,
    Close = 8,
    Ping = 9,
    Pong = 10,
}

impl Opcode {
    #[inline]
    pub(super) fn is_control(self) -> bool {
        self as u8 >= 8
    }
}

/// The final fragment of a message.
const FIN: u8 = 0x80;
/// The first reserved bit, which marks a compressed message.
const RSV1: u8 = 0x40;
const RSV: u8 = 0x70;
const MASKED: u8 = 0x80;
/// The longest payload of a control frame.
pub(super) const MAX_CONTROL: usize = 125;

/// What the first byte of a frame says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Kind {
    pub(super) opcode: Opcode,
    pub(super) fin: bool,
    pub(super) compressed: bool,
}

impl Kind {
    /// Decodes the first byte of a frame.
    #[inline]
    pub(super) fn decode(byte: u8, may_compress: bool) -> Result<Kind, WebSocketError> {
        let opcode = match byte & 0x0F {
            0 => Opcode::Continuation,
            1 => Opcode::Text,
            2 => Opcode::Binary,
            8 => Opcode::Close,
            9 => Opcode::Ping,
            10 => Opcode::Pong,
            opcode => {
                let reserved = byte & RSV != 0;
                return Err(if reserved {
                    WebSocketError::ReservedBits
                } else {
                    WebSocketError::UnknownOpcode(opcode)
                });
            }
        };
        let compressed = byte & RSV1 != 0;
        let begins = matches!(opcode, Opcode::Text | Opcode::Binary);
        if byte & RSV != 0 && (byte & RSV != RSV1 || !may_compress || !begins) {
            return Err(WebSocketError::ReservedBits);
        }
        let fin = byte & FIN != 0;
        if opcode.is_control() && !fin {
            return Err(WebSocketError::FragmentedControl);
        }
        Ok(Kind { opcode, fin, compressed })
    }
}

/// The length and the mask of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Header {
    /// The size of the header in bytes.
    pub(super) size: usize,
    /// The length of the payload in bytes.
    pub(super) len: u64,
    /// The key of a masked frame.
    pub(super) key: Option<MaskKey>,
}

impl Header {
    /// Decodes the header at the front of `input`, which has at least one byte, of a frame of this
    /// `kind`. `masked` says whether the peer must mask. `check` is called with the length as soon
    /// as that is known.
    ///
    /// Returns `None` if the header has not arrived completely.
    #[inline]
    pub(super) fn decode(
        input: &[u8],
        kind: Kind,
        masked: bool,
        check: impl FnOnce(u64) -> Result<(), WebSocketError>,
    ) -> Result<Option<Header>, WebSocketError> {
        let Some(&second) = input.get(1) else { return Ok(None) };
        if (second & MASKED != 0) != masked {
            return Err(if masked { WebSocketError::Unmasked } else { WebSocketError::Masked });
        }
        let (len, at) = match second & !MASKED {
            126 | 127 if kind.opcode.is_control() => return Err(WebSocketError::ControlTooLong),
            126 => {
                let Some(len) = input[2..].first_chunk() else { return Ok(None) };
                let len = u16::from_be_bytes(*len);
                if usize::from(len) <= MAX_CONTROL {
                    return Err(WebSocketError::NonMinimalLength);
                }
                (u64::from(len), 4)
            }
            127 => {
                let Some(len) = input[2..].first_chunk() else { return Ok(None) };
                let len = u64::from_be_bytes(*len);
                if len > i64::MAX as u64 {
                    return Err(WebSocketError::InvalidLength);
                }
                if len <= u64::from(u16::MAX) {
                    return Err(WebSocketError::NonMinimalLength);
                }
                (len, 10)
            }
            len => (u64::from(len), 2),
        };
        check(len)?;
        if !masked {
            return Ok(Some(Header { size: at, len, key: None }));
        }
        let Some(key) = input[at..].first_chunk() else { return Ok(None) };
        Ok(Some(Header { size: at + 4, len, key: Some(*key) }))
    }
}

/// Appends the header of an unfragmented frame.
#[inline]
pub(super) fn put_header(
    output: &mut OutboundBuffer,
    opcode: Opcode,
    compressed: bool,
    len: usize,
    key: Option<MaskKey>,
) {
    let mut header = [0; 14];
    header[0] = FIN | opcode as u8 | if compressed { RSV1 } else { 0 };
    let masked = if key.is_some() { MASKED } else { 0 };
    let mut size = if len <= MAX_CONTROL {
        header[1] = masked | len as u8;
        2
    } else if let Ok(len) = u16::try_from(len) {
        header[1] = masked | 126;
        header[2..4].copy_from_slice(&len.to_be_bytes());
        4
    } else {
        header[1] = masked | 127;
        header[2..10].copy_from_slice(&(len as u64).to_be_bytes());
        10
    };
    if let Some(key) = key {
        header[size..size + 4].copy_from_slice(&key);
        size += 4;
    }
    output.put_slice(&header[..size]);
}
