//! Codecs that misbehave, and a driver of decoders.

use bytes::Bytes;
use netwheel::{EncodeError, Error, PeerError, Result, buffer::Outbound, codec::Line, pipeline::Codec};

/// Lines in and out, plus messages that show what happens when encoding and decoding fail:
/// `fail` after some bytes, `panic` after some bytes; inbound the line `bad`.
pub(crate) struct Fussy(Line);

impl Fussy {
    pub(crate) fn new() -> Self {
        Fussy(Line::new())
    }
}

impl Codec for Fussy {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        match self.0.decode(input)? {
            Some(line) if line == "bad" => Err(PeerError::Malformed("bad".to_owned()).into()),
            Some(line) if line == "burst" => panic!("decode on purpose"),
            other => Ok(other),
        }
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        match &message[..] {
            b"fail" => {
                output.put_slice(b"half of it");
                output.put(Bytes::from(vec![b'x'; 10_000]));
                output.put_slice(b"and some");
                Err(EncodeError::Unencodable("on purpose".to_owned()).into())
            }
            b"panic" => {
                output.put_slice(b"half of it");
                panic!("encode on purpose");
            }
            _ => self.0.encode(message, output),
        }
    }
}

/// Single bytes, but only once no more will come.
pub(crate) struct AtLast;

impl Codec for AtLast {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        Ok((!input.is_empty()).then(|| input.split_to(1)))
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        output.put(message);
        Ok(())
    }
}

// ---- without a channel -------------------------------------------------------------------------

/// What came out: messages and the peer's faults, in order.
pub(crate) type Events = Vec<Result<Bytes, PeerError>>;

/// Does what a channel does: what is left stands in front of the next chunk, and `decode` is called until it
/// has nothing more to say. Checks the contract on the way. Answers what came out and what was left.
pub(crate) fn drive<'a, C>(codec: &mut C, chunks: impl IntoIterator<Item = &'a [u8]>) -> (Events, Bytes)
where
    C: Codec<In = Bytes>,
{
    let mut events = Events::new();
    let mut left = Bytes::new();
    for chunk in chunks {
        let mut input = Bytes::from([&left[..], chunk].concat());
        loop {
            let before = input.clone();
            let decoded = codec.decode(&mut input);
            assert!(before.ends_with(&input), "took bytes elsewhere than from the front");
            match decoded {
                Ok(None) => break,
                Ok(Some(message)) => events.push(Ok(message)),
                Err(Error::Peer(fault)) => events.push(Err(fault)),
                Err(other) => panic!("not the peer's fault: {other}"),
            }
            assert!(input.len() < before.len(), "a message or an error took no byte");
        }
        left = input;
    }
    (events, left)
}
