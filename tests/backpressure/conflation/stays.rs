//! Messages that stay although a newer one with their key is written.

use crate::support::{journal::Log, recorder::Recorder};
use bytes::Bytes;
use netwheel::{
    Codec, Stage, StageContext,
    buffer::OutboundBuffer,
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    filter::{Filter, FilterContext, FilterState},
    prelude::*,
    testing::EmbeddedChannel,
    traffic::TrafficLimits,
};
use std::{collections::HashMap, time::Duration};

fn write(channel: &mut EmbeddedChannel<Bytes>, key: u64, message: &str) {
    channel.channel().write_latest(key, message.to_owned().into()).unwrap();
    channel.run_pending();
}

fn sent(channel: &mut EmbeddedChannel<Bytes>) -> Bytes {
    channel.set_outbound_room(None);
    channel.read_outbound()
}

/// Numbers its messages, so each depends on the earlier ones. It has no encoding key.
#[derive(Default)]
struct Numbered(u8);

impl Codec for Numbered {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        self.0 += 1;
        output.put_slice(format!("{}{} ", self.0, str::from_utf8(&message).unwrap()).as_bytes());
        Ok(())
    }
}

#[test]
fn messages_of_a_codec_that_depends_on_earlier_ones_stay() {
    let pipeline = Pipeline::codec(Numbered::default()).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    for value in ["a", "b", "c"] {
        write(&mut channel, 1, value);
    }
    assert_eq!(sent(&mut channel), "1a 2b 3c ");
}

/// Passes messages on, and requires that those in capitals are sent.
struct Capitals;

impl Stage for Capitals {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        if message[0].is_ascii_uppercase() {
            ctx.encode_alone()?;
        }
        ctx.write(message.slice(..1))?;
        ctx.write(message.slice(1..))
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}

#[test]
fn messages_that_a_stage_encodes_alone_stay() {
    let pipeline = Pipeline::codec(Line::new()).stage(Capitals).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    channel.channel().write("first".into()).unwrap();
    channel.run_pending();
    for value in ["aa", "bb", "CC", "dd", "ee", "FF"] {
        write(&mut channel, 1, value);
    }
    assert_eq!(sent(&mut channel), "f\nirst\nb\nb\nC\nC\ne\ne\nF\nF\n");
}

/// The messages of one pipeline are not replaced by those of the next one.
#[test]
fn messages_of_a_replaced_pipeline_stay() {
    let pipeline = Pipeline::codec(Line::new()).on_read(|ctx, _: Bytes| {
        ctx.write_latest(1, "old".into())?;
        ctx.replace_pipeline(Pipeline::codec(RawBytes).handler(Recorder::new(&Log::new())))
    });
    let mut channel: EmbeddedChannel<Bytes> = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    channel.channel().write("first".into()).unwrap();
    channel.run_pending();
    channel.write_inbound(b"replace\n").unwrap();
    for value in ["new;", "newer;"] {
        write(&mut channel, 1, value);
    }
    assert_eq!(sent(&mut channel), "first\nold\nnewer;");
}

/// Inverts all bits, like a cipher whose position in the stream matters.
struct Inverted(u8);

impl Filter for Inverted {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        for byte in plain {
            self.0 = self.0.wrapping_add(1);
            ctx.output().push(byte ^ self.0);
        }
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// Bytes that a filter has sealed stay, at most 64 KiB and a record. The peer can decode
/// everything.
#[test]
fn messages_that_a_filter_has_sealed_stay() {
    const KEYS: u64 = 8;
    for len in [20, 700, 3000, 20_000] {
        let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
        let mut channel = EmbeddedChannel::builder(pipeline).filter(Inverted(0)).build().unwrap();
        channel.set_outbound_room(Some(0));
        let (mut wire, total) = (Vec::new(), 3000);
        for n in 0..total {
            let message = format!("{} {n} {}", n % KEYS, "x".repeat(len));
            write(&mut channel, n % KEYS, &message);
            // The plaintext of a record stays until the record is sent.
            let bound = (80 * 1024).max(len) + (KEYS as usize + 4) * (len + 10);
            assert!(channel.pending_bytes() <= bound, "{} of {bound}", channel.pending_bytes());
            if n % 13 == 0 {
                channel.set_outbound_room(Some(n as usize % 5000));
                wire.extend_from_slice(&channel.read_outbound());
            }
        }
        wire.extend_from_slice(&sent(&mut channel));
        let mut position = 0u8;
        wire.iter_mut().for_each(|byte| {
            position = position.wrapping_add(1);
            *byte ^= position;
        });
        let mut newest = HashMap::new();
        let text = String::from_utf8(wire).unwrap();
        for line in text.lines() {
            let mut words = line.split(' ').map(|word| word.parse::<u64>());
            let (key, n) = (words.next().unwrap().unwrap(), words.next().unwrap().unwrap());
            let before = newest.insert(key, n);
            assert!(before.is_none_or(|before| before < n), "{n} after {before:?}");
        }
        assert!((0..KEYS).all(|key| newest[&key] >= total - KEYS), "{newest:?}");
        assert!(text.lines().count() < total as usize);
    }
}

/// A channel that its own traffic limit holds up has a backlog.
#[test]
fn a_traffic_limit_causes_a_backlog() {
    let limits = TrafficLimits::new().write(1000);
    let pipeline = Pipeline::codec(Line::new()).traffic(limits).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    let mut written = 0;
    for _ in 0..100 {
        for _ in 0..10 {
            written += 1;
            write(&mut channel, 1, &format!("{written:09}"));
        }
        channel.advance(Duration::from_millis(10));
    }
    channel.advance(Duration::from_secs(1));
    let lines = channel.read_outbound();
    assert!(lines.ends_with(b"000001000\n"));
    assert!(lines.len() < 2000, "{} bytes in two seconds", lines.len());
}

/// Sends a last message and closes, as a WebSocket does with a Close frame.
struct Farewell;

impl Stage for Farewell {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        if message != "bye" {
            return ctx.write(message);
        }
        ctx.encode_alone()?;
        ctx.write(message)?;
        ctx.close();
        Ok(())
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(1)
    }
}

#[test]
fn the_last_message_of_a_stage_that_closes_is_sent_although_the_buffer_is_full() {
    for limit in [1 << 20, 1000] {
        let pipeline = Pipeline::codec(RawBytes).stage(Farewell);
        let pipeline = pipeline.on_read(|ctx, message: Bytes| ctx.write_latest(message[0].into(), message));
        let options = ChannelOptions::new().max_outbound(limit);
        let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        channel.set_outbound_room(Some(0));
        let waiting = ["a".repeat(500), "c".repeat(499)];
        for message in waiting.each_ref().map(String::as_str).into_iter().chain(["bye"]) {
            channel.write_inbound(message.as_bytes()).unwrap();
        }
        assert_eq!(sent(&mut channel), waiting.concat() + "bye", "{limit}");
        assert!(!channel.is_open());
    }
}

/// A codec whose format is changed by a message.
#[derive(Default)]
struct Switching(u64);

impl Codec for Switching {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put_slice(format!("{}{} ", str::from_utf8(&message).unwrap(), self.0).as_bytes());
        self.0 += u64::from(message == "switch");
        Ok(())
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(self.0)
    }
}

#[test]
fn messages_of_an_earlier_format_stay() {
    let pipeline = Pipeline::codec(Switching::default()).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    for value in ["a", "b"] {
        write(&mut channel, 1, value);
    }
    channel.channel().write("switch".into()).unwrap();
    channel.run_pending();
    for value in ["c", "d"] {
        write(&mut channel, 1, value);
    }
    assert_eq!(sent(&mut channel), "a0 b0 switch0 d1 ");
}

/// The weight of queued messages is estimated by those before them.
#[test]
fn replacements_do_not_make_queued_messages_light() {
    let pipeline = Pipeline::codec(Numberless).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    let message = "x".repeat(10_000);
    for _ in 0..200 {
        write(&mut channel, 1, &message);
    }
    let handle = channel.channel();
    let mut queued = 0;
    while handle.is_writable() && queued < 100 {
        handle.write(message.clone().into()).unwrap();
        queued += 1;
    }
    assert!(queued < 10, "64 KiB are {queued} messages of 10 KB");
}

/// As `RawBytes`, without an estimate of the length.
struct Numberless;

impl Codec for Numberless {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        RawBytes.decode(input)
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        RawBytes.encode(message, output)
    }

    fn encoding_key(&self) -> Option<u64> {
        Some(0)
    }
}
