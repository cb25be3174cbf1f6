//! The stage `Protobuf` behind the codec `Varint`.

use netwheel::{codec::Varint, error::PeerError, prelude::*, stage::Protobuf, testing::EmbeddedChannel};
use prost::Message;

/// Answers a text with its length, and an error with 0. The messages are protobuf's `StringValue`
/// and `UInt64Value`.
struct Lengths;

impl Handler for Lengths {
    type Read = String;
    type Write = u64;

    fn read(&mut self, ctx: &mut Context<'_, Self>, text: String) -> Result {
        ctx.write(text.len() as u64)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let Error::Peer(PeerError::Malformed(why)) = error else { return Err(error) };
        assert!(why.contains("UTF-8"), "{why}");
        ctx.write(0)
    }
}

#[test]
fn messages_are_read_and_written_at_every_split_and_after_an_error() {
    let long = "x".repeat(1000);
    let malformed = b"\x03\x0A\x01\xFF";
    let stream = [
        "why".to_owned().encode_length_delimited_to_vec(),
        malformed.to_vec(),
        long.encode_length_delimited_to_vec(),
    ]
    .concat();
    for size in [1, 2, 3, 7, stream.len()] {
        let pipeline = Pipeline::codec(Varint::new()).stage(Protobuf::new()).handler(Lengths);
        let mut channel = EmbeddedChannel::new(pipeline);
        for chunk in stream.chunks(size) {
            channel.write_inbound(chunk).unwrap();
        }
        let mut output = channel.read_outbound();
        let mut answers = Vec::new();
        while !output.is_empty() {
            answers.push(u64::decode_length_delimited(&mut output).unwrap());
        }
        assert_eq!(answers, [3, 0, 1000]);
    }
}
