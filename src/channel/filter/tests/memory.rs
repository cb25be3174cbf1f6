//! Filters over the in-memory transport.

use super::xor::{Peer, Xor};
use crate::{
    channel::{
        IdleTimeouts, Pipeline, PipelineSettings, TimeLimits,
        config::{ChannelOptions, Overflow},
        driver::{Next, Ready},
        filter::{filter_trait::Filter, sealed::SEALED_AHEAD},
        shaping::TrafficLimits,
    },
    codec::Line,
    error::{Error, Result},
    id::ChannelId,
    pipeline::{Context, Handler},
    testing::{EmbeddedLoop, MemoryTransport},
};
use bytes::Bytes;
use std::{cell::RefCell, rc::Rc, time::Duration};

pub(super) fn stack(filters: usize, make: impl Fn() -> Xor) -> Vec<Box<dyn Filter>> {
    (0..filters).map(|_| Box::new(make()) as Box<dyn Filter>).collect()
}

type Log = Rc<RefCell<Vec<String>>>;

/// Records its callbacks and echoes lines. The line `quit` closes the channel, `end` shuts down the
/// write half, and `swap` replaces the pipeline.
struct Echo(Log);

impl Echo {
    fn note(&self, call: impl Into<String>) {
        self.0.borrow_mut().push(call.into());
    }
}

impl Handler for Echo {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("active");
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.note(String::from_utf8_lossy(&line));
        match &line[..] {
            b"quit" => ctx.close_with("bye".into()),
            b"end" => {
                ctx.shutdown_write();
                Ok(())
            }
            b"swap" => {
                let log = self.0.clone();
                ctx.replace_pipeline(Pipeline::codec(Line::new()).handler(Echo(log)))
            }
            _ => ctx.write(line),
        }
    }

    fn read_complete(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("complete");
        Ok(())
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("end");
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.note(format!("error: {error:#}"));
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("inactive");
        Ok(())
    }
}

struct Fixture {
    event_loop: EmbeddedLoop,
    id: ChannelId,
    log: Log,
    peer: Peer,
}

impl Fixture {
    fn new(filters: usize, options: &ChannelOptions) -> Self {
        Self::with(filters, options, |_| {})
    }

    fn with(filters: usize, options: &ChannelOptions, set: impl FnOnce(&mut PipelineSettings)) -> Self {
        let log = Log::default();
        let mut event_loop = EmbeddedLoop::builder().channel_options(options.clone()).build().unwrap();
        let mut pipeline = Pipeline::codec(Line::new()).handler(Echo(log.clone())).into_any();
        set(&mut pipeline.settings);
        let pipeline: Pipeline<Bytes> = Pipeline::new(pipeline);
        let id = event_loop.open(pipeline.filters(stack(filters, Xor::server)));
        Fixture { event_loop, id, log, peer: Peer::new(filters) }
    }

    /// Creates a channel whose filters are established.
    fn established(filters: usize, options: &ChannelOptions) -> Self {
        let mut fixture = Self::new(filters, options);
        fixture.shake_hands();
        fixture
    }

    fn shake_hands(&mut self) {
        for _ in 0..3 {
            if self.peer.is_established() {
                break;
            }
            let wire = self.peer.take();
            self.wire(&wire);
            assert_eq!(self.answer(), "");
        }
        assert_eq!(self.log(), ["active"]);
    }

    fn wire(&mut self, wire: &[u8]) {
        self.event_loop.change(self.id, |transport| transport.receive(wire));
    }

    fn receive(&mut self, plain: &str) {
        let wire = self.peer.seal(plain.as_bytes());
        self.wire(&wire);
    }

    /// Takes the channel's output, and opens it with the peer's filters.
    fn answer(&mut self) -> String {
        let wire = self.event_loop.read_outbound(self.id);
        String::from_utf8(self.peer.open(&wire)).unwrap()
    }

    fn change(&mut self, change: impl FnOnce(&mut MemoryTransport) -> Ready) {
        self.event_loop.change(self.id, change);
    }

    fn set_room(&mut self, room: Option<usize>) {
        self.change(|transport| transport.set_room(room));
    }

    /// Returns the numbers of pending plaintext bytes and of sealed bytes.
    fn waiting(&mut self) -> (usize, usize) {
        let mut waiting = (0, 0);
        self.event_loop.act(self.id, |driver, _| {
            let state = &driver.core.state;
            waiting = (state.outbound.pending_bytes(), state.extras.sealed_wire().len());
            Next::Stay
        });
        waiting
    }

    fn log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.borrow_mut())
    }

    fn is_open(&self) -> bool {
        self.event_loop.is_open(self.id)
    }
}

#[test]
fn active_is_called_after_the_handshake_of_every_filter() {
    for filters in 1..=3 {
        let mut fixture = Fixture::new(filters, &ChannelOptions::new());
        assert!(fixture.log().is_empty());
        fixture.shake_hands();
        fixture.receive("hello\n");
        assert_eq!(fixture.answer(), "hello\n");
        assert_eq!(fixture.log(), ["hello", "complete"]);
    }
}

#[test]
fn the_handshake_is_read_although_auto_read_is_off() {
    let mut fixture = Fixture::established(2, &ChannelOptions::new().auto_read(false));
    fixture.receive("hello\n");
    assert!(fixture.log().is_empty(), "no read was requested");
}

#[test]
fn every_split_of_the_wire_gives_the_same_result() {
    let mut peer = Peer::new(1);
    let mut other = Peer::accepting(1);
    // All splits use the same handshake.
    let hello = peer.take();
    other.open(&hello);
    peer.open(&other.take());
    let wire = [hello, peer.seal(b"one\ntwo\n"), peer.seal(b"three\n"), peer.end()].concat();
    for split in 0..=wire.len() {
        let mut fixture = Fixture::new(1, &ChannelOptions::new());
        fixture.wire(&wire[..split]);
        if split < wire.len() {
            fixture.wire(&wire[split..]);
        }
        let mut log = fixture.log();
        log.retain(|call| call != "complete");
        assert_eq!(log, ["active", "one", "two", "three", "inactive"], "split at {split}");
    }
}

#[test]
fn plaintext_is_sealed_when_it_is_flushed_and_only_as_far_ahead_as_allowed() {
    let options = ChannelOptions::new().max_outbound(1 << 20);
    for filters in 1..=2 {
        let mut fixture = Fixture::established(filters, &options);
        fixture.set_room(Some(0));
        let line = format!("{}\n", "x".repeat(49_999));
        for _ in 0..4 {
            fixture.receive(&line);
        }
        let (plain, wire) = fixture.waiting();
        assert_eq!(plain, 200_000);
        assert!((SEALED_AHEAD / 2..=SEALED_AHEAD).contains(&wire), "{wire}");
        fixture.set_room(None);
        assert_eq!(fixture.answer().len(), 200_000);
        assert_eq!(fixture.waiting(), (0, 0));
    }
}

#[test]
fn write_tracked_completes_when_the_last_sealed_byte_is_taken() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    fixture.set_room(Some(0));
    let shared = fixture.event_loop.share(fixture.id).unwrap();
    let channel = crate::channel::Channel::<Bytes>::new(shared);
    let first = channel.write_tracked("first".into()).unwrap();
    let second = channel.write_tracked("second".into()).unwrap();
    fixture.event_loop.run_pending();
    // Both lines are one record: header and 13 bytes.
    fixture.set_room(Some(15));
    assert_eq!((first.is_done(), second.is_done()), (false, false));
    assert_eq!(fixture.waiting().0, 13);
    fixture.set_room(Some(1));
    assert!(first.is_done() && second.is_done());
    assert_eq!(fixture.answer(), "first\nsecond\n");
}

#[test]
fn a_full_buffer_drops_only_what_is_not_sealed() {
    let options = ChannelOptions::new().max_outbound(200_000).overflow(Overflow::DropOldest);
    let mut fixture = Fixture::established(1, &options);
    fixture.set_room(Some(0));
    let lines: Vec<_> = (0..20).map(|n| format!("{n:02}{}\n", "x".repeat(19_997))).collect();
    fixture.receive(&lines[..5].concat());
    let sealed = fixture.waiting().1;
    assert!(sealed > 20_000, "more than one line: {sealed}");
    for line in &lines[5..] {
        fixture.receive(line);
    }
    assert!(fixture.waiting().0 <= 200_000);
    fixture.set_room(None);
    let answer = fixture.answer();
    let numbers: Vec<&str> = answer.split_terminator('\n').map(|line| &line[..2]).collect();
    assert!(answer.split_terminator('\n').all(|line| line.len() == 19_999), "no line is cut");
    let begun = sealed.div_ceil(20_000);
    assert!((0..begun).all(|n| numbers[n] == format!("{n:02}")), "{numbers:?}");
    assert!(numbers.len() < 20 && numbers.is_sorted() && numbers.ends_with(&["19"]), "{numbers:?}");
}

#[test]
fn a_close_ends_the_output_of_all_filters() {
    for filters in 1..=2 {
        let mut fixture = Fixture::established(filters, &ChannelOptions::new());
        fixture.receive("quit\n");
        assert_eq!(fixture.answer(), "bye\n");
        assert!(fixture.peer.has_ended() && !fixture.is_open());
        assert_eq!(fixture.log(), ["quit", "inactive"]);
    }
}

#[test]
fn a_close_waits_until_the_last_record_is_sent() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    // `bye` and its record fit, but the closing record does not.
    fixture.set_room(Some(7));
    fixture.receive("quit\n");
    assert_eq!((fixture.answer().as_str(), fixture.peer.has_ended()), ("bye\n", false));
    assert!(!fixture.event_loop.is_closed(fixture.id));
    fixture.set_room(None);
    fixture.answer();
    assert!(fixture.peer.has_ended() && fixture.event_loop.is_closed(fixture.id));
}

#[test]
fn each_half_ends_independently() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new().half_close(true));
    fixture.receive("end\n");
    assert_eq!(fixture.answer(), "");
    assert!(fixture.peer.has_ended() && fixture.is_open());
    fixture.receive("still\n");
    let end = fixture.peer.end();
    fixture.wire(&end);
    assert_eq!(fixture.log()[..3], ["end", "complete", "still"]);
    assert!(!fixture.is_open());
}

/// Bytes after the end of the stream are not plaintext.
#[test]
fn bytes_after_the_end_of_the_stream_are_not_delivered() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new().half_close(true));
    let end = fixture.peer.end();
    let more = fixture.peer.seal(b"sealed\n");
    fixture.wire(&[&end[..], &more, b"plain\n"].concat());
    fixture.wire(b"plain\n");
    fixture.wire(&more);
    assert_eq!(fixture.log(), ["complete", "end"]);
    assert!(fixture.is_open());
}

#[test]
fn a_stream_that_ends_without_its_last_record_is_an_error() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    fixture.receive("whole\n");
    fixture.log();
    let wire = fixture.peer.seal(b"half\n");
    fixture.wire(&wire[..5]);
    fixture.change(MemoryTransport::end);
    let log = fixture.log();
    assert!(log[0].contains("cut off") && log[1..] == ["inactive"], "{log:?}");
}

#[test]
fn an_invalid_record_is_an_error_and_nothing_is_opened_after_it() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    let good = fixture.peer.seal(b"after\n");
    fixture.wire(&[&b"garbage"[..], &good].concat());
    fixture.wire(&good);
    let log = fixture.log();
    assert!(log[0].contains("no record") && log[1..] == ["inactive"], "{log:?}");
}

#[test]
fn a_failed_handshake_closes_the_channel_without_a_callback() {
    for bytes in [&b"garbage"[..], b""] {
        let mut fixture = Fixture::new(1, &ChannelOptions::new());
        match bytes {
            b"" => fixture.change(MemoryTransport::end),
            garbage => fixture.wire(garbage),
        }
        assert!(fixture.event_loop.is_closed(fixture.id));
        assert_eq!(fixture.log(), [""; 0]);
    }
}

#[test]
fn filters_survive_a_replaced_pipeline() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    fixture.receive("swap\nsame record\n");
    fixture.receive("next\n");
    assert_eq!(fixture.answer(), "same record\nnext\n");
    assert_eq!(fixture.log()[..3], ["swap", "active", "same record"]);
}

#[test]
fn bytes_that_a_filter_keeps_have_to_make_progress() {
    let second = Duration::from_secs(1);
    let limits = TimeLimits::new().progress(1_000, second);
    let mut fixture = Fixture::with(1, &ChannelOptions::new(), |settings| settings.limits = limits);
    fixture.shake_hands();
    let wire = fixture.peer.seal("x".repeat(10_000).as_bytes());
    fixture.wire(&wire[..100]);
    fixture.event_loop.advance(2 * second);
    assert!(!fixture.is_open(), "{:?}", fixture.log());
}

#[test]
fn counters_measure_the_wire() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    let (mut read, mut written) = (0, 0);
    fixture.event_loop.act(fixture.id, |driver, _| {
        let state = &driver.core.state;
        (read, written) = (state.inbound.bytes(), state.outbound.bytes());
        Next::Stay
    });
    fixture.receive("hello\n");
    fixture.event_loop.act(fixture.id, |driver, _| {
        let state = &driver.core.state;
        assert_eq!((state.inbound.bytes() - read, state.outbound.bytes() - written), (9, 9));
        Next::Stay
    });
}

#[test]
fn a_byte_of_the_wire_postpones_an_idle_event_although_it_brings_no_plaintext() {
    let ms = Duration::from_millis;
    let mut fixture = Fixture::with(1, &ChannelOptions::new(), |settings| {
        settings.idle = IdleTimeouts::new().reader(ms(50));
    });
    fixture.shake_hands();
    fixture.event_loop.advance(ms(40));
    let record = fixture.peer.seal(b"hello\n");
    fixture.wire(&record[..1]);
    fixture.event_loop.advance(ms(40));
    assert!(fixture.is_open(), "{:?}", fixture.log());
    fixture.event_loop.advance(ms(11));
    assert!(!fixture.is_open(), "an idle channel closes by default");
}

#[test]
fn traffic_limits_measure_the_wire() {
    const RECORD: usize = 9;
    let mut fixture = Fixture::with(1, &ChannelOptions::new(), |settings| {
        settings.traffic = TrafficLimits::new().read(1000).read_burst(2 * RECORD).into();
    });
    fixture.shake_hands();
    fixture.event_loop.advance(Duration::from_secs(1));
    let records: Vec<u8> = ["one__\n", "two__\n", "three\n"]
        .iter()
        .flat_map(|line| fixture.peer.seal(line.as_bytes()).to_vec())
        .collect();
    assert_eq!(records.len(), 3 * RECORD);
    fixture.wire(&records);
    assert_eq!(fixture.log(), ["one__", "two__", "complete"], "18 bytes of the wire, 12 of plaintext");
    fixture.event_loop.advance(Duration::from_millis(8));
    assert_eq!(fixture.log(), [""; 0]);
    fixture.event_loop.advance(Duration::from_millis(20));
    assert!(fixture.log().contains(&"three".to_owned()));
}

/// Also with filters, a short read of the wire has emptied the transport.
#[test]
fn a_short_read_of_the_wire_is_the_last_one() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    let reads = |fixture: &mut Fixture| {
        let mut reads = 0;
        fixture.event_loop.act(fixture.id, |_, io| {
            reads = io.metrics.reads.read();
            Next::Stay
        });
        reads
    };
    let before = reads(&mut fixture);
    fixture.receive("hello\n");
    assert_eq!(reads(&mut fixture), before + 1);
}

/// The plaintext of an upload is decoded in large pieces, wherever a read cuts a record.
#[test]
fn bulk_input_is_read_in_large_blocks() {
    let mut fixture = Fixture::established(1, &ChannelOptions::new());
    let line = "x".repeat(999) + "\n";
    let wire = fixture.peer.seal(line.repeat(4_000).as_bytes());
    let reads = |fixture: &mut Fixture| {
        let mut reads = 0;
        fixture.event_loop.act(fixture.id, |_, io| {
            reads = io.metrics.reads.read();
            Next::Stay
        });
        reads
    };
    let before = reads(&mut fixture);
    fixture.wire(&wire);
    fixture.event_loop.advance(Duration::from_millis(20));
    assert_eq!(fixture.log().iter().filter(|call| call.len() == 999).count(), 4_000);
    let average = wire.len() as u64 / (reads(&mut fixture) - before);
    assert!(average > 48 * 1024, "{average} bytes per read");
}

/// No plaintext is stuck although no event announces it.
/// S-21.
#[test]
fn ten_messages_of_one_record_are_delivered_one_per_read() {
    let options = ChannelOptions::new().auto_read(false).one_message_per_read(true);
    let mut fixture = Fixture::established(1, &options);
    let lines: String = (0..10).map(|n| format!("{n}\n")).collect();
    fixture.receive(&lines);
    for n in 0..10 {
        assert!(fixture.log().is_empty());
        fixture.event_loop.act(fixture.id, |driver, io| {
            driver.call(io, |core, services| {
                core.state.status.want_read();
                core.state.want_attention(services);
            })
        });
        let log: Vec<_> = fixture.log().into_iter().filter(|call| call != "complete").collect();
        assert_eq!(log, [n.to_string()]);
    }
}

/// The alert must be the last thing that a peer gets.
#[test]
fn nothing_is_sealed_after_an_error() {
    let (mut client, mut server) = (Peer::new(1), Peer::accepting(1));
    server.open(&client.take());
    client.open(&server.take());
    assert!(!server.seal_ahead(b"before").is_empty());
    server.take();
    assert!(server.try_open(&[0xEE, 0, 0]).is_err());
    assert_eq!(server.seal_ahead(b"after"), b"");
    assert_eq!(server.end(), b"");
}
