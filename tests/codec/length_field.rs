//! `LengthField` through the public API: D-01, D-02, D-16 to D-22.
//!
//! Every stream is fed in one piece, in two pieces at each position, and byte by byte.

use crate::support::codecs::{drive, encoded, expect, message};
use bytes::Bytes;
use netwheel::{
    Codec, Error,
    buffer::OutboundBuffer,
    codec::{LengthField, LengthFieldBuilder},
    error::{EncodeError, PeerError},
};

fn too_long(length: u64, limit: usize) -> Result<Bytes, PeerError> {
    Err(PeerError::too_long("frame", length, limit))
}

#[track_caller]
fn is_corrupted(event: &Result<Bytes, PeerError>, why: &str) {
    match event {
        Err(PeerError::Corrupted(text)) if text.contains(why) => {}
        other => panic!("{other:?} is not {why:?}"),
    }
}

fn builder(width: usize) -> LengthFieldBuilder {
    LengthField::builder().width(width)
}

/// Returns the name and value of the setting that `build` refuses.
#[track_caller]
fn refused(builder: LengthFieldBuilder) -> (&'static str, String) {
    match builder.build() {
        Err(Error::Setting(e)) => (e.setting(), e.value().to_owned()),
        other => panic!("{other:?}"),
    }
}

#[test]
fn d_01_a_partial_frame_is_not_consumed() {
    for partial in [&b""[..], b"\0", b"\0\0\0", b"\0\0\0\x05", b"\0\0\0\x05hell"] {
        let mut codec = LengthField::u32();
        for _ in 0..3 {
            let (events, left) = drive(&mut codec, [partial]);
            assert_eq!((events, &left[..]), (vec![], partial));
        }
    }
}

#[test]
fn d_01_the_end_of_the_stream_drops_a_partial_frame() {
    let mut codec = LengthField::u32();
    let mut input = Bytes::from_static(b"\0\0\0\x01a\0\0\0\x05hell");
    assert_eq!(codec.decode_last(&mut input).unwrap().unwrap(), "a");
    assert!(codec.decode_last(&mut input).unwrap().is_none());
    assert!(codec.decode_last(&mut Bytes::new()).unwrap().is_none());
}

#[test]
fn d_02_every_message_consumes_bytes_even_if_empty() {
    expect(&LengthField::u8(), &[0; 5], &vec![message(b""); 5], b"");
}

#[test]
fn d_16_the_shortcuts_decode_and_encode_each_width() {
    let cases: [(LengthField, &[u8]); 9] = [
        (LengthField::u8(), b"\x02hi"),
        (LengthField::u16(), b"\0\x02hi"),
        (LengthField::u24(), b"\0\0\x02hi"),
        (LengthField::u32(), b"\0\0\0\x02hi"),
        (LengthField::u64(), b"\0\0\0\0\0\0\0\x02hi"),
        (LengthField::u16().little_endian(), b"\x02\0hi"),
        (LengthField::u24().little_endian(), b"\x02\0\0hi"),
        (LengthField::u32().little_endian(), b"\x02\0\0\0hi"),
        (LengthField::u64().little_endian(), b"\x02\0\0\0\0\0\0\0hi"),
    ];
    for (codec, wire) in cases {
        assert_eq!(encoded(&codec, b"hi").unwrap(), wire);
        let twice = [wire, wire, &wire[..wire.len() - 1]].concat();
        expect(&codec, &twice, &vec![message(b"hi"), message(b"hi")], &wire[..wire.len() - 1]);
    }
}

/// The table in the documentation of `LengthField`: configuration, bytes, message. The flag says
/// whether encoding the decoded message yields the same bytes.
#[test]
fn d_16_offset_width_adjustment_strip_and_byte_order() {
    let cases: [(LengthFieldBuilder, &[u8], &[u8], bool); 12] = [
        (builder(2), b"\0\x02hi", b"hi", true),
        (builder(2).little_endian(), b"\x02\0hi", b"hi", true),
        (builder(2).strip(0), b"\0\x02hi", b"\0\x02hi", true),
        (builder(2).strip(1), b"\0\x02hi", b"\x02hi", true),
        (builder(2).strip(3), b"\0\x02hi", b"i", false),
        (builder(2).adjustment(-2), b"\0\x04hi", b"hi", true),
        (builder(2).adjustment(2), b"\0\x02\xCA\xFEhi", b"\xCA\xFEhi", true),
        (builder(2).offset(1), b"\xCA\0\x02hi", b"\xCA\0\x02hi", true),
        (builder(2).offset(1).strip(3), b"\xCA\0\x02hi", b"hi", false),
        (builder(2).offset(1).adjustment(-3).strip(3), b"\xCA\0\x06\xFEhi", b"\xFEhi", false),
        (builder(3).offset(2).little_endian(), b"\xCA\xFE\x02\0\0hi", b"\xCA\xFE\x02\0\0hi", true),
        (builder(8).adjustment(-8).strip(0), b"\0\0\0\0\0\0\0\x0Ahi", b"\0\0\0\0\0\0\0\x0Ahi", true),
    ];
    for (builder, wire, read, mirrored) in cases {
        let codec = builder.build().unwrap();
        let stream = [wire, wire, &wire[..1]].concat();
        expect(&codec, &stream, &vec![message(read), message(read)], &wire[..1]);
        if mirrored {
            assert_eq!(encoded(&codec, read).unwrap(), wire, "{codec:?}");
        }
    }
}

#[test]
fn d_16_contradictory_settings_are_refused_by_name() {
    for width in [0, 5, 6, 7, 9, usize::MAX] {
        assert_eq!(refused(builder(width)), ("width", width.to_string()));
    }
    assert_eq!(refused(builder(4).max_len(3)), ("max_len", "3".into()));
    assert_eq!(refused(builder(4).max_len(0)), ("max_len", "0".into()));
    assert_eq!(refused(builder(4).max_len(10).offset(7)), ("offset", "7".into()));
    assert_eq!(refused(builder(4).offset(usize::MAX)), ("offset", usize::MAX.to_string()));
    assert_eq!(refused(builder(4).max_len(10).adjustment(7)), ("adjustment", "7".into()));
    assert_eq!(refused(builder(1).adjustment(-256)), ("adjustment", "-256".into()));
    assert_eq!(refused(builder(8).adjustment(i64::MIN)), ("adjustment", i64::MIN.to_string()));
    assert_eq!(refused(builder(8).adjustment(i64::MAX)), ("adjustment", i64::MAX.to_string()));
    assert_eq!(refused(builder(4).max_len(10).strip(11)), ("strip", "11".into()));
    let four_gib = 1 << 32;
    assert_eq!(refused(builder(4).max_len(usize::MAX).offset(four_gib)), ("offset", four_gib.to_string()));
    assert_eq!(refused(builder(8).max_len(usize::MAX).strip(four_gib)), ("strip", four_gib.to_string()));
    assert_eq!(refused(builder(1).strip(257)), ("strip", "257".into()));

    for allowed in [
        builder(4).max_len(4),
        builder(4).max_len(10).offset(6),
        builder(4).max_len(10).adjustment(6),
        builder(1).adjustment(-255),
        builder(4).max_len(10).strip(10),
        builder(8).max_len(usize::MAX).offset(u32::MAX as usize),
        builder(8).max_len(usize::MAX).adjustment(i64::MAX),
        builder(8).max_len(usize::MAX).adjustment(-i64::MAX),
    ] {
        let codec = allowed.build().unwrap();
        drive(&mut codec.clone(), [&[0xFF; 40][..]]);
        drive(&mut codec.clone(), [&[0x7F; 40][..]]);
        let _ = encoded(&codec, [0; 40]);
    }
}

#[test]
fn d_16_the_limit_applies_to_whole_frames_in_both_directions() {
    let codec = LengthField::u32().max_len(9);
    let wire = b"\0\0\0\x05hello";
    expect(&codec, wire, &vec![message(b"hello")], b"");
    assert_eq!(encoded(&codec, b"hello").unwrap(), &wire[..]);

    let codec = LengthField::u32().max_len(8);
    expect(&codec, wire, &vec![too_long(9, 8)], b"");
    match encoded(&codec, b"hello") {
        Err(Error::Encode(EncodeError::TooLong { what: "frame", length: 9, limit: 8, .. })) => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn d_16_a_limit_below_the_header_refuses_every_frame() {
    for codec in [LengthField::u32(), LengthField::u64(), LengthField::u16().little_endian()] {
        for limit in 0..2 {
            let codec = codec.clone().max_len(limit);
            assert!(matches!(encoded(&codec, b""), Err(Error::Encode(EncodeError::TooLong { .. }))));
            let (events, left) = drive(&mut codec.clone(), [&[0; 16][..]]);
            assert!(left.is_empty() && !events.is_empty());
            assert!(events.iter().all(|e| matches!(e, Err(PeerError::TooLong { .. }))), "{events:?}");
        }
    }
}

#[test]
fn d_16_frames_are_slices_of_the_input() {
    let mut input = Bytes::from(vec![0, 0, 0, 2, b'h', b'i', 0, 0, 0, 1, b'!']);
    let start = input.as_ptr() as usize;
    let mut codec = LengthField::u32();
    for at in [4, 10] {
        let frame = codec.decode(&mut input).unwrap().unwrap();
        assert_eq!(frame.as_ptr() as usize - start, at);
    }
}

#[test]
fn d_17_fail_fast_reports_when_the_length_is_known_and_buffers_nothing() {
    let mut codec = LengthField::u32().max_len(8);
    let mut input = Bytes::from_static(b"\0\0\0\x06");
    assert!(matches!(
        codec.decode(&mut input),
        Err(Error::Peer(PeerError::TooLong { length: 10, limit: 8, .. }))
    ));
    assert!(input.is_empty());
    for chunk in [&b"abc"[..], b"d", b""] {
        let mut input = Bytes::from_static(chunk);
        assert!(codec.decode(&mut input).unwrap().is_none());
        assert!(input.is_empty(), "kept {input:?}");
    }
    let mut input = Bytes::from_static(b"ef\0\0\0\x01X");
    assert_eq!(codec.decode(&mut input).unwrap().unwrap(), "X");
}

#[test]
fn d_17_fail_fast_the_frame_after_a_too_long_one_decodes_twice_in_a_row() {
    let codec = LengthField::u32().max_len(5);
    let stream = b"\0\0\0\x02ab\0\0\0\x01A\0\0\0\x02cd\0\0\0\x03efg\0\0\0\x01B";
    let expected = vec![too_long(6, 5), message(b"A"), too_long(6, 5), too_long(7, 5), message(b"B")];
    expect(&codec, stream, &expected, b"");
}

#[test]
fn d_18_fail_slow_reports_after_the_whole_frame_was_dropped() {
    let mut codec = LengthField::u32().max_len(8).fail_slow();
    for chunk in [&b"\0\0\0\x06"[..], b"abc", b"de"] {
        let mut input = Bytes::from_static(chunk);
        assert!(codec.decode(&mut input).unwrap().is_none());
        assert!(input.is_empty(), "kept {input:?}");
    }
    let mut input = Bytes::from_static(b"f\0\0\0\x01X");
    assert!(matches!(
        codec.decode(&mut input),
        Err(Error::Peer(PeerError::TooLong { length: 10, limit: 8, .. }))
    ));
    assert_eq!(codec.decode(&mut input).unwrap().unwrap(), "X");
}

/// D-16, D-17: an unusually long header and its limit also apply to the frames after one that is
/// too long.
#[test]
fn d_16_a_long_header_works_before_and_after_a_too_long_frame() {
    let codec = builder(2).offset(300).strip(302).adjustment(-302).max_len(310).build().unwrap();
    let frame = |payload: &[u8]| {
        let length = (302 + payload.len()) as u16;
        [&[7; 300][..], &length.to_be_bytes(), payload].concat()
    };
    let stream = [frame(b"A"), frame(&[9; 9]), frame(b"BC"), frame(&[9; 9]), frame(b"D")].concat();
    let expected = [message(b"A"), too_long(311, 310), message(b"BC"), too_long(311, 310), message(b"D")];
    expect(&codec, &stream, &expected.to_vec(), b"");
    assert_eq!(encoded(&codec, [&[7; 300][..], b"A"].concat()).unwrap(), frame(b"A"));
    let behind = builder(1).adjustment(40_000).build().unwrap();
    let mut stream = vec![1];
    stream.resize(40_002, 5);
    expect_whole(&behind, &stream, &stream[1..]);
}

/// Asserts that a single frame is decoded, fed in one piece and in two.
#[track_caller]
fn expect_whole(codec: &LengthField, stream: &[u8], payload: &[u8]) {
    for chunks in [&[stream][..], &[&stream[..9], &stream[9..]]] {
        let (events, left) = drive(&mut codec.clone(), chunks.iter().copied());
        assert_eq!((events, left.len()), (vec![message(payload)], 0));
    }
}

#[test]
fn d_18_fail_slow_the_frame_after_a_too_long_one_decodes_twice_in_a_row() {
    let stream = b"\0\0\0\x02ab\0\0\0\x01A\0\0\0\x02cd\0\0\0\x03efg\0\0\0\x01B";
    let expected = vec![too_long(6, 5), message(b"A"), too_long(6, 5), too_long(7, 5), message(b"B")];
    expect(&LengthField::u32().max_len(5).fail_slow(), stream, &expected, b"");
    expect(&builder(4).max_len(5).fail_slow().build().unwrap(), stream, &expected, b"");
}

#[test]
fn d_18_a_too_long_frame_that_never_ends_is_reported_once_at_the_end_of_the_stream() {
    let stream = &b"\0\0\x01\0abc"[..];
    for (codec, reports_at_end) in [(LengthField::u32(), false), (LengthField::u32().fail_slow(), true)] {
        let mut codec = codec.max_len(8);
        let (events, left) = drive(&mut codec, [stream]);
        assert_eq!((events.len(), left.len()), (usize::from(!reports_at_end), 0));
        assert_eq!(codec.decode_last(&mut Bytes::new()).is_err(), reports_at_end);
        assert!(codec.decode_last(&mut Bytes::new()).unwrap().is_none());
    }
}

#[test]
fn d_19_a_negative_length_is_corrupted_and_its_header_is_skipped() {
    let codec = LengthField::u64();
    let stream = [&[0xFF; 8][..], &[0x80, 0, 0, 0, 0, 0, 0, 0], b"\0\0\0\0\0\0\0\x01A"].concat();
    let (events, _) = drive(&mut codec.clone(), [&stream[..]]);
    is_corrupted(&events[0], "negative");
    is_corrupted(&events[1], "negative");
    expect(&codec, &stream, &vec![events[0].clone(), events[1].clone(), message(b"A")], b"");
}

#[test]
fn d_19_a_length_that_ends_inside_the_header_is_corrupted_and_its_header_is_skipped() {
    let codec = builder(2).adjustment(-2).build().unwrap();
    let stream = b"\0\0\0\x01\0\x02\0\x03A";
    let (events, _) = drive(&mut codec.clone(), [&stream[..]]);
    is_corrupted(&events[0], "inside its own header");
    is_corrupted(&events[1], "inside its own header");
    expect(&codec, stream, &vec![events[0].clone(), events[1].clone(), message(b""), message(b"A")], b"");

    let codec = builder(1).offset(2).adjustment(-3).build().unwrap();
    let (events, left) = drive(&mut codec.clone(), [&b"ab\x02cd\x04E"[..]]);
    is_corrupted(&events[0], "inside its own header");
    assert_eq!((&events[1..], &left[..]), (&[message(b"cd\x04E")][..], &b""[..]));
}

#[test]
fn d_20_a_frame_shorter_than_the_strip_is_one_error_and_is_skipped() {
    let codec = builder(1).strip(3).build().unwrap();
    let stream = b"\x01a\x02bc\x00\x03def";
    let (events, _) = drive(&mut codec.clone(), [&stream[..]]);
    is_corrupted(&events[0], "stripped");
    let fault = events[0].clone();
    expect(&codec, stream, &vec![fault.clone(), message(b""), fault, message(b"f")], b"");

    // Header and body arrive in separate reads. In this case Netty repeats the error endlessly.
    let mut codec = codec.clone();
    let (events, left) = drive(&mut codec, [&b"\x01"[..]]);
    assert_eq!((events.len(), left.len()), (0, 1));
    let (events, left) = drive(&mut codec, [&b"\x01a"[..]]);
    assert_eq!((events.len(), left.len()), (1, 0));
    let (events, _) = drive(&mut codec, [&b"\x03def"[..]]);
    assert_eq!(events, [message(b"f")]);
}

#[test]
fn d_21_lengths_and_adjustments_at_the_end_of_the_range_are_clean_errors() {
    let field = |length: u64| length.to_be_bytes();
    for adjustment in [0, 1, 8, 1000, -1, -8, -1000] {
        for fail_slow in [false, true] {
            let settings = builder(8).offset(3).adjustment(adjustment).max_len(2000);
            let codec = if fail_slow { settings.fail_slow() } else { settings }.build().unwrap();
            for length in [i64::MAX as u64 - 1, i64::MAX as u64] {
                let stream = [&b"abc"[..], &field(length)].concat();
                let mut codec = codec.clone();
                let (events, left) = drive(&mut codec, [&stream[..]]);
                let expected = length.checked_add_signed(adjustment).unwrap() + 11;
                if fail_slow {
                    assert_eq!((events.len(), left.len()), (0, 0));
                } else {
                    assert_eq!((events, left.len()), (vec![too_long(expected, 2000)], 0));
                }
                let (events, left) = drive(&mut codec, [&[0; 4096][..]]);
                assert_eq!((events.len(), left.len()), (0, 0), "still dropping");
            }
            for length in [1 << 63, u64::MAX - 1, u64::MAX] {
                let stream = [&b"abc"[..], &field(length)].concat();
                let (events, left) = drive(&mut codec.clone(), [&stream[..]]);
                assert_eq!((events.len(), left.len()), (1, 0));
                is_corrupted(&events[0], "negative");
            }
        }
    }
    let unlimited = builder(8).adjustment(i64::MAX).max_len(usize::MAX).build().unwrap();
    let (events, left) = drive(&mut unlimited.clone(), [&field(i64::MAX as u64)[..]]);
    assert_eq!((events.len(), left.len()), (0, 8), "without a limit the codec waits for the frame");
}

#[test]
fn d_22_the_length_is_prepended() {
    assert_eq!(encoded(&LengthField::u32(), b"A").unwrap(), &b"\0\0\0\x01A"[..]);
    let counts_itself = builder(4).adjustment(-4).build().unwrap();
    assert_eq!(encoded(&counts_itself, b"A").unwrap(), &b"\0\0\0\x05A"[..]);
    let one_less = builder(4).adjustment(1).build().unwrap();
    assert_eq!(encoded(&one_less, b"A").unwrap(), &b"\0\0\0\0A"[..]);
    assert_eq!(encoded(&LengthField::u24().little_endian(), b"A").unwrap(), &b"\x01\0\0A"[..]);
}

#[test]
fn d_22_a_negative_length_is_an_encode_error() {
    let codec = builder(4).adjustment(2).build().unwrap();
    match encoded(&codec, b"A") {
        Err(Error::Encode(EncodeError::Unencodable(why))) => assert_eq!(&*why, "a length of -1"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn d_22_a_length_that_does_not_fit_is_an_encode_error() {
    for (codec, largest, header) in [
        (LengthField::u8(), 255, 1),
        (LengthField::u16(), 65_535, 2),
        (LengthField::u24().max_len(usize::MAX), 16_777_215, 3),
    ] {
        assert_eq!(encoded(&codec, vec![7; largest]).unwrap().len(), largest + header);
        let mut output = OutboundBuffer::new();
        match codec.clone().encode(vec![7; largest + 1].into(), &mut output) {
            Err(Error::Encode(EncodeError::TooLong { what: "frame", length, limit, .. })) => {
                assert_eq!((length, limit), ((largest + 1 + header) as u64, (largest + header) as u64));
            }
            other => panic!("{other:?}"),
        }
        assert!(output.is_empty());
    }
    let counts_itself = builder(1).adjustment(-1).build().unwrap();
    assert!(encoded(&counts_itself, [7; 254]).is_ok());
    assert!(matches!(encoded(&counts_itself, [7; 255]), Err(Error::Encode(EncodeError::TooLong { .. }))));
}

#[test]
fn d_22_a_message_contains_the_header_bytes_that_the_codec_cannot_know() {
    let strips_all = builder(2).offset(1).strip(3).build().unwrap();
    assert_eq!(encoded(&strips_all, b"\xCAhi").unwrap(), &b"\xCA\0\x02hi"[..]);
    assert!(matches!(encoded(&strips_all, b""), Err(Error::Encode(EncodeError::Unencodable(_)))));

    let strips_nothing = builder(2).offset(1).build().unwrap();
    assert_eq!(encoded(&strips_nothing, b"\xCA\0\x02hi").unwrap(), &b"\xCA\0\x02hi"[..]);
    for wrong in [&b"\xCA\0\x03hi"[..], b"\xCA\0", b"hi"] {
        assert!(matches!(encoded(&strips_nothing, wrong), Err(Error::Encode(EncodeError::Unencodable(_)))));
    }

    let strips_more = builder(1).strip(3).build().unwrap();
    assert_eq!(encoded(&strips_more, b"abc").unwrap(), &b"\x03abc"[..]);
    assert!(matches!(encoded(&strips_more, b"a"), Err(Error::Encode(EncodeError::Unencodable(_)))));
}

#[test]
fn d_22_large_messages_are_encoded_completely() {
    let large = vec![7; 100_000];
    let codec = LengthField::u32();
    let wire = encoded(&codec, &large).unwrap();
    let (events, left) = drive(&mut codec.clone(), wire.chunks(1000));
    assert_eq!((events, left.len()), (vec![message(&large)], 0));
}
