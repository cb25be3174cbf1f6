//! Splits bytes into lines: an example of an application-defined codec.

use bytes::Bytes;
use netwheel::{Codec, Result, buffer::OutboundBuffer, codec::Line};

/// A line codec that limits only incoming lines. Outgoing lines are produced by the server, and a
/// list of members may be longer than the limit for clients.
pub(crate) struct Lines {
    incoming: Line,
}

impl Lines {
    pub(crate) fn new(max_line: usize) -> Self {
        // Fail fast: a line that is too long closes the connection, so there is no need to wait for
        // its end.
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

    /// Encodes a line equally for all clients, so a message to a room is encoded once.
    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}
