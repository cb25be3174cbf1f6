//! Frames with a length field, with any settings.

use crate::support::{Cuts, decode_in_pieces, encode, input};
use arbitrary::Arbitrary;
use netwheel::codec::LengthField;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    width: u8,
    offset: u8,
    adjustment: i8,
    strip: u8,
    max_len: u16,
    little_endian: bool,
    fail_slow: bool,
    extreme: bool,
    stream: &'a [u8],
}

pub fn length_field(data: &[u8]) {
    let Some(input) = input::<Input<'_>>(data) else { return };
    // Settings that are never used together would be refused most of the time.
    let width = [1, 2, 3, 4, 8, 5][usize::from(input.width % 6)];
    let (offset, strip) = (usize::from(input.offset % 16), usize::from(input.strip % 24));
    let max_len = if input.extreme { usize::MAX } else { usize::from(input.max_len) };
    let adjustment =
        if input.extreme { i64::from(input.adjustment) << 56 } else { i64::from(input.adjustment) };
    let mut builder = LengthField::builder()
        .width(width)
        .offset(offset)
        .adjustment(adjustment)
        .strip(strip)
        .max_len(max_len);
    if input.little_endian {
        builder = builder.little_endian();
    }
    if input.fail_slow {
        builder = builder.fail_slow();
    }
    let Ok(mut codec) = builder.build() else { return };

    let (decoded, _) = decode_in_pieces(&codec, input.stream, input.cuts, false);
    let messages: Vec<_> = decoded.into_iter().flatten().collect();
    for message in &messages {
        assert!(message.len() + strip <= max_len, "a frame beyond the limit");
    }
    // Other headers drop what encoding needs; docs of `LengthField` list them.
    if strip == 0 || (offset == 0 && strip <= width) {
        let wire = encode(&mut codec, messages.clone()).expect("a message that was decoded");
        let (again, left) = decode_in_pieces(&codec, &wire, input.cuts, false);
        assert_eq!(again, messages.into_iter().map(Ok).collect::<Vec<_>>());
        assert!(left.is_empty());
    }
}
