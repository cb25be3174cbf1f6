//! `Varint` through the public API.
//!
//! Every stream is fed in one piece, in two pieces at each position, and byte by byte.

use crate::support::{
    codecs::{drive, drive_with_offsets, encoded, expect, message},
    random::Random,
};
use bytes::Bytes;
use netwheel::{
    Codec, Error,
    buffer::OutboundBuffer,
    codec::Varint,
    error::{EncodeError, PeerError},
};
use proptest::{collection::vec, prelude::*};

fn too_long(length: u64, limit: usize) -> Result<Bytes, PeerError> {
    Err(PeerError::too_long("frame", length, limit))
}

fn negative() -> Result<Bytes, PeerError> {
    Err(PeerError::Corrupted("the length is negative"))
}

fn six_bytes() -> Result<Bytes, PeerError> {
    Err(PeerError::Corrupted("the length has more than 5 bytes"))
}

#[test]
fn frames_are_decoded_at_every_split() {
    let long = [b'x'; 300];
    let stream = [&b"\x02hi\x00\xAC\x02"[..], &long, b"\x01"].concat();
    let expected = [message("hi"), message(""), message(long)];
    expect(&Varint::new(), &stream, &expected.into(), b"\x01");
}

#[test]
fn superfluous_zero_bits_are_accepted() {
    let stream = b"\x82\x00hi\x82\x80\x80\x80\x00hi\x80\x80\x00";
    expect(&Varint::new(), stream, &vec![message("hi"), message("hi"), message("")], b"");
}

/// D-39
#[test]
fn a_length_of_six_bytes_is_refused_at_its_fifth() {
    for sixth in [0x00, 0x01, 0x7F, 0x80] {
        let stream = [0x82, 0x80, 0x80, 0x80, 0x80, sixth];
        let (events, _) = drive_with_offsets(&mut Varint::new(), [&stream[..5]]);
        assert_eq!(events, [(six_bytes(), 5)]);
    }
    expect(&Varint::new(), b"\x82\x80\x80\x80\x80\x02hi", &vec![six_bytes(), message("hi")], b"");
}

/// D-39
#[test]
fn a_negative_length_is_refused() {
    // -1 with 32 bits, the lowest negative number, and 2^32 and 2^35 - 1, which need more bits.
    for length in
        [b"\xFF\xFF\xFF\xFF\x0F", b"\x80\x80\x80\x80\x08", b"\x80\x80\x80\x80\x10", b"\xFF\xFF\xFF\xFF\x7F"]
    {
        let stream = [&length[..], b"\x02hi"].concat();
        expect(&Varint::new().max_len(usize::MAX), &stream, &vec![negative(), message("hi")], b"");
    }
    // -1 as protobuf writes it, with 64 bits: ten bytes.
    let (events, _) = drive(&mut Varint::new(), [&b"\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"[..]]);
    assert_eq!(events[0], six_bytes());
}

/// D-39
#[test]
fn a_length_over_the_limit_is_refused_when_it_is_known() {
    let codec = Varint::new().max_len(300);
    let (events, left) = drive_with_offsets(&mut codec.clone(), [&b"\xAD\x02"[..]]);
    assert_eq!((&events[..], left.len()), (&[(too_long(301, 300), 2)][..], 0));
    let largest = b"\xFF\xFF\xFF\xFF\x07";
    let (events, _) = drive_with_offsets(&mut Varint::new(), largest.chunks(1));
    assert_eq!(events, [(too_long(i32::MAX as u64, 1 << 20), 5)]);
}

/// D-39
#[test]
fn a_frame_over_the_limit_is_dropped_as_it_arrives_and_the_next_is_decoded() {
    let stream = [&b"\x03abc\x05"[..], b"12345", b"\x04\x02hi!", b"\x03xyz"].concat();
    let expected = vec![message("abc"), too_long(5, 4), message(b"\x02hi!"), message("xyz")];
    expect(&Varint::new().max_len(4), &stream, &expected, b"");

    let mut codec = Varint::new().max_len(4);
    let (events, left) = drive(&mut codec, [&b"\x80\x80\x04"[..]]);
    assert_eq!((events, left.len()), (vec![too_long(65_536, 4)], 0));
    for _ in 0..64 {
        let (events, left) = drive(&mut codec, [&[b'x'; 1024][..]]);
        assert_eq!((events.len(), left.len()), (0, 0));
    }
    assert_eq!(drive(&mut codec, [&b"\x02ok"[..]]).0, [message("ok")]);
}

#[test]
fn the_end_of_the_stream_drops_an_incomplete_frame() {
    let mut codec = Varint::new();
    let mut input = Bytes::from_static(b"\x01a\x05hell");
    assert_eq!(codec.decode_last(&mut input).unwrap().unwrap(), "a");
    assert!(codec.decode_last(&mut input).unwrap().is_none());
    assert!(codec.decode_last(&mut Bytes::new()).unwrap().is_none());
}

#[test]
fn the_same_limit_applies_to_encoding() {
    let codec = Varint::new().max_len(300);
    assert_eq!(encoded(&codec, [b'x'; 300]).unwrap()[..2], [0xAC, 0x02]);
    match encoded(&codec, [b'x'; 301]) {
        Err(Error::Encode(EncodeError::TooLong { what: "frame", length: 301, limit: 300, .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn lengths_are_encoded_in_their_shortest_form() {
    for (length, header) in [
        (0, &[0][..]),
        (127, &[0x7F]),
        (128, &[0x80, 0x01]),
        (16_383, &[0xFF, 0x7F]),
        (16_384, &[0x80, 0x80, 0x01]),
    ] {
        let frame = encoded(&Varint::new(), vec![0; length]).unwrap();
        assert_eq!((&frame[..header.len()], frame.len()), (header, header.len() + length));
        assert!(Varint::encoded_len_hint(&Bytes::from(vec![0; length])).unwrap() >= frame.len());
    }
}

proptest! {
    #[test]
    fn encoded_frames_decode_to_the_same_messages(
        messages in vec(vec(any::<u8>(), 0..300), 0..12), size in 1..40usize,
    ) {
        let mut output = OutboundBuffer::new();
        for message in &messages {
            Varint::new().encode(Bytes::copy_from_slice(message), &mut output).unwrap();
        }
        let (events, left) = drive(&mut Varint::new(), output.to_bytes().chunks(size));
        prop_assert_eq!(events, messages.iter().map(message).collect::<Vec<_>>());
        prop_assert!(left.is_empty());
    }
}

/// Set `NETWHEEL_RANDOM_CASES` for a longer run.
#[test]
fn random_input_gives_the_same_events_at_every_split() {
    let mut random = Random::new(17);
    let (mut messages, mut errors) = (0, 0);
    for case in 0..Random::cases() {
        // Many small bytes, so that some are frames, and many with the highest bit set.
        let length = random.between(0, 80);
        let stream: Bytes = (0..length)
            .map(|_| random.number().to_le_bytes())
            .map(|[kind, byte, ..]| if kind < 200 { byte % 8 + 0x80 * (kind % 3 / 2) } else { byte })
            .collect();
        let codec = Varint::new().max_len(5);
        let whole = drive_with_offsets(&mut codec.clone(), [&stream[..]]);
        let chunks = random.chunks(&stream, 1, 7);
        let split = drive_with_offsets(&mut codec.clone(), chunks.iter().map(|chunk| &chunk[..]));
        assert_eq!(whole, split, "case {case}: {stream:?} as {chunks:?}");
        let refused = whole.0.iter().filter(|(event, _)| event.is_err()).count();
        (messages, errors) = (messages + whole.0.len() - refused, errors + refused);
    }
    let enough = Random::cases() / 2;
    assert!(messages > enough && errors > enough, "{messages} messages, {errors} errors");
}
