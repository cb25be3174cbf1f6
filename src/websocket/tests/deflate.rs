//! Compressed messages.

use super::support::{
    BINARY, CONTINUATION, Decoded, FIN, PING, TEXT, close_payload, decode, error_of, frame, settings,
};
use crate::{
    buffer::{OutboundBuffer, WaterMark},
    channel::{ChannelOptions, Overflow, Pipeline},
    error::{Error, Result},
    http::Headers,
    pipeline::{Codec, Context, Handler, Stage, StageContext},
    testing::EmbeddedChannel,
    websocket::{
        compression::Compression,
        deflate::{Deflate, Negotiated},
        error::WebSocketError,
        frame::WebSocketCodec,
        message::{CloseCode, Message},
        role::Role,
    },
};
use bytes::Bytes;
use proptest::prelude::*;

const RSV1: u8 = 0x40;

/// Returns the codecs of a server and a client that have negotiated with these settings.
fn pair(server: &Deflate, client: &Deflate, max_message: usize) -> (WebSocketCodec, WebSocketCodec) {
    let offer = Headers::new().with("Sec-WebSocket-Extensions", Negotiated::offer(client));
    let (ours, answer) = Negotiated::accept(server, &offer).expect("the offer is accepted");
    let answer = Headers::new().with("Sec-WebSocket-Extensions", answer);
    let theirs = Negotiated::check(client, &answer).expect("the answer fits the offer");
    let settings = settings().max_message(max_message);
    let codec = |role, negotiated| {
        WebSocketCodec::new(settings.clone().into(), role, Compression::from(Some(negotiated)))
    };
    (codec(Role::Server, ours), codec(Role::Client, theirs))
}

fn small() -> Deflate {
    Deflate::new().threshold(1)
}

fn server() -> WebSocketCodec {
    pair(&small(), &small(), 100_000).0
}

fn encode(codec: &mut WebSocketCodec, message: Message) -> Bytes {
    let mut output = OutboundBuffer::new();
    codec.encode(message, &mut output).unwrap();
    output.to_bytes()
}

fn decode_one(codec: &mut WebSocketCodec, bytes: Bytes) -> Message {
    let mut input = bytes;
    let message = codec.decode(&mut input).unwrap().expect("a message");
    assert!(input.is_empty());
    message
}

#[test]
fn the_examples_of_the_rfc_are_decoded() {
    // RFC 7692, section 7.2.3: one block, two fragments, a stored block, a final block.
    let compressed = |bytes: &[u8]| frame(FIN | RSV1 | TEXT, true, bytes);
    let hello = [Message::text("Hello")];
    let shared = [0xf2, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00];
    assert_eq!(decode(server(), &compressed(&shared)).messages, hello);
    let fragments =
        [frame(RSV1 | TEXT, true, &shared[..3]), frame(FIN | CONTINUATION, true, &shared[3..])].concat();
    assert_eq!(decode(server(), &fragments).messages, hello);
    let stored = [0x00, 0x05, 0x00, 0xfa, 0xff, 0x48, 0x65, 0x6c, 0x6c, 0x6f, 0x00];
    assert_eq!(decode(server(), &compressed(&stored)).messages, hello);
    let last = [0xf3, 0x48, 0xcd, 0xc9, 0xc9, 0x07, 0x00, 0x00];
    assert_eq!(decode(server(), &compressed(&last)).messages, hello);
    let two = [0xf2, 0x48, 0x05, 0x00, 0x00, 0x00, 0xff, 0xff, 0xca, 0xc9, 0xc9, 0x07, 0x00];
    assert_eq!(decode(server(), &compressed(&two)).messages, hello);
    // Uncompressed messages may come between.
    let plain = frame(FIN | TEXT, true, b"plain");
    assert_eq!(decode(server(), &plain).messages, [Message::text("plain")]);
}

#[test]
fn a_later_message_may_refer_to_earlier_ones_only_with_context_takeover() {
    let repeated = "the same words again and again ".repeat(10);
    for (takeover, shrinks) in [(false, false), (true, true)] {
        let deflate = small().context_takeover(takeover);
        let (mut server, mut client) = pair(&deflate, &deflate, 100_000);
        let mut sizes = Vec::new();
        for n in 0..5 {
            let message = Message::text(format!("{n} {repeated}"));
            let bytes = encode(&mut server, message.clone());
            sizes.push(bytes.len());
            assert_eq!(decode_one(&mut client, bytes), message);
            let bytes = encode(&mut client, message.clone());
            assert_eq!(decode_one(&mut server, bytes), message);
        }
        assert!(sizes[0] < repeated.len() / 2, "{sizes:?}");
        assert_eq!(sizes[4] < sizes[0] / 2, shrinks, "{sizes:?}");
    }
}

#[test]
fn short_and_incompressible_messages_are_sent_as_they_are() {
    let (mut codec, _) = pair(&Deflate::new(), &Deflate::new(), 1000);
    let text = "x".repeat(255);
    assert_eq!(encode(&mut codec, Message::text(text.clone())), frame(FIN | TEXT, false, text.as_bytes()));
    assert_eq!(encode(&mut codec, Message::text("x".repeat(256)))[0], FIN | RSV1 | TEXT);
    let mut random = fastrand::Rng::with_seed(3);
    let noise: Vec<u8> = (0..500).map(|_| random.u8(..)).collect();
    let bytes = encode(&mut codec, Message::binary(noise.clone()));
    assert_eq!(bytes, frame(FIN | BINARY, false, &noise));
}

#[test]
fn a_message_that_expands_beyond_the_limit_is_an_error_with_bounded_memory() {
    // 1 GiB of zeros, compressed a thousandfold: the second block may be repeated, because it
    // refers to zeros before it.
    let mut compressor = flate2::Compress::new(flate2::Compression::best(), false);
    let mut block = || {
        let mut block = Vec::with_capacity(64 * 1024);
        compressor.compress_vec(&[0; 1 << 20], &mut block, flate2::FlushCompress::Sync).unwrap();
        block
    };
    let bomb = [block(), block().repeat(1023)].concat();
    assert!(bomb.len() < 1_200_000, "{} bytes", bomb.len());
    let codec = || pair(&small(), &small(), 2_000_000).0;
    let error = error_of(codec(), &frame(FIN | RSV1 | BINARY, true, &bomb));
    assert_eq!(error, WebSocketError::MessageTooLong { limit: 2_000_000 });
    assert_eq!(error.close_code(), CloseCode::TOO_BIG);
    let halves = [frame(RSV1 | BINARY, true, &bomb[..1000]), frame(FIN | CONTINUATION, true, &bomb[1000..])];
    assert_eq!(error_of(codec(), &halves.concat()), error);
}

#[test]
fn the_limit_is_exact_for_compressed_messages() {
    for len in [0, 1, 255, 256, 257, 4096, 70_000] {
        let message = Message::binary(vec![7; len]);
        let (_, mut client) = pair(&small(), &small(), 100_000);
        let bytes = encode(&mut client, message.clone());
        let (server, _) = pair(&small(), &small(), len.max(64));
        assert_eq!(decode(server, &bytes).messages, [message]);
        if len > 255 {
            let (server, _) = pair(&small(), &small(), len - 1);
            assert_eq!(error_of(server, &bytes), WebSocketError::MessageTooLong { limit: len - 1 });
        }
    }
}

#[test]
fn the_limit_of_an_incompressible_message_applies_after_decompression() {
    let limit = 1 << 20;
    let mut random = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 56) as u8
    })
    .take(limit)
    .collect();
    // With context takeover, a message is compressed even if that makes it longer.
    let takeover = small().context_takeover(true);
    let (mut receiver, mut sender) = pair(&takeover, &takeover, limit);
    let compressed = encode(&mut sender, Message::binary(noise.clone()));
    assert!(compressed.len() > limit + 14, "{} bytes on the wire", compressed.len());
    assert_eq!(decode_one(&mut receiver, compressed), Message::binary(noise));
    let longer = encode(&mut sender, Message::binary(vec![0; limit + 1]));
    let error = receiver.decode(&mut longer.clone()).unwrap_err();
    assert_eq!(WebSocketError::of(&error).unwrap(), &WebSocketError::MessageTooLong { limit });
}

#[test]
fn a_message_that_is_cut_within_a_block_is_invalid() {
    // A stored block of 10 bytes, of which 6 arrive. The 4 bytes that the receiver appends to each
    // message complete it.
    let cut = [0x00, 10, 0, 0xF5, 0xFF, b'a', b'b', b'c', b'd', b'e', b'f'];
    let decoded = decode(server(), &frame(FIN | RSV1 | BINARY, true, &cut));
    assert!(decoded.messages.is_empty(), "{:?}", decoded.messages);
    assert_eq!(decoded.error.unwrap().0, WebSocketError::InvalidCompression);
}

#[test]
fn the_reserved_bit_on_a_continuation_or_control_frame_is_a_protocol_error() {
    for bytes in [
        frame(FIN | RSV1 | PING, true, b""),
        frame(FIN | RSV1 | 8, true, &close_payload(1000, "")),
        [frame(RSV1 | TEXT, true, b"\xf2"), frame(FIN | RSV1 | CONTINUATION, true, b"")].concat(),
        frame(FIN | 0x20 | TEXT, true, b""),
        frame(FIN | RSV1 | 0x10 | TEXT, true, b""),
    ] {
        assert_eq!(error_of(server(), &bytes), WebSocketError::ReservedBits);
    }
}

#[test]
fn invalid_compressed_data_and_invalid_compressed_text_are_errors() {
    let garbage = frame(FIN | RSV1 | TEXT, true, &[0xFF; 20]);
    let error = error_of(server(), &garbage);
    assert_eq!(
        (error.clone(), error.close_code()),
        (WebSocketError::InvalidCompression, CloseCode::INVALID_PAYLOAD)
    );
    let (_, mut client) = pair(&small(), &small(), 1000);
    let mut bytes = encode(&mut client, Message::binary(vec![0xFF; 100])).to_vec();
    bytes[0] = FIN | RSV1 | TEXT;
    assert_eq!(error_of(server(), &bytes), WebSocketError::InvalidUtf8);
}

#[test]
fn connections_without_context_takeover_own_no_memory_for_compression() {
    let (mut server, mut client) = pair(&small(), &small(), 1000);
    let bytes = encode(&mut client, Message::text("x".repeat(500)));
    decode_one(&mut server, bytes);
    encode(&mut server, Message::text("x".repeat(500)));
    assert!(!server.compression().has_contexts() && !client.compression().has_contexts());
    let takeover = small().context_takeover(true);
    let (mut server, _) = pair(&takeover, &takeover, 1000);
    encode(&mut server, Message::text("x".repeat(500)));
    assert!(server.compression().has_contexts());
}

/// A compressed message stays if later messages refer to it.
#[test]
fn a_waiting_message_is_replaced_unless_it_is_part_of_a_context() {
    for (takeover, expected) in [(true, "0 1 2 3 4 5"), (false, "0 5")] {
        let deflate = small().context_takeover(takeover);
        let (server, mut client) = pair(&deflate, &deflate, 100_000);
        let pipeline = Pipeline::codec(server).on_read(|_, _: Message| Ok(()));
        let mut channel: EmbeddedChannel<Message> = EmbeddedChannel::new(pipeline);
        channel.set_outbound_room(Some(0));
        for n in 0..6 {
            let text = format!("{n} the same words again and again");
            channel.channel().write_latest(1, Message::text(text)).unwrap();
            channel.run_pending();
        }
        channel.set_outbound_room(None);
        let mut sent = channel.read_outbound();
        let mut numbers = Vec::new();
        while let Some(Message::Text(text)) = client.decode(&mut sent).unwrap() {
            numbers.push(text.split_once(' ').unwrap().0.to_owned());
        }
        assert_eq!(numbers.join(" "), expected);
    }
}

/// A message that is not sent is not part of the peer's context, so later ones must not refer to
/// it.
#[test]
fn messages_behind_dropped_and_refused_ones_are_decoded() {
    let deflate = small().context_takeover(true);
    let words = "the same words again and again, because repetition makes references short";
    for policy in [Overflow::DropOldest, Overflow::DropNewest, Overflow::Refuse] {
        for by_server in [true, false] {
            let (server, client) = pair(&deflate, &deflate, 100_000);
            let (from, mut to) = if by_server { (server, client) } else { (client, server) };
            let mark = WaterMark::new(100, 200).unwrap();
            let options = ChannelOptions::new().max_outbound(400).water_mark(mark).overflow(policy);
            let pipeline = Pipeline::codec(from).on_read(|_, _: Message| Ok(()));
            let mut channel: EmbeddedChannel<Message> =
                EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
            let mut sent = Vec::new();
            for round in 0..10_usize {
                channel.set_outbound_room(Some(round * 7));
                let written = channel.channel().execute(move |ctx| {
                    for n in 0..40 {
                        let text = format!("{round} {n} {words} {}", "x".repeat(n * round));
                        let result = ctx.write(Message::text(text));
                        assert!(result.is_ok() || policy == Overflow::Refuse, "{policy:?}");
                    }
                    Ok(())
                });
                written.unwrap();
                channel.run_pending();
                channel.set_outbound_room(None);
                sent.extend_from_slice(&channel.read_outbound());
            }
            let (mut sent, mut decoded) = (Bytes::from(sent), 0);
            let mut last = (0, 0);
            while let Some(Message::Text(text)) = to.decode(&mut sent).unwrap() {
                let mut parts = text.split(' ');
                let mut number = || parts.next().unwrap().parse::<usize>().unwrap();
                let this = (number(), number());
                assert!(decoded == 0 || this > last, "{policy:?}: {this:?} behind {last:?}");
                assert!(text.contains(words), "{text}");
                (last, decoded) = (this, decoded + 1);
            }
            assert!(sent.is_empty() && (20..400).contains(&decoded), "{policy:?}: {decoded}");
            assert_eq!(last.0, 9, "{policy:?}");
        }
    }
}

/// A stage that writes two messages for one, the second of which cannot be encoded.
struct Twice;

impl Stage for Twice {
    type ReadIn = Message;
    type ReadOut = Message;
    type WriteIn = Message;
    type WriteOut = Message;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Message) -> Result<Option<Message>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Message) -> Result {
        let is_bad = matches!(&message, Message::Text(text) if text.starts_with("bad"));
        ctx.write(message)?;
        if is_bad { ctx.write(Message::Ping(vec![0; 126].into())) } else { Ok(()) }
    }
}

#[test]
fn messages_behind_those_that_a_stage_takes_back_are_decoded() {
    let deflate = small().context_takeover(true);
    let (server, mut client) = pair(&deflate, &deflate, 100_000);
    let pipeline = Pipeline::codec(server).stage(Twice).on_read(|_, _: Message| Ok(()));
    let mut channel: EmbeddedChannel<Message> = EmbeddedChannel::new(pipeline);
    let written = channel.channel().execute(|ctx| {
        for text in ["bad words that come again", "good words that come again", "more words that come again"]
        {
            assert_eq!(ctx.write(Message::text(text)).is_err(), text.starts_with("bad"));
        }
        Ok(())
    });
    written.unwrap();
    channel.run_pending();
    let mut sent = channel.read_outbound();
    for text in ["good words that come again", "more words that come again"] {
        assert_eq!(client.decode(&mut sent).unwrap(), Some(Message::text(text)));
    }
    assert!(sent.is_empty());
}

/// A stage that panics behind a message that it has written.
struct Panics;

impl Stage for Panics {
    type ReadIn = Message;
    type ReadOut = Message;
    type WriteIn = Message;
    type WriteOut = Message;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Message) -> Result<Option<Message>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Message) -> Result {
        let is_bad = matches!(&message, Message::Text(text) if text.starts_with("bad"));
        ctx.write(message)?;
        assert!(!is_bad, "a bad message");
        Ok(())
    }
}

struct SaysGoodbye;

impl Handler for SaysGoodbye {
    type Read = Message;
    type Write = Message;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        ctx.write(Message::text("bad words that come again"))
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Message) -> Result {
        Ok(())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, _: Error) -> Result {
        ctx.write(Message::text("last words that come again"))
    }
}

#[test]
fn the_last_message_after_a_panic_of_a_stage_is_decoded() {
    let deflate = small().context_takeover(true);
    let (server, mut client) = pair(&deflate, &deflate, 100_000);
    let pipeline = Pipeline::codec(server).stage(Panics).handler(SaysGoodbye);
    let mut channel: EmbeddedChannel<Message> = EmbeddedChannel::new(pipeline);
    let mut sent = channel.read_outbound();
    assert_eq!(client.decode(&mut sent).unwrap(), Some(Message::text("last words that come again")));
}

#[test]
fn codecs_with_equal_parameters_have_equal_encoding_keys() {
    let key = |server: &Deflate, client: &Deflate| pair(server, client, 1000).0.encoding_key();
    let usual = key(&Deflate::new(), &Deflate::new());
    assert!(usual.is_some());
    assert_eq!(key(&Deflate::new(), &Deflate::new().window_bits(10)), usual, "only concerns the client");
    for other in [Deflate::new().window_bits(10), Deflate::new().level(9), Deflate::new().threshold(1)] {
        let other = key(&other, &Deflate::new());
        assert!(other.is_some() && other != usual);
    }
    let takeover = Deflate::new().context_takeover(true);
    assert_eq!(key(&takeover, &takeover), None, "depends on earlier messages");
    assert_eq!(key(&takeover, &Deflate::new()), usual, "the client has declined");
    assert_eq!(pair(&Deflate::new(), &Deflate::new(), 1000).1.encoding_key(), None, "masks differ");
}

#[test]
fn settings_out_of_range_are_refused() {
    use crate::websocket::handshake::WebSocketServer;
    for (deflate, text) in [
        (Deflate::new().window_bits(8), "window_bits is 8; it must be 9 to 15"),
        (Deflate::new().window_bits(16), "window_bits is 16; it must be 9 to 15"),
        (Deflate::new().level(0), "level is 0; it must be 1 to 9"),
        (Deflate::new().level(10), "level is 10; it must be 1 to 9"),
        (Deflate::new().threshold(0), "threshold is 0; it must be 1 byte or more"),
    ] {
        assert_eq!(WebSocketServer::new().deflate(deflate).unwrap_err().to_string(), text);
    }
    for row in Deflate::rows() {
        row.check_words();
    }
}

proptest! {
    #[test]
    fn any_messages_arrive_with_any_parameters(
        messages in prop::collection::vec(prop_oneof![
            "\\PC{0,40}".prop_map(Message::text),
            prop::collection::vec(any::<u8>(), 0..300).prop_map(Message::binary),
            ("[a-c]{1,4}", 0..9000_usize).prop_map(|(text, n)| Message::text(text.repeat(n / text.len()))),
        ], 0..8),
        takeovers in any::<(bool, bool)>(),
        bits in (9..=15_u8, 9..=15_u8),
        level in 1..=9_u8,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let deflate = small().level(level);
        let server = deflate.clone().context_takeover(takeovers.0).window_bits(bits.0);
        let client = deflate.context_takeover(takeovers.1).window_bits(bits.1);
        for by_client in [false, true] {
            let (mut from, mut to) = pair(&server, &client, 10_000);
            if by_client {
                std::mem::swap(&mut from, &mut to);
            }
            let bytes: Vec<u8> = messages.iter().flat_map(|message| encode(&mut from, message.clone())).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
            cuts.sort_unstable();
            let (decoded, _) = Decoded::of(to, &bytes, &cuts);
            prop_assert_eq!(&decoded.error, &None);
            prop_assert_eq!(&decoded.messages, &messages);
        }
    }

    #[test]
    fn no_compressed_input_panics(data in prop::collection::vec(any::<u8>(), 0..200), takeover: bool) {
        let deflate = small().context_takeover(takeover);
        let codec = pair(&deflate, &deflate, 1000).0;
        decode(codec, &frame(FIN | RSV1 | BINARY, true, &data).repeat(2));
    }
}

#[test]
fn a_message_does_not_keep_a_buffer_that_is_much_longer() {
    // A stored block of 4 KiB, and empty ones.
    let mut payload = vec![0, 0x00, 0x10, 0xff, 0xef];
    payload.extend_from_slice(&[7; 4096]);
    payload.extend(b"\x00\x00\x00\xff\xff".repeat(10_000));
    payload.push(0);
    let message = decode_one(&mut server(), frame(FIN | RSV1 | BINARY, true, &payload).into());
    let Message::Binary(bytes) = message else { panic!("{message:?}") };
    assert_eq!(bytes, vec![7; 4096]);
    let capacity = bytes.try_into_mut().expect("the only owner").capacity();
    assert!(capacity <= 2 * 4096, "{capacity}");
}
