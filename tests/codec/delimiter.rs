//! `Delimiter` and `FixedLength` through the public API.
//!
//! Every stream is fed in one piece, in two pieces at each position, and byte by byte.

use crate::support::codecs::{Events, encoded, expect, message};
use bytes::Bytes;
use netwheel::{
    Codec, Error,
    codec::{Delimiter, FixedLength},
    error::{EncodeError, PeerError},
    prelude::*,
    testing::EmbeddedChannel,
};

/// Asserts that `stream` decodes to `expected` and leaves `left`, however it is split.
#[track_caller]
fn expect_texts<C: Codec<Read = Bytes> + Clone>(codec: &C, stream: &[u8], expected: &[&str], left: &str) {
    let events: Events = expected.iter().map(message).collect();
    expect(codec, stream, &events, left.as_bytes());
}

fn too_long(length: u64, limit: usize) -> Result<Bytes, PeerError> {
    Err(PeerError::too_long("message", length, limit))
}

fn delimited<const N: usize>(delimiters: [&str; N]) -> Delimiter {
    Delimiter::new(delimiters).unwrap()
}

// ---- delimiters --------------------------------------------------------------------------------

#[test]
fn a_message_ends_at_its_delimiter_of_one_byte_or_several() {
    expect_texts(&Delimiter::byte(0), b"one\0\0two", &["one", ""], "two");
    expect_texts(&delimited(["--"]), b"one--a-b----two-", &["one", "a-b", ""], "two-");
    expect_texts(&delimited(["\r\n.\r\n"]), b"a\r\n\r\n.\r\nb\r\n.", &["a\r\n"], "b\r\n.");
    // The delimiter overlaps itself: the first complete match counts.
    expect_texts(&delimited(["aba"]), b"xababaab", &["x"], "baab");
}

/// D-26: the shortest message wins.
#[test]
fn the_delimiter_that_is_complete_first_ends_the_message() {
    expect_texts(&delimited([";", "\n"]), b"one;two\nthree", &["one", "two"], "three");
    expect_texts(&delimited(["ab", "bc"]), b"1abc2bc", &["1", "c2"], "");
    // If two delimiters end at the same byte, the longest one counts, in either order of the list.
    for delimiters in [["\n", "\r\n"], ["\r\n", "\n"]] {
        expect_texts(&delimited(delimiters), b"one\r\ntwo\n\r\n\rx", &["one", "two", ""], "\rx");
    }
}

#[test]
fn more_than_three_delimiters_are_supported() {
    let codec = delimited(["a", "bb", "c", "d", "ee"]);
    expect_texts(&codec, b"1a2b3bb4c5d6e7ee8", &["1", "2b3", "4", "5", "6e7"], "8");
    let all: Vec<[u8; 1]> = (0..16).map(|byte| [byte]).collect();
    let codec = Delimiter::new(all).unwrap();
    expect_texts(&codec, b"x\x0fy\x00z", &["x", "y"], "z");
}

/// D-26, without strip.
#[test]
fn the_delimiter_can_be_kept() {
    let codec = delimited(["--", ";"]).keep_delimiter();
    expect_texts(&codec, b"one--two;--x", &["one--", "two;", "--"], "x");
    assert_eq!(encoded(&codec, "one;").unwrap(), "one;");
    assert_eq!(encoded(&codec, "one").unwrap(), "one--");
    for wrong in ["a;b", "a;b;", "one;;", "a-"] {
        assert!(matches!(encoded(&codec, wrong), Err(Error::Encode(EncodeError::Unencodable(_)))), "{wrong}");
    }
}

/// D-26: an empty delimiter is refused.
#[test]
fn invalid_delimiters_are_refused_with_the_reason() {
    let refusal = |delimiters: &[&[u8]]| match Delimiter::new(delimiters) {
        Err(error @ Error::Setting(_)) => error.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(refusal(&[]), "number of delimiters is 0; it must be 1 to 16");
    assert_eq!(refusal(&[&b"x"[..]; 17]), "number of delimiters is 17; it must be 1 to 16");
    assert_eq!(refusal(&[b";", b""]), "length of a delimiter is 0; it must be 1 to 256 bytes");
    assert_eq!(refusal(&[&[b'x'; 257]]), "length of a delimiter is 257; it must be 1 to 256 bytes");
    let never = "it must be a delimiter that does not contain another one before its end";
    assert_eq!(refusal(&[b"\n", b"\n\r"]), format!(r"delimiter is \n\r; {never}"));
    assert_eq!(refusal(&[b"abcd", b"bc"]), format!("delimiter is abcd; {never}"));
    // A delimiter may contain another one at its end.
    assert!(Delimiter::new([&b"\r\n"[..], b"\n"]).is_ok());
    let longest = [b'x'; 256];
    expect_texts(&Delimiter::new([&longest]).unwrap(), &[&b"a"[..], &longest, b"b"].concat(), &["a"], "b");
}

/// D-26, fail-slow.
#[test]
fn fail_slow_reports_a_too_long_message_once_at_its_end() {
    let codec = delimited(["||"]).max_len(3);
    let stream = b"abc||abcd||||abcdefgh||xyz||abcdefghi|";
    let expected = vec![message("abc"), too_long(4, 3), message(""), too_long(8, 3), message("xyz")];
    // Of the unfinished message only the byte that may start a delimiter remains.
    expect(&codec, stream, &expected, b"|");
    expect(&Delimiter::byte(0).max_len(0), b"\0a\0\0", &vec![message(""), too_long(1, 0), message("")], b"");
}

/// D-26, fail-fast, twice in a row.
#[test]
fn fail_fast_reports_a_too_long_message_immediately() {
    let mut codec = delimited(["||"]).max_len(3).fail_fast();
    let mut input = Bytes::from_static(b"abc|");
    assert!(codec.decode(&mut input).unwrap().is_none(), "this may still be a message of 3 bytes");
    for _ in 0..2 {
        input = Bytes::from_static(b"abc|d");
        assert!(matches!(
            codec.decode(&mut input),
            Err(Error::Peer(PeerError::TooLong { what: "message", length: 4, limit: 3, .. }))
        ));
        input = Bytes::from([&input[..], b"e||x||"].concat());
        assert_eq!(codec.decode(&mut input).unwrap().unwrap(), "x");
        assert!(input.is_empty());
    }
    assert!(codec.decode_last(&mut input).unwrap().is_none());
}

#[test]
fn the_end_of_the_stream_drops_an_unfinished_message_and_reports_a_long_one() {
    let mut codec = delimited(["||"]).max_len(3);
    let mut input = Bytes::from_static(b"one||tw");
    assert_eq!(codec.decode_last(&mut input).unwrap().unwrap(), "one");
    assert!(codec.decode_last(&mut input).unwrap().is_none());
    let mut input = Bytes::from_static(b"twenty|");
    assert!(codec.decode(&mut input).unwrap().is_none());
    let end = codec.decode_last(&mut input);
    assert!(matches!(end, Err(Error::Peer(PeerError::TooLong { length: 7, limit: 3, .. }))), "{end:?}");
    assert!(codec.decode_last(&mut input).unwrap().is_none());
}

/// The last bytes are kept until then, because they may begin a delimiter.
#[test]
fn the_end_of_the_stream_reports_a_message_that_is_too_long_by_a_few_bytes() {
    let codec = || delimited(["-----"]).max_len(3);
    for (length, is_too_long) in [(3, false), (4, true), (5, true), (7, true), (8, true), (20, true)] {
        for (mut codec, mode) in [(codec(), "slow"), (codec().fail_fast(), "fast")] {
            let mut input = Bytes::from("x".repeat(length));
            let mut reported = usize::from(codec.decode(&mut input).is_err());
            for _ in 0..3 {
                match codec.decode_last(&mut input) {
                    Ok(None) => {}
                    Err(Error::Peer(PeerError::TooLong { length: all, limit: 3, .. })) => {
                        assert_eq!(all, length as u64);
                        reported += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(reported, usize::from(is_too_long), "{length} bytes, {mode}");
        }
    }
}

#[test]
fn messages_that_would_be_decoded_differently_are_refused() {
    let codec = delimited(["aa", "\n", "x\n"]);
    assert_eq!(encoded(&codec, "hi").unwrap(), "hiaa");
    assert_eq!(encoded(&codec, "").unwrap(), "aa");
    for wrong in ["a\nb", "aa", "baab", "hia"] {
        assert!(matches!(encoded(&codec, wrong), Err(Error::Encode(EncodeError::Unencodable(_)))), "{wrong}");
    }
    // The byte before the delimiter would become part of it.
    assert!(encoded(&delimited(["\n", "x\n"]), "hix").is_err());
    let error = encoded(&delimited(["aa"]).max_len(1), "hi").unwrap_err();
    assert!(matches!(
        error,
        Error::Encode(EncodeError::TooLong { what: "message", length: 2, limit: 1, .. })
    ));
}

#[test]
fn messages_are_slices_of_the_input() {
    let mut input = Bytes::from(b"one;two;".to_vec());
    let start = input.as_ptr();
    let mut codec = Delimiter::byte(b';');
    assert_eq!(codec.decode(&mut input).unwrap().unwrap().as_ptr(), start);
    assert_eq!(codec.decode(&mut input).unwrap().unwrap().as_ptr(), start.wrapping_add(4));
}

#[test]
fn only_codecs_with_equal_settings_share_an_encoding() {
    let codecs = [
        delimited(["a", "b"]),
        delimited(["b", "a"]),
        delimited(["ab"]),
        delimited(["a", "b"]).max_len(7),
        delimited(["a", "b"]).keep_delimiter(),
    ];
    let mut keys: Vec<_> = codecs.iter().map(|codec| codec.encoding_key().unwrap()).collect();
    assert_eq!(delimited(["a", "b"]).fail_fast().encoding_key(), Some(keys[0]), "only decoding differs");
    keys.sort_unstable();
    keys.dedup();
    assert_eq!(keys.len(), codecs.len());
}

// ---- fixed lengths -----------------------------------------------------------------------------

/// D-27: an incomplete frame is kept, and dropped at the end of the stream.
#[test]
fn frames_of_a_fixed_length_are_decoded_at_every_split() {
    expect_texts(&FixedLength::new(3).unwrap(), b"abcdefgh", &["abc", "def"], "gh");
    expect_texts(&FixedLength::new(1).unwrap(), b"ab", &["a", "b"], "");
    expect_texts(&FixedLength::new(usize::MAX).unwrap(), b"ab", &[], "ab");
    let mut codec = FixedLength::new(3).unwrap();
    let mut input = Bytes::from_static(b"abcd");
    assert_eq!(codec.decode_last(&mut input).unwrap().unwrap(), "abc");
    assert!(codec.decode_last(&mut input).unwrap().is_none());
}

/// D-27: a length of zero is refused.
#[test]
fn messages_of_another_length_and_a_length_of_zero_are_refused() {
    let codec = FixedLength::new(3).unwrap();
    assert_eq!(encoded(&codec, "abc").unwrap(), "abc");
    for wrong in ["", "ab", "abcd"] {
        let error = format!("{:#}", encoded(&codec, wrong).unwrap_err());
        assert!(error.contains(&format!("a message of {} bytes; a frame has 3", wrong.len())), "{error}");
    }
    assert_eq!(codec.encoding_key(), Some(3));
    let refused = FixedLength::new(0).unwrap_err().to_string();
    assert_eq!(refused, "length is 0; it must be at least 1 byte");
}

// ---- in a channel ------------------------------------------------------------------------------

struct Echo;

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

#[test]
fn both_codecs_work_in_a_channel() {
    let pipeline = Pipeline::codec(delimited(["||", ";"])).handler(Echo);
    let mut channel = EmbeddedChannel::new(pipeline);
    for piece in ["one|", "|two;th", "ree||"] {
        channel.write_inbound(piece.as_bytes()).unwrap();
    }
    assert_eq!(channel.read_outbound(), "one||two||three||");

    let pipeline = Pipeline::codec(FixedLength::new(2).unwrap()).handler(Echo);
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(channel.read_outbound(), "ab");
    channel.write_inbound(b"d").unwrap();
    assert_eq!(channel.read_outbound(), "cd");
}
