//! Lines, and messages that end with delimiters.

use crate::support::{Cuts, decode_in_pieces, encode, input};
use arbitrary::Arbitrary;
use netwheel::{
    Codec, Error,
    bytes::Bytes,
    codec::{Delimiter, Line},
};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    max_len: u8,
    delimiters: Option<[Ending; 3]>,
    keep: bool,
    fail_fast: bool,
    crlf: bool,
    stream: &'a [u8],
}

/// A delimiter of one to three bytes.
#[derive(Debug, Arbitrary)]
struct Ending {
    length: u8,
    bytes: [u8; 3],
}

pub fn separators(data: &[u8]) {
    let Some(input) = input::<Input<'_>>(data) else { return };
    let max_len = usize::from(input.max_len);
    let Some(delimiters) = &input.delimiters else {
        let mut codec = Line::new().max_len(max_len);
        if input.keep {
            codec = codec.keep_terminator();
        }
        if input.crlf {
            codec = codec.crlf();
        }
        return check(if input.fail_fast { codec.fail_fast() } else { codec }, &input, 2);
    };
    let delimiters = delimiters.iter().map(|ending| &ending.bytes[..=usize::from(ending.length % 3)]);
    let Ok(codec) = Delimiter::new(delimiters) else { return };
    let mut codec = codec.max_len(max_len);
    if input.keep {
        codec = codec.keep_delimiter();
    }
    check(if input.fail_fast { codec.fail_fast() } else { codec }, &input, 3);
}

/// `longest` is the length of the longest ending.
fn check<C>(mut codec: C, input: &Input<'_>, longest: usize)
where
    C: Codec<Read = Bytes, Write = Bytes> + Clone,
{
    let (decoded, _) = decode_in_pieces(&codec, input.stream, input.cuts, input.fail_fast);
    let messages: Vec<_> = decoded.into_iter().flatten().collect();
    let max_len = usize::from(input.max_len) + if input.keep { longest } else { 0 };
    assert!(messages.iter().all(|message| message.len() <= max_len));

    // A message before a second delimiter may contain what ends messages together with the first
    // one, and a CR before LF belongs to the end of the line. Such messages are refused.
    for message in messages {
        let wire = match encode(&mut codec, [message.clone()]) {
            Ok(wire) => wire,
            Err(Error::Encode(_)) if input.delimiters.is_some() || message.ends_with(b"\r") => continue,
            Err(error) => panic!("{message:?} was decoded, and is refused: {error:#}"),
        };
        let (again, left) = decode_in_pieces(&codec, &wire, input.cuts, input.fail_fast);
        assert_eq!(again, [Ok(if input.keep { wire } else { message })]);
        assert!(left.is_empty());
    }
}
