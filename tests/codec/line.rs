//! `Line` and `RawBytes` through the public API: D-01, D-02, D-23 to D-25.
//!
//! Every stream is fed in one piece, in two pieces at each position, and byte by byte.

use crate::support::codecs::{Events, drive, encoded, expect, expect_of, message, without_length};
use bytes::Bytes;
use netwheel::{
    Codec, Error,
    buffer::OutboundBuffer,
    codec::{Line, RawBytes},
    error::{EncodeError, PeerError},
};

/// Like `expect`, for fail-fast, where the reported length of a line depends on the split.
#[track_caller]
fn expect_fast(codec: &Line, stream: &[u8], expected: &Events, left: &[u8]) {
    expect_of(codec, stream, expected, left, without_length);
}

fn too_long(length: u64, limit: usize) -> Result<Bytes, PeerError> {
    Err(PeerError::too_long("line", length, limit))
}

#[test]
fn d_01_an_unfinished_line_is_not_consumed() {
    for partial in ["", "a", "abc\r"] {
        let mut codec = Line::new();
        for _ in 0..3 {
            let (events, left) = drive(&mut codec, [partial.as_bytes()]);
            assert_eq!((events, &left[..]), (vec![], partial.as_bytes()));
        }
        let (events, left) = drive(&mut codec, [&b"abc\r\nd\n"[..]]);
        assert_eq!((events, left.len()), (vec![message("abc"), message("d")], 0));
    }
}

#[test]
fn d_01_the_end_of_the_stream_drops_an_unfinished_line() {
    let mut codec = Line::new();
    let mut input = Bytes::from_static(b"one\ntw");
    assert_eq!(codec.decode_last(&mut input).unwrap().unwrap(), "one");
    assert!(codec.decode_last(&mut input).unwrap().is_none());
    assert!(codec.decode_last(&mut Bytes::new()).unwrap().is_none());
}

#[test]
fn d_02_every_message_consumes_bytes_even_if_empty() {
    expect(&Line::new(), b"\n\n\r\n", &vec![message(""); 3], b"");
    expect(&Line::new().max_len(0), b"\n\n\r\n", &vec![message(""); 3], b"");
}

#[test]
fn d_23_lf_and_crlf_end_a_line_with_and_without_strip() {
    let stream = b"first\r\nsecond\nthird";
    expect(&Line::new(), stream, &vec![message("first"), message("second")], b"third");
    let kept = Line::new().keep_terminator();
    expect(&kept, stream, &vec![message("first\r\n"), message("second\n")], b"third");
}

#[test]
fn d_23_an_empty_line_is_an_empty_message() {
    expect(&Line::new(), b"a\n\n\r\nb\n", &["a", "", "", "b"].map(message).into(), b"");
    let kept = Line::new().keep_terminator();
    expect(&kept, b"a\n\n\r\nb\n", &["a\n", "\n", "\r\n", "b\n"].map(message).into(), b"");
}

#[test]
fn d_23_only_the_cr_before_lf_belongs_to_the_terminator() {
    expect(&Line::new(), b"a\rb\r\r\n\r\n", &["a\rb\r", ""].map(message).into(), b"");
}

#[test]
fn d_23_lines_are_slices_of_the_input() {
    let mut input = Bytes::from(b"hi\r\nyou\n".to_vec());
    let start = input.as_ptr() as usize;
    let mut codec = Line::new();
    for at in [0, 4] {
        let line = codec.decode(&mut input).unwrap().unwrap();
        assert_eq!(line.as_ptr() as usize - start, at);
    }
}

#[test]
fn d_23_writing_appends_the_terminator() {
    assert_eq!(encoded(&Line::new(), "hi").unwrap(), "hi\n");
    assert_eq!(encoded(&Line::new(), "").unwrap(), "\n");
    assert_eq!(encoded(&Line::new().crlf(), "hi").unwrap(), "hi\r\n");
    assert_eq!(encoded(&Line::new().crlf(), "hi\r").unwrap(), "hi\r\r\n");
}

#[test]
fn d_23_a_decoded_line_can_be_encoded_again() {
    let kept = Line::new().keep_terminator().max_len(2);
    for (message, wire) in [("hi\r\n", "hi\r\n"), ("hi\n", "hi\n"), ("\n", "\n"), ("hi", "hi\n"), ("", "\n")]
    {
        assert_eq!(encoded(&kept, message).unwrap(), wire);
    }
    assert_eq!(encoded(&kept.clone().crlf(), "hi").unwrap(), "hi\r\n");
    for message in ["a\nb", "a\n\n", "\n\n"] {
        assert!(matches!(encoded(&kept, message), Err(Error::Encode(EncodeError::Unencodable(_)))));
    }
}

#[test]
fn d_23_messages_that_would_be_decoded_differently_are_refused() {
    for message in ["a\nb", "a\n", "\n", "a\r\n"] {
        for codec in [Line::new(), Line::new().crlf()] {
            assert!(matches!(encoded(&codec, message), Err(Error::Encode(EncodeError::Unencodable(_)))));
        }
    }
    assert!(matches!(encoded(&Line::new(), "a\r"), Err(Error::Encode(EncodeError::Unencodable(_)))));
}

#[test]
fn d_24_cr_and_lf_in_different_reads_are_one_terminator() {
    let (events, left) = drive(&mut Line::new(), ["huu", "haa\r", "\nhuuhaa\r", "\n"].map(str::as_bytes));
    assert_eq!((events, left.len()), (vec![message("huuhaa"), message("huuhaa")], 0));
}

#[test]
fn d_24_a_line_of_exactly_the_limit_can_end_in_either_terminator() {
    expect(&Line::new().max_len(3), b"abc\r\nabc\n\r\n", &["abc", "abc", ""].map(message).into(), b"");
    expect(
        &Line::new().max_len(3).fail_fast(),
        b"abc\r\nabc\nabc\r",
        &["abc", "abc"].map(message).into(),
        b"abc\r",
    );
}

#[test]
fn d_25_fail_slow_reports_once_at_the_end_and_the_next_line_decodes() {
    let stream = b"12345\nA\n12345\r\n123456\n\rabcd\r\nB\r\n1234\r\r\nC";
    let expected = vec![
        too_long(5, 4),
        message("A"),
        too_long(5, 4),
        too_long(6, 4),
        too_long(5, 4),
        message("B"),
        too_long(5, 4),
    ];
    expect(&Line::new().max_len(4), stream, &expected, b"C");
}

#[test]
fn d_25_fail_fast_reports_once_as_soon_as_it_is_known() {
    let stream = b"12345\nA\n12345\r\n123456\n\rabcd\r\nB\r\n1234\r\r\nC";
    let expected = vec![
        too_long(0, 4),
        message("A"),
        too_long(0, 4),
        too_long(0, 4),
        too_long(0, 4),
        message("B"),
        too_long(0, 4),
    ];
    expect_fast(&Line::new().max_len(4).fail_fast(), stream, &expected, b"C");

    let mut codec = Line::new().max_len(4).fail_fast();
    let (events, left) = drive(&mut codec, ["1234", "5"].map(str::as_bytes));
    assert_eq!((events, left.len()), (vec![too_long(5, 4)], 0));
    let (events, left) = drive(&mut codec, ["678", "9\nok\n"].map(str::as_bytes));
    assert_eq!((events, left.len()), (vec![message("ok")], 0));
}

#[test]
fn d_25_a_too_long_line_is_dropped_as_it_arrives() {
    for codec in [Line::new(), Line::new().fail_fast()] {
        let mut codec = codec.max_len(8);
        let mut reported = 0;
        for _ in 0..1000 {
            let (events, left) = drive(&mut codec, [&[b'x'; 100][..]]);
            assert!(left.is_empty());
            reported += events.len();
        }
        let (events, _) = drive(&mut codec, [&b"\nok\n"[..]]);
        assert_eq!(reported + events.len(), 2);
        assert_eq!(events.last(), Some(&message("ok")));
    }
}

/// The CR may be the last dropped byte. It does not count towards the length of the line.
#[test]
fn d_25_cr_and_lf_in_different_reads_while_dropping() {
    for chunks in [["12345", "\r", "\nA\n"], ["1234", "5\r", "\nA\n"], ["12345\r", "", "\nA\n"]] {
        let (events, _) = drive(&mut Line::new().max_len(4), chunks.map(str::as_bytes));
        assert_eq!(events, [too_long(5, 4), message("A")], "{chunks:?}");
    }
}

#[test]
fn d_25_a_too_long_line_that_never_ends_is_reported_once_at_the_end_of_the_stream() {
    for (codec, reports_at_end) in [(Line::new(), true), (Line::new().fail_fast(), false)] {
        let mut codec = codec.max_len(4);
        let (events, _) = drive(&mut codec, [&b"123456"[..]]);
        assert_eq!(events.len(), usize::from(!reports_at_end));
        match codec.decode_last(&mut Bytes::new()) {
            Err(Error::Peer(PeerError::TooLong { length: 6, limit: 4, .. })) => assert!(reports_at_end),
            other => assert!(other.unwrap().is_none() && !reports_at_end),
        }
        assert!(codec.decode_last(&mut Bytes::new()).unwrap().is_none());
    }
}

#[test]
fn d_25_the_same_limit_applies_to_encoding() {
    for (codec, wire) in [(Line::new(), "1234\n"), (Line::new().crlf(), "1234\r\n")] {
        let codec = codec.max_len(4);
        assert_eq!(encoded(&codec, "1234").unwrap(), wire);
        match encoded(&codec, "12345") {
            Err(Error::Encode(EncodeError::TooLong { what: "line", length: 5, limit: 4, .. })) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(encoded(&Line::new().keep_terminator().max_len(4), "1234\r\n").is_ok());
    assert!(encoded(&Line::new().keep_terminator().max_len(4), "12345\n").is_err());
}

#[test]
fn raw_bytes_passes_on_the_bytes_of_each_read() {
    let (events, left) = drive(&mut RawBytes, ["one", "", "two\n"].map(str::as_bytes));
    assert_eq!((events, left.len()), (vec![message("one"), message("two\n")], 0));
    assert!(RawBytes.decode_last(&mut Bytes::new()).unwrap().is_none());
    let mut output = OutboundBuffer::new();
    for chunk in ["one", "", "two"] {
        RawBytes.encode(Bytes::from_static(chunk.as_bytes()), &mut output).unwrap();
    }
    assert_eq!(output.to_bytes(), "onetwo");
}
