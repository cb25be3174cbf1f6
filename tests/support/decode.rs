//! Drives a decoder as a channel does, without a channel.

use bytes::Bytes;
use netwheel::{Error, PeerError, pipeline::Codec};

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
