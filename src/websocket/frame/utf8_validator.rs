//! UTF-8 that arrives in pieces.
//!
//! Invariants: each byte is checked once, plus at most three bytes of a code point that was cut.
//! The first byte that cannot continue the text is an error as soon as it arrives.

use crate::websocket::error::WebSocketError;
use std::str::from_utf8;

/// The state of a text of which a part has arrived.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Utf8Validator {
    /// The beginning of a code point.
    cut: [u8; 4],
    len: u8,
}

impl Utf8Validator {
    /// Checks the next bytes of the text.
    pub(super) fn push(&mut self, mut bytes: &[u8]) -> Result<(), WebSocketError> {
        while self.len > 0 {
            let Some((&first, rest)) = bytes.split_first() else { return Ok(()) };
            self.cut[usize::from(self.len)] = first;
            self.len += 1;
            bytes = rest;
            match from_utf8(&self.cut[..usize::from(self.len)]) {
                Ok(_) => self.len = 0,
                Err(error) if error.error_len().is_none() => {}
                Err(_) => return Err(WebSocketError::InvalidUtf8),
            }
        }
        let Err(error) = from_utf8(bytes) else { return Ok(()) };
        if error.error_len().is_some() {
            return Err(WebSocketError::InvalidUtf8);
        }
        let cut = &bytes[error.valid_up_to()..];
        self.cut[..cut.len()].copy_from_slice(cut);
        self.len = cut.len() as u8;
        Ok(())
    }

    /// Checks that the text ends with a whole code point.
    pub(super) fn finish(self) -> Result<(), WebSocketError> {
        if self.len == 0 { Ok(()) } else { Err(WebSocketError::InvalidUtf8) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Returns the number of bytes after which the text is known to be invalid.
    fn fails_after(bytes: &[u8], cuts: &[usize]) -> Option<usize> {
        let mut text = Utf8Validator::default();
        let mut from = 0;
        for to in cuts.iter().copied().chain([bytes.len()]) {
            if text.push(&bytes[from..to]).is_err() {
                return Some(to);
            }
            from = to;
        }
        text.finish().err().map(|_| usize::MAX)
    }

    proptest! {
        #[test]
        fn any_split_agrees_with_the_whole(
            text in "\\PC{0,40}",
            garbage in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..3),
            cut in any::<prop::sample::Index>(),
        ) {
            let mut bytes = text.into_bytes();
            for (at, byte) in garbage {
                if !bytes.is_empty() {
                    let at = at.index(bytes.len());
                    bytes[at] = byte;
                }
            }
            let each: Vec<usize> = (0..bytes.len()).collect();
            let first_bad = fails_after(&bytes, &each);
            prop_assert_eq!(first_bad.is_none(), from_utf8(&bytes).is_ok());
            let cut = cut.index(bytes.len() + 1);
            let found = fails_after(&bytes, &[cut]);
            let expected = first_bad.map(|bad| match bad {
                usize::MAX => bad,
                bad if bad <= cut => cut,
                _ => bytes.len(),
            });
            prop_assert_eq!(found, expected);
        }
    }

    #[test]
    fn the_first_impossible_byte_is_an_error() {
        // A code point above U+10FFFF is known at its second byte, a surrogate too.
        for bad in [&b"\xF4\x90"[..], b"\xED\xA0", b"\xC0", b"\xFF", b"\xE0\x80"] {
            let each: Vec<usize> = (0..bad.len()).collect();
            assert_eq!(fails_after(bad, &each), Some(bad.len()), "{bad:x?}");
        }
    }
}
