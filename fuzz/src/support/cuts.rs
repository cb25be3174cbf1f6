//! Cutting a stream into pieces, as a network does.

use arbitrary::Arbitrary;

/// The lengths of pieces in bytes, minus one. They are repeated until the stream ends.
#[derive(Debug, Clone, Copy, Arbitrary)]
pub(crate) struct Cuts([u8; 4]);

/// The longest stream that is also cut after each byte. This costs quadratic time.
const SHORT: usize = 512;

impl Cuts {
    /// Returns the stream in one piece, in these pieces, and byte by byte if it is short.
    pub(crate) fn ways(self, stream: &[u8]) -> Vec<Vec<&[u8]>> {
        let mut ways = vec![vec![stream], self.pieces(stream)];
        if stream.len() <= SHORT {
            ways.push(stream.chunks(1).collect());
        }
        ways
    }

    fn pieces(self, mut stream: &[u8]) -> Vec<&[u8]> {
        let mut pieces = Vec::new();
        for length in self.0.into_iter().cycle() {
            if stream.is_empty() {
                break;
            }
            let (piece, rest) = stream.split_at(stream.len().min(usize::from(length) + 1));
            pieces.push(piece);
            stream = rest;
        }
        pieces
    }
}
