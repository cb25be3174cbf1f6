//! Filters above one another: bytes that are left behind, ends of streams, replies, mistakes.

use crate::{
    channel::{
        Pipeline,
        config::ChannelOptions,
        filter::{FilterContext, filter_state::FilterState, filter_trait::Filter, filter_waker::FilterWaker},
    },
    codec::Line,
    error::{Error, PeerError, Result},
    pipeline::{Context, Handler},
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex},
};

/// Records its callbacks.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<String>>>);

impl Recorder {
    fn note(&self, call: impl Into<String>) {
        self.0.borrow_mut().push(call.into());
    }

    fn take(&self) -> Vec<String> {
        self.0.take()
    }

    fn pipeline(&self) -> Pipeline<Bytes> {
        Pipeline::codec(Line::new()).handler(self.clone())
    }
}

impl Handler for Recorder {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("active");
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.note(String::from_utf8_lossy(&line));
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("end");
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.note(format!("{error:#}"));
        Err(error)
    }
}

/// Frames of a length of four bytes and a payload. It has no mark of its end.
struct Frames;

impl Frames {
    fn frame(payload: &[u8]) -> Vec<u8> {
        [&(payload.len() as u32).to_be_bytes(), payload].concat()
    }
}

impl Filter for Frames {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let mut at = 0;
        while let Some((length, rest)) = input[at..].split_first_chunk() {
            let length = u32::from_be_bytes(*length) as usize;
            let Some(payload) = rest.get(..length) else { break };
            ctx.deliver(payload);
            at += 4 + length;
        }
        Ok(at)
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend(Self::frame(plain));
        Ok(())
    }

    fn sealed_len(&self, plain: usize) -> usize {
        plain + 4
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

const CUT_OFF: &str = "the peer violated the protocol: the stream is cut off before its end";

/// However much of a frame has come, an end inside of it is not a clean one.
#[test]
fn a_stream_that_ends_inside_of_a_frame_is_truncated() {
    for kept in [1, 4, 100, 2_047, 2_049, 20_000, 100_000] {
        for pieces in [1, 3] {
            let recorder = Recorder::default();
            let mut channel = EmbeddedChannel::builder(recorder.pipeline())
                .filter(Frames)
                .channel_options(ChannelOptions::new().half_close(true))
                .build()
                .unwrap();
            let mut wire = 1_000_000u32.to_be_bytes().to_vec();
            wire.resize(kept, 7);
            for piece in wire.chunks(kept.div_ceil(pieces)) {
                channel.write_inbound(piece).unwrap();
            }
            channel.end_inbound();
            let calls = recorder.take();
            assert_eq!(calls, ["active", CUT_OFF], "{kept} in {pieces}");
        }
    }
}

/// The number of lines does not depend on where the segments end.
#[test]
fn a_limit_of_undecoded_input_below_a_frame_does_not_refuse_it() {
    let lines = "hi\n".repeat(3_000);
    let wire = Frames::frame(lines.as_bytes());
    for cut in [1, 100, 4_096, 5_000, 8_999] {
        let recorder = Recorder::default();
        let mut channel = EmbeddedChannel::builder(recorder.pipeline())
            .filter(Frames)
            .channel_options(ChannelOptions::new().max_inbound(100))
            .build()
            .unwrap();
        channel.write_inbound(&wire[..cut]).unwrap();
        channel.write_inbound(&wire[cut..]).unwrap();
        assert_eq!(recorder.take().len(), 3_001, "cut at {cut}");
    }
}

#[test]
fn a_frame_longer_than_the_limits_is_refused() {
    for (max_inbound, limit) in [(100, 80 * 1024), (200_000, 200_000)] {
        let recorder = Recorder::default();
        let mut channel = EmbeddedChannel::builder(recorder.pipeline())
            .filter(Frames)
            .channel_options(ChannelOptions::new().max_inbound(max_inbound))
            .build()
            .unwrap();
        channel.write_inbound(&1_000_000u32.to_be_bytes()).unwrap();
        let mut sent = 4;
        while channel.is_open() {
            let _ = channel.write_inbound(&[7; 1_000]);
            sent += 1_000;
        }
        assert!((limit..limit + 1_000).contains(&(sent - 1)), "{sent} bytes with a limit of {limit}");
        assert!(recorder.take()[1].contains("too long") || sent > limit);
    }
}

/// Reads `PP` and leaves. It may announce an address.
struct Prefix {
    finished: bool,
    announces: bool,
}

impl Filter for Prefix {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if input.len() < 2 {
            return Ok(0);
        }
        self.finished = true;
        if self.announces {
            ctx.announce(([192, 0, 2, 7], 1).into(), ([192, 0, 2, 8], 2).into());
        }
        Ok(2)
    }

    fn state(&self) -> FilterState {
        if self.finished { FilterState::Finished } else { FilterState::Handshaking }
    }
}

/// Is not needed for this peer: leaves in its start.
#[derive(Default)]
struct Leaves {
    finished: bool,
}

impl Filter for Leaves {
    fn start(&mut self, _: &mut FilterContext<'_>) -> Result {
        self.finished = true;
        Ok(())
    }

    fn read(&mut self, _: &mut FilterContext<'_>, _: &mut [u8]) -> Result<usize> {
        panic!("a filter that has left is called");
    }

    fn state(&self) -> FilterState {
        if self.finished { FilterState::Finished } else { FilterState::Handshaking }
    }
}

#[test]
fn bytes_behind_a_prefix_pass_filters_that_leave_in_their_start() {
    let plain = &b"PPhello\nyou\n"[..];
    let framed = [b"PP", &Frames::frame(b"hello\nyou\n")[..]].concat();
    for announces in [false, true] {
        for (wire, frames) in [(plain, false), (&framed[..], true)] {
            for at in 0..=wire.len() {
                let recorder = Recorder::default();
                let mut builder = EmbeddedChannel::builder(recorder.pipeline())
                    .filter(Prefix { finished: false, announces })
                    .filter(Leaves::default())
                    .filter(Leaves::default());
                if frames {
                    builder = builder.filter(Frames);
                }
                let mut channel = builder.filter(Leaves::default()).build().unwrap();
                channel.write_inbound(&wire[..at]).unwrap();
                channel.write_inbound(&wire[at..]).unwrap();
                channel.run_pending();
                let calls = recorder.take();
                assert_eq!(calls, ["active", "hello", "you"], "{announces}, {frames}, cut at {at}");
            }
        }
    }
}

/// Ends its stream with a full stop. Without one the stream is cut off.
#[derive(Default)]
struct FullStop {
    ended: bool,
}

impl Filter for FullStop {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let end = input.iter().position(|byte| *byte == b'.');
        ctx.deliver(&input[..end.unwrap_or(input.len())]);
        self.ended = end.is_some();
        Ok(input.len())
    }

    fn end_of_input(&mut self, _: &mut FilterContext<'_>, _: usize) -> Result {
        Err(PeerError::Truncated.into())
    }

    fn end_output(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().push(b'.');
        Ok(())
    }

    fn state(&self) -> FilterState {
        if self.ended { FilterState::InputEnded } else { FilterState::Established }
    }
}

/// Waits for its waker after its first byte.
#[derive(Default)]
struct Worker {
    waker: Arc<Mutex<Option<FilterWaker>>>,
    waits: bool,
    established: bool,
}

impl Filter for Worker {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if self.waits {
            self.waits = false;
            self.established = true;
        }
        if self.established {
            ctx.deliver(input);
            return Ok(input.len());
        }
        if input.is_empty() {
            return Ok(0);
        }
        *self.waker.lock().unwrap() = Some(ctx.waker());
        self.waits = true;
        Ok(1)
    }

    fn state(&self) -> FilterState {
        match (self.established, self.waits) {
            (true, _) => FilterState::Established,
            (_, true) => FilterState::Waiting,
            _ => FilterState::Handshaking,
        }
    }
}

#[test]
fn the_end_of_a_lower_filter_waits_for_the_one_above_it() {
    let wire = b"Hhello\n.";
    for at in 1..=wire.len() {
        let (recorder, worker) = (Recorder::default(), Worker::default());
        let waker = Arc::clone(&worker.waker);
        let mut channel = EmbeddedChannel::builder(recorder.pipeline())
            .filter(FullStop::default())
            .filter(worker)
            .channel_options(ChannelOptions::new().half_close(true))
            .build()
            .unwrap();
        channel.write_inbound(&wire[..at]).unwrap();
        channel.write_inbound(&wire[at..]).unwrap();
        assert!(recorder.take().is_empty());
        waker.lock().unwrap().take().unwrap().wake();
        channel.run_pending();
        assert_eq!(recorder.take(), ["active", "hello", "end"], "cut at {at}");
        assert!(channel.is_open());
    }
}

#[test]
fn the_end_of_the_wire_waits_for_a_filter() {
    for half_close in [false, true] {
        let (recorder, worker) = (Recorder::default(), Worker::default());
        let waker = Arc::clone(&worker.waker);
        let mut channel = EmbeddedChannel::builder(recorder.pipeline())
            .filter(worker)
            .channel_options(ChannelOptions::new().half_close(half_close))
            .build()
            .unwrap();
        channel.write_inbound(b"Hhello\n").unwrap();
        channel.end_inbound();
        assert!(recorder.take().is_empty() && channel.is_open());
        waker.lock().unwrap().take().unwrap().wake();
        channel.run_pending();
        let end: &[_] = if half_close { &["active", "hello", "end"] } else { &["active", "hello"] };
        assert_eq!(recorder.take(), end);
        assert_eq!(channel.is_closed(), !half_close);
    }
}

/// Answers each question mark.
struct Answers;

impl Filter for Answers {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if input.contains(&b'?') {
            ctx.output().push(b'!');
        }
        ctx.deliver(input);
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn a_reply_of_a_filter_after_the_end_of_the_output_is_dropped() {
    let lower: [fn() -> Box<dyn Filter>; 2] =
        [|| Box::new(FullStop::default()), || Box::new(Leaves::default())];
    for make in lower {
        let recorder = Recorder::default();
        let mut channel = EmbeddedChannel::builder(recorder.pipeline())
            .filter(make())
            .filter(Answers)
            .channel_options(ChannelOptions::new().half_close(true))
            .build()
            .unwrap();
        channel.write_inbound(b"one?\n").unwrap();
        channel.channel().shutdown_write();
        channel.run_pending();
        let output = channel.read_outbound();
        assert!(output == "!." || output == "!", "{output:?}");
        channel.write_inbound(b"two?\n").unwrap();
        channel.write_inbound(b"three\n").unwrap();
        assert_eq!(recorder.take(), ["active", "one?", "two?", "three"]);
        assert_eq!(channel.read_outbound(), &b""[..]);
        assert!(channel.is_open() && channel.is_output_ended());
    }
}

/// Keeps the bytes that it should seal.
struct Hoards;

impl Filter for Hoards {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, _: &mut FilterContext<'_>, _: &[u8]) -> Result {
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn a_filter_that_seals_nothing_fails_its_channel() {
    for stacked in [false, true] {
        let recorder = Recorder::default();
        let mut builder = EmbeddedChannel::builder(recorder.pipeline());
        if stacked {
            builder = builder.filter(Frames);
        }
        let mut channel = builder.filter(Hoards).build().unwrap();
        channel.channel().write("hello".into()).unwrap();
        channel.run_pending();
        assert_eq!(recorder.take(), ["active", "a filter has sealed nothing of a message"]);
        assert!(channel.is_closed() && channel.read_outbound().is_empty());
    }
}

/// Fails instead of sealing, and says why to its peer.
struct Refuses;

impl Filter for Refuses {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, _: &[u8]) -> Result {
        ctx.output().extend_from_slice(b"alert");
        Err("refused".into())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn the_last_words_of_a_filter_pass_through_the_filters_below_it() {
    for below in 0..3 {
        let recorder = Recorder::default();
        let mut builder = EmbeddedChannel::builder(recorder.pipeline());
        for _ in 0..below {
            builder = builder.filter(Frames);
        }
        let mut channel = builder.filter(Refuses).build().unwrap();
        channel.channel().write("hello".into()).unwrap();
        channel.run_pending();
        assert_eq!(recorder.take(), ["active", "refused"]);
        let expected = (0..below).fold(b"alert".to_vec(), |wire, _| Frames::frame(&wire));
        assert_eq!(channel.read_outbound(), expected, "{below}");
        assert!(channel.is_closed());
    }
}

/// Passes everything on, in pieces of the documented length at most.
struct Pieces;

impl Filter for Pieces {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        assert!(plain.len() <= 16 * 1024, "{}", plain.len());
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn no_filter_is_given_more_than_its_longest_piece_by_the_one_above_it() {
    let filters: Vec<Vec<Box<dyn Filter>>> = vec![
        vec![Box::new(Pieces), Box::new(Frames)],
        vec![Box::new(Pieces), Box::new(Pieces), Box::new(Frames)],
    ];
    for filters in filters {
        let recorder = Recorder::default();
        let mut builder = EmbeddedChannel::builder(recorder.pipeline());
        for filter in filters {
            builder = builder.filter(filter);
        }
        let mut channel = builder.build().unwrap();
        let line = vec![b'x'; 40_000];
        channel.channel().write(line.clone().into()).unwrap();
        let mut wire = Vec::new();
        for _ in 0..10 {
            channel.run_pending();
            wire.extend_from_slice(&channel.read_outbound());
        }
        let mut plain = Vec::new();
        let mut rest = &wire[..];
        while let Some((length, payload)) = rest.split_first_chunk() {
            let (payload, next) = payload.split_at(u32::from_be_bytes(*length) as usize);
            plain.extend_from_slice(payload);
            rest = next;
        }
        assert_eq!(plain, [&line[..], b"\n"].concat());
    }
}
