//! Between bytes and lines: a codec of this program's own.

use bytes::Bytes;
use netwheel::{Result, buffer::OutboundBuffer, codec::Line, pipeline::Codec};

/// Lines, of which only those that come in are limited: what goes out is the server's own work, and a list of
/// members may be longer than anything that a client is allowed to send.
pub(crate) struct Lines {
    incoming: Line,
}

impl Lines {
    pub(crate) fn new(max_line: usize) -> Self {
        // Fail fast: the answer to a line that is too long is to close, so its end need not be waited for.
        Lines { incoming: Line::new().max_len(max_line).fail_fast() }
    }
}

impl Codec for Lines {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.incoming.decode(input)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.incoming.decode_last(input)
    }

    fn encode(&mut self, line: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(line);
        output.put_u8(b'\n');
        Ok(())
    }

    /// The same line for everybody: what is said in a room is encoded once.
    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}
