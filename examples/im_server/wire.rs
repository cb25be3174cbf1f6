//! Between bytes and requests: a codec and a stage of this program's own.

use crate::protocol::{Reply, Request};
use bytes::Bytes;
use netwheel::{
    Result,
    buffer::Outbound,
    codec::Line,
    pipeline::{Codec, Stage, StageContext},
    stage::Json,
};

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
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.incoming.decode(input)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        self.incoming.decode_last(input)
    }

    fn encode(&mut self, line: Bytes, output: &mut Outbound) -> Result {
        output.put(line);
        output.put_u8(b'\n');
        Ok(())
    }
}

/// What a session writes.
#[derive(Debug, Clone)]
pub(crate) enum Outgoing {
    /// To one client: encoded when it is written.
    Reply(Reply),
    /// To many: encoded once, and shared.
    Encoded(Bytes),
}

impl Outgoing {
    /// Encodes `reply` for sending it to many.
    pub(crate) fn encode(reply: &Reply) -> Result<Outgoing> {
        let line = serde_json::to_vec(reply).map_err(netwheel::Error::other)?;
        Ok(Outgoing::Encoded(line.into()))
    }
}

impl From<Reply> for Outgoing {
    fn from(reply: Reply) -> Self {
        Outgoing::Reply(reply)
    }
}

/// Lines to requests, and replies to lines unless they are lines already.
#[derive(Default)]
pub(crate) struct Messages {
    json: Json<Request, Reply>,
}

impl Stage for Messages {
    type In = Bytes;
    type Out = Request;
    type WriteIn = Outgoing;
    type WriteOut = Bytes;

    fn read(&mut self, ctx: &mut StageContext<'_, Bytes>, line: Bytes) -> Result<Option<Request>> {
        self.json.read(ctx, line)
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Outgoing) -> Result {
        match message {
            Outgoing::Reply(reply) => self.json.write(ctx, reply),
            Outgoing::Encoded(line) => ctx.write(line),
        }
    }
}
