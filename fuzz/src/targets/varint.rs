//! Frames with a varint length.

use crate::support::{Cuts, decode_in_pieces, encode, input};
use arbitrary::Arbitrary;
use netwheel::codec::Varint;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: Cuts,
    max_len: u8,
    stream: &'a [u8],
}

pub fn varint(data: &[u8]) {
    let Some(Input { cuts, max_len, stream }) = input(data) else { return };
    let max_len = usize::from(max_len);
    let mut codec = Varint::new().max_len(max_len);
    let (decoded, _) = decode_in_pieces(&codec, stream, cuts, false);
    let messages: Vec<_> = decoded.into_iter().flatten().collect();
    assert!(messages.iter().all(|message| message.len() <= max_len));

    let wire = encode(&mut codec, messages.clone()).expect("a message that was decoded");
    let (again, left) = decode_in_pieces(&codec, &wire, cuts, false);
    assert_eq!(again, messages.into_iter().map(Ok).collect::<Vec<_>>());
    assert!(left.is_empty());
}
