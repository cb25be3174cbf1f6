//! Codecs that fail on request, and functions that drive a decoder without a channel.

use bytes::Bytes;
use netwheel::{
    Codec, Error, Result,
    buffer::OutboundBuffer,
    codec::Line,
    error::{EncodeError, PeerError},
};

/// A line codec with messages that make it fail. Encoding `fail` returns an error and encoding
/// `panic` panics, both after some output. Decoding the line `bad` is an error of the peer, and
/// decoding `burst` panics.
pub(crate) struct Fussy(Line);

impl Fussy {
    pub(crate) fn new() -> Self {
        Fussy(Line::new())
    }
}

impl Codec for Fussy {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        match self.0.decode(input)? {
            Some(line) if line == "bad" => Err(PeerError::Malformed("bad".into()).into()),
            Some(line) if line == "burst" => panic!("decode on purpose"),
            other => Ok(other),
        }
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        match &message[..] {
            b"fail" => {
                output.put_slice(b"half of it");
                output.put(Bytes::from(vec![b'x'; 10_000]));
                output.put_slice(b"and some");
                Err(EncodeError::Unencodable("on purpose".into()).into())
            }
            b"panic" => {
                output.put_slice(b"half of it");
                panic!("encode on purpose");
            }
            _ => self.0.encode(message, output),
        }
    }
}

/// Decodes single bytes, but only at the end of input.
pub(crate) struct AtLast;

impl Codec for AtLast {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn decode_last(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        Ok((!input.is_empty()).then(|| input.split_to(1)))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

// ---- codecs without a channel ------------------------------------------------------------------

/// Decoded messages and errors of the peer, in order.
pub(crate) type Events = Vec<Result<Bytes, PeerError>>;

/// Asserts that `stream` decodes to `expected` and leaves `left` for every split: in one piece, in
/// two pieces at each position, and byte by byte.
#[track_caller]
pub(crate) fn expect<C: Codec<Read = Bytes> + Clone>(
    codec: &C,
    stream: &[u8],
    expected: &Events,
    left: &[u8],
) {
    expect_of(codec, stream, expected, left, |event| event);
}

/// Like [`expect`], but maps each event with `comparable` first.
#[track_caller]
pub(crate) fn expect_of<C: Codec<Read = Bytes> + Clone>(
    codec: &C,
    stream: &[u8],
    expected: &Events,
    left: &[u8],
    comparable: fn(Result<Bytes, PeerError>) -> Result<Bytes, PeerError>,
) {
    let check = |chunks: &[&[u8]]| {
        let (events, rest) = drive(&mut codec.clone(), chunks.iter().copied());
        let events: Events = events.into_iter().map(comparable).collect();
        assert_eq!((&events, &rest[..]), (expected, left), "fed as {chunks:?}");
    };
    check(&[stream]);
    for at in 0..=stream.len() {
        let (first, second) = stream.split_at(at);
        check(&[first, second]);
    }
    check(&stream.chunks(1).collect::<Vec<_>>());
}

/// Clears the length in a [`PeerError::TooLong`] of a codec that fails fast. That length depends on
/// the split.
pub(crate) fn without_length(event: Result<Bytes, PeerError>) -> Result<Bytes, PeerError> {
    match event {
        Err(PeerError::TooLong { what, length, limit, .. }) => {
            assert!(length > limit as u64);
            Err(PeerError::too_long(what, 0, limit))
        }
        other => other,
    }
}

pub(crate) fn message(bytes: impl AsRef<[u8]>) -> Result<Bytes, PeerError> {
    Ok(Bytes::copy_from_slice(bytes.as_ref()))
}

/// Encodes one message. Asserts that a failure leaves no output.
pub(crate) fn encoded<C: Codec<Write = Bytes> + Clone>(
    codec: &C,
    message: impl AsRef<[u8]>,
) -> Result<Bytes> {
    let mut output = OutboundBuffer::new();
    let result = codec.clone().encode(Bytes::copy_from_slice(message.as_ref()), &mut output);
    assert_eq!(result.is_err(), output.is_empty());
    result.map(|()| output.to_bytes())
}

/// Decodes `chunks` like a channel: the remaining bytes precede the next chunk, and `decode` is
/// called until it returns `None`. Asserts the contract of [`Codec::decode`]. Returns the events
/// and the remaining bytes.
pub(crate) fn drive<'a, C: Codec>(
    codec: &mut C,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<Result<C::Read, PeerError>>, Bytes) {
    let (events, left) = drive_with_offsets(codec, chunks);
    (events.into_iter().map(|(event, _)| event).collect(), left)
}

/// A decoded message or an error of the peer, and the number of bytes of the stream that were
/// consumed until then.
pub(crate) type EventAt<M> = (Result<M, PeerError>, usize);

/// Like [`drive`], and returns the offset of each event.
pub(crate) fn drive_with_offsets<'a, C: Codec>(
    codec: &mut C,
    chunks: impl IntoIterator<Item = &'a [u8]>,
) -> (Vec<EventAt<C::Read>>, Bytes) {
    let mut events = Vec::new();
    let mut left = Bytes::new();
    let mut received = 0;
    for chunk in chunks {
        let mut input = Bytes::from([&left[..], chunk].concat());
        received += chunk.len();
        // A channel does not decode without input.
        while !input.is_empty() {
            let before = input.clone();
            let decoded = codec.decode(&mut input);
            assert!(before.ends_with(&input), "the decoder did not consume from the front");
            let offset = received - input.len();
            match decoded {
                Ok(None) => break,
                Ok(Some(message)) => events.push((Ok(message), offset)),
                Err(Error::Peer(fault)) => events.push((Err(fault), offset)),
                Err(other) => panic!("not an error of the peer: {other}"),
            }
            assert!(input.len() < before.len(), "a message or an error consumed no bytes");
        }
        left = input;
    }
    (events, left)
}
