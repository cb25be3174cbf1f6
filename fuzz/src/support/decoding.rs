//! Decoding without a channel.

use super::Cuts;
use netwheel::{Codec, Error, Result, buffer::OutboundBuffer, bytes::Bytes, error::PeerError};
use std::fmt::Debug;

/// Messages and errors of the peer, in order.
pub(crate) type Decoded<M> = Vec<Result<M, PeerError>>;

/// Decodes `stream` in one piece and in others. Asserts that the results are the same, and
/// returns them with the bytes that are left.
///
/// `inexact` says that the length in a `TooLong` depends on the pieces.
pub(crate) fn decode_in_pieces<C>(
    codec: &C,
    stream: &[u8],
    cuts: Cuts,
    inexact: bool,
) -> (Decoded<C::Read>, Bytes)
where
    C: Codec<Read: Debug> + Clone,
{
    let mut ways = cuts.ways(stream).into_iter().map(|pieces| drive(&mut codec.clone(), pieces));
    let (whole, left) = ways.next().expect("one way at least");
    let expected = comparable(&whole, inexact);
    for (decoded, also_left) in ways {
        assert_eq!(comparable(&decoded, inexact), expected, "the result depends on the pieces");
        assert_eq!(also_left, left, "the rest depends on the pieces");
    }
    (whole, left)
}

fn comparable<M: Debug>(decoded: &Decoded<M>, inexact: bool) -> Vec<String> {
    let text = |event: &Result<M, PeerError>| match event {
        Err(PeerError::TooLong { what, limit, length, .. }) if inexact => {
            assert!(*length > *limit as u64, "a {what} of {length} bytes is not too long");
            format!("{what} is longer than {limit}")
        }
        // As text, because NaN is not equal to itself.
        other => format!("{other:?}"),
    };
    decoded.iter().map(text).collect()
}

/// Decodes like a channel: `decode` is called until it returns `None`, and the bytes that are left
/// precede the next piece. Asserts the contract of `Codec::decode`.
fn drive<C: Codec>(codec: &mut C, pieces: Vec<&[u8]>) -> (Decoded<C::Read>, Bytes) {
    let (mut decoded, mut left) = (Vec::new(), Bytes::new());
    for piece in pieces {
        let mut input = Bytes::from([&left[..], piece].concat());
        while !input.is_empty() {
            let before = input.clone();
            let event = codec.decode(&mut input);
            assert!(before.ends_with(&input), "the decoder did not consume from the front");
            match event {
                Ok(None) => break,
                Ok(Some(message)) => decoded.push(Ok(message)),
                Err(Error::Peer(fault)) => decoded.push(Err(fault)),
                Err(other) => panic!("not an error of the peer: {other}"),
            }
            assert!(input.len() < before.len(), "a message or an error consumed no bytes");
        }
        left = input;
    }
    (decoded, left)
}

/// Encodes messages. Asserts that a failure leaves no output.
pub(crate) fn encode<C: Codec>(codec: &mut C, messages: impl IntoIterator<Item = C::Write>) -> Result<Bytes> {
    let mut output = OutboundBuffer::new();
    for message in messages {
        let before = output.len();
        if let Err(error) = codec.encode(message, &mut output) {
            assert_eq!(output.len(), before, "a message that was refused left bytes: {error:#}");
            return Err(error);
        }
    }
    Ok(output.to_bytes())
}
