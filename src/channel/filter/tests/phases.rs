//! The phases of filters: waiting, finishing, inserting, starting on an open channel.

use super::xor::{Peer, Xor};
use crate::{
    channel::{
        Pipeline,
        filter::{FilterContext, filter_state::FilterState, filter_trait::Filter, filter_waker::FilterWaker},
    },
    codec::Line,
    error::{Error, PeerError, Resource, Result},
    pipeline::{Context, Handler},
    testing::{EmbeddedChannel, EmbeddedLoop},
};
use bytes::Bytes;
use std::{
    cell::{Cell, RefCell},
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

/// Records its callbacks and echoes lines; `upgrade` starts an XOR filter.
#[derive(Clone, Default)]
struct Recorder(Rc<RefCell<Vec<String>>>);

impl Recorder {
    fn take(&self) -> Vec<String> {
        self.0.take()
    }

    fn note(&self, call: impl Into<String>) {
        self.0.borrow_mut().push(call.into());
    }
}

impl Handler for Recorder {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let found = ctx.filter_info::<Found>().map_or(0, |found| found.0);
        self.note(format!("active, found {found}, peer {:?}", ctx.peer_address().map(|peer| peer.port())));
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.note(String::from_utf8_lossy(&line));
        if &line[..] == b"upgrade" {
            ctx.write("before".into())?;
            ctx.start_filter(Xor::server())?;
            return ctx.write("after".into());
        }
        ctx.write(line)
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.note(format!("{error:#}"));
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("inactive");
        Ok(())
    }
}

fn pipeline(recorder: &Recorder) -> Pipeline<Bytes> {
    Pipeline::codec(Line::new()).handler(recorder.clone())
}

fn channel(recorder: &Recorder, filter: impl Filter) -> EmbeddedChannel<Bytes> {
    EmbeddedChannel::builder(pipeline(recorder)).filter(filter).build().unwrap()
}

/// What a [`Prefix`] has found.
struct Found(u8);

/// Reads `#n`, a digit, and leaves. It announces port n, waits for its waker if n is 5, and inserts
/// an XOR filter if it is 9.
#[derive(Default)]
struct Prefix {
    waker: Arc<Mutex<Option<FilterWaker>>>,
    waits: bool,
    finished: bool,
}

impl Filter for Prefix {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if self.waits {
            self.waits = false;
            self.finished = true;
            return Ok(0);
        }
        match *input {
            [b'#', digit @ b'0'..=b'9', ..] => {
                let found = digit - b'0';
                ctx.set_info(Found(found));
                ctx.announce(([10, 0, 0, 1], found.into()).into(), ([10, 0, 0, 2], 80).into());
                match found {
                    5 => {
                        *self.waker.lock().unwrap() = Some(ctx.waker());
                        self.waits = true;
                    }
                    9 => {
                        ctx.insert_above(Xor::server());
                        self.finished = true;
                    }
                    _ => self.finished = true,
                }
                Ok(2)
            }
            [b'#'] | [] => Ok(0),
            _ => {
                ctx.output().extend(b"no prefix\n");
                Err(PeerError::Corrupted("no prefix").into())
            }
        }
    }

    fn state(&self) -> FilterState {
        match (self.finished, self.waits) {
            (true, _) => FilterState::Finished,
            (_, true) => FilterState::Waiting,
            _ => FilterState::Handshaking,
        }
    }
}

#[test]
fn a_prefix_filter_leaves_and_its_rest_goes_to_the_codec_however_it_is_split() {
    let wire = b"#7one\ntwo\n";
    for split in 0..=wire.len() {
        let recorder = Recorder::default();
        let mut channel = channel(&recorder, Prefix::default());
        for part in [&wire[..split], &wire[split..]] {
            channel.write_inbound(part).unwrap();
        }
        assert_eq!(recorder.take()[1..], ["one", "two"], "split at {split}");
        assert_eq!(channel.read_outbound(), &b"one\ntwo\n"[..]);
    }
}

/// Passes bytes on up to a `!`, then leaves.
#[derive(Default)]
struct UntilMark {
    finished: bool,
}

impl Filter for UntilMark {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let mark = input.iter().position(|byte| *byte == b'!');
        self.finished = mark.is_some();
        ctx.deliver(&input[..mark.unwrap_or(input.len())]);
        Ok(mark.map_or(input.len(), |at| at + 1))
    }

    fn state(&self) -> FilterState {
        if self.finished { FilterState::Finished } else { FilterState::Established }
    }
}

#[test]
fn an_established_filter_leaves_and_its_rest_goes_to_the_codec_however_it_is_split() {
    let wire = b"one\n!two\n!\n";
    for split in 0..=wire.len() {
        let recorder = Recorder::default();
        let mut channel = channel(&recorder, UntilMark::default());
        for part in [&wire[..split], &wire[split..]] {
            channel.write_inbound(part).unwrap();
        }
        assert_eq!(recorder.take()[1..], ["one", "two", "!"], "split at {split}");
        assert_eq!(channel.read_outbound(), &b"one\ntwo\n!\n"[..]);
    }
}

#[test]
fn what_a_filter_has_stored_outlives_it() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Prefix::default());
    channel.write_inbound(b"#3").unwrap();
    assert!(recorder.take()[0].starts_with("active, found 3"));
}

#[test]
fn an_error_is_answered_before_the_channel_closes_and_the_handler_is_never_called() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Prefix::default());
    channel.write_inbound(b"GET / HTTP/1.1\r\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"no prefix\n"[..]);
    assert!(channel.is_closed());
    assert_eq!(recorder.take(), [""; 0]);
}

#[test]
fn a_waiting_filter_gets_no_input_until_it_is_woken_and_nothing_is_lost() {
    let recorder = Recorder::default();
    let filter = Prefix::default();
    let waker = filter.waker.clone();
    let mut channel = channel(&recorder, filter);
    channel.write_inbound(b"#5one\n").unwrap();
    channel.write_inbound(b"two\n").unwrap();
    assert_eq!(recorder.take(), [""; 0]);
    waker.lock().unwrap().take().unwrap().wake();
    channel.run_pending();
    assert_eq!(recorder.take()[1..], ["one", "two"]);
    assert_eq!(channel.read_outbound(), &b"one\ntwo\n"[..]);
}

#[test]
fn waking_a_closed_channel_does_nothing() {
    let recorder = Recorder::default();
    let filter = Prefix::default();
    let waker = filter.waker.clone();
    let mut channel = channel(&recorder, filter);
    channel.write_inbound(b"#5one\n").unwrap();
    channel.close();
    assert!(channel.is_closed());
    waker.lock().unwrap().take().unwrap().wake();
    channel.run_pending();
    assert_eq!(recorder.take(), [""; 0]);
}

#[test]
fn an_inserted_filter_gets_the_rest_of_the_input() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Prefix::default());
    let mut peer = Peer::new(1);
    channel.write_inbound(&[b"#9".to_vec(), peer.take()].concat()).unwrap();
    peer.open(&channel.read_outbound());
    assert!(peer.is_established());
    channel.write_inbound(&peer.seal(b"hello\n")).unwrap();
    assert_eq!(peer.open(&channel.read_outbound()), b"hello\n");
    assert_eq!(recorder.take()[1..], ["hello"]);
}

/// Flips the highest bit of each byte in both directions.
struct Flip;

impl Flip {
    fn flip(bytes: &[u8]) -> Vec<u8> {
        bytes.iter().map(|byte| byte ^ 0x80).collect()
    }
}

impl Filter for Flip {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(&Self::flip(input));
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend(Self::flip(plain));
        Ok(())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// Becomes established with its first byte, which it consumes, and inserts [`Flip`]. Passes bytes
/// on up to a `!`, where it takes the state `end`, or fails if there is none.
struct Outer {
    inserted: bool,
    state: FilterState,
    end: Option<FilterState>,
}

impl Filter for Outer {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        let start = usize::from(!self.inserted && !input.is_empty());
        let mark = input.iter().position(|byte| *byte == b'!');
        ctx.deliver(&input[start..mark.unwrap_or(input.len())]);
        if start > 0 {
            ctx.insert_above(Flip);
            (self.inserted, self.state) = (true, FilterState::Established);
        }
        let Some(mark) = mark else { return Ok(input.len()) };
        self.state = self.end.ok_or(PeerError::Corrupted("a mark"))?;
        Ok(mark + 1)
    }

    fn state(&self) -> FilterState {
        self.state
    }
}

#[test]
fn an_inserted_filter_gets_the_plaintext_of_the_call_that_inserts_it_however_it_is_split() {
    let (one, two) = (Flip::flip(b"one\ntw"), Flip::flip(b"o\nthree\n"));
    let all = [b"x", &one[..], &two].concat();
    let marked = [b"x", &one[..], b"!", &two].concat();
    let check = |state, wire: &[u8], end, expected: &[&str]| {
        for split in 0..=wire.len() {
            let recorder = Recorder::default();
            let mut channel = channel(&recorder, Outer { inserted: false, state, end });
            for part in [&wire[..split], &wire[split..]] {
                // The channel may have closed at the mark.
                let _ = channel.write_inbound(part);
            }
            assert_eq!(recorder.take()[1..], *expected, "{state:?} and {end:?}, split at {split}");
        }
    };
    for state in [FilterState::Handshaking, FilterState::Established] {
        check(state, &all, None, &["one", "two", "three"]);
        check(state, &marked, Some(FilterState::Finished), &["one", "two", "three"]);
        check(state, &marked, Some(FilterState::InputEnded), &["one", "inactive"]);
        let failed = ["one", &format!("{:#}", Error::from(PeerError::Corrupted("a mark"))), "inactive"];
        check(state, &marked, None, &failed);
    }
}

/// Is established, and inserts [`Greeting`] with its first input, which it consumes.
struct Inserting(bool);

impl Filter for Inserting {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if std::mem::replace(&mut self.0, true) {
            ctx.deliver(input);
        } else {
            ctx.insert_above(Greeting(false));
        }
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// The filters above the inserted one have started. They are not started again.
#[test]
fn a_filter_that_is_inserted_between_two_starts_at_once() {
    let recorder = Recorder::default();
    let pipeline = Pipeline::codec(Line::new()).handler(recorder.clone());
    let builder = EmbeddedChannel::builder(pipeline).filter(Inserting(false)).filter(Once(false));
    let mut channel = builder.build().unwrap();
    channel.write_inbound(b"x").unwrap();
    assert_eq!(channel.read_outbound(), &b"hello\n"[..]);
    channel.write_inbound(b"y").unwrap();
    channel.write_inbound(b"one\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"one\n"[..]);
    assert_eq!(recorder.take()[1..], ["one"]);
}

/// Fails if it is started twice.
struct Once(bool);

impl Filter for Once {
    fn start(&mut self, _: &mut FilterContext<'_>) -> Result {
        assert!(!std::mem::replace(&mut self.0, true), "started twice");
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

/// Sends a line when it starts, and is established with its first input, which it consumes.
struct Greeting(bool);

impl Filter for Greeting {
    fn start(&mut self, ctx: &mut FilterContext<'_>) -> Result {
        ctx.output().extend(b"hello\n");
        Ok(())
    }

    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        if std::mem::replace(&mut self.0, true) {
            ctx.deliver(input);
        }
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        if self.0 { FilterState::Established } else { FilterState::Handshaking }
    }
}

#[test]
fn a_filter_that_an_established_one_inserts_starts_without_further_input() {
    let mut channel = channel(&Recorder::default(), Inserting(false));
    channel.write_inbound(b"x").unwrap();
    assert_eq!(channel.read_outbound(), &b"hello\n"[..]);
}

#[test]
fn a_filter_that_is_inserted_on_an_active_channel_has_the_handshake_timeout() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Inserting(false));
    channel.advance(Duration::from_secs(20));
    channel.write_inbound(b"x").unwrap();
    channel.advance(Duration::from_secs(9));
    assert!(channel.is_open());
    channel.advance(Duration::from_secs(1));
    assert!(channel.is_closed());
    let after = Duration::from_secs(10);
    let error = Error::TimedOut { operation: "the handshake", after };
    assert_eq!(recorder.take()[1..], [format!("{error:#}"), "inactive".into()]);
    assert_eq!(channel.timers(), 0);
}

/// Is established until a message is written, and then waits for input.
struct Rekeying(FilterState);

impl Filter for Rekeying {
    fn read(&mut self, _: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        self.0 = FilterState::Handshaking;
        Ok(())
    }

    fn state(&self) -> FilterState {
        self.0
    }
}

#[test]
fn a_filter_that_begins_another_handshake_with_its_output_has_the_handshake_timeout() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Rekeying(FilterState::Established));
    channel.channel().write("message".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), &b"message\n"[..]);
    channel.advance(Duration::from_secs(9));
    assert!(channel.is_open());
    channel.advance(Duration::from_secs(1));
    assert!(channel.is_closed());
}

#[test]
fn a_filter_that_is_inserted_on_an_active_channel_and_completes_sends_the_messages_that_wait() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Inserting(false));
    channel.write_inbound(b"x").unwrap();
    assert_eq!(channel.read_outbound(), &b"hello\n"[..]);
    channel.channel().write("between".into()).unwrap();
    channel.run_pending();
    assert!(channel.read_outbound().is_empty());
    channel.advance(Duration::from_secs(9));
    channel.write_inbound(b"y").unwrap();
    assert_eq!(channel.read_outbound(), &b"between\n"[..]);
    assert_eq!(channel.timers(), 0);
    channel.advance(Duration::from_secs(20));
    channel.write_inbound(b"one\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"one\n"[..]);
    assert_eq!(recorder.take()[1..], ["one"]);
}

/// Inserts another one of itself each time, and consumes nothing.
struct Endless;

impl Filter for Endless {
    fn read(&mut self, ctx: &mut FilterContext<'_>, _: &mut [u8]) -> Result<usize> {
        ctx.insert_above(Endless);
        Ok(0)
    }

    fn state(&self) -> FilterState {
        FilterState::Finished
    }
}

#[test]
fn filters_that_insert_each_other_without_end_close_the_channel() {
    /// Becomes [`Endless`] with its first input.
    struct Begin(bool);

    impl Filter for Begin {
        fn read(&mut self, ctx: &mut FilterContext<'_>, _: &mut [u8]) -> Result<usize> {
            ctx.insert_above(Begin(false));
            self.0 = true;
            Ok(0)
        }

        fn state(&self) -> FilterState {
            if self.0 { FilterState::Finished } else { FilterState::Handshaking }
        }
    }

    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Begin(false));
    channel.write_inbound(b"x").unwrap();
    assert!(channel.is_closed());
    assert_eq!(recorder.take(), [""; 0]);
}

/// Passes its input on, and inserts a filter with each read.
struct Generous {
    /// The inserted filters leave when they start.
    leaving: bool,
}

impl Filter for Generous {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        if self.leaving {
            ctx.insert_above(Endless);
        } else {
            ctx.insert_above(Once(false));
        }
        Ok(input.len())
    }

    fn state(&self) -> FilterState {
        FilterState::Established
    }
}

#[test]
fn plaintext_for_a_filter_above_the_limit_reaches_nobody() {
    for leaving in [false, true] {
        let recorder = Recorder::default();
        let mut channel = channel(&recorder, Generous { leaving });
        for _ in 0..17 {
            channel.write_inbound(b"line\n").unwrap();
        }
        assert!(channel.is_closed());
        let mut expected = vec!["line".to_owned(); 16];
        expected.push(format!("{:#}", Error::Full { resource: Resource::Filters, limit: 16 }));
        expected.push("inactive".into());
        assert_eq!(recorder.take()[1..], expected, "the filters leave: {leaving}");
    }
}

#[test]
fn a_filter_that_has_finished_before_it_starts_is_never_called() {
    let recorder = Recorder::default();
    let mut channel = channel(&recorder, Endless);
    channel.write_inbound(b"hello\n").unwrap();
    assert_eq!(recorder.take()[1..], ["hello"]);
}

#[test]
fn an_open_channel_is_upgraded_and_earlier_messages_stay_plain() {
    let recorder = Recorder::default();
    let mut channel = EmbeddedChannel::new(pipeline(&recorder));
    channel.write_inbound(b"one\nupgrade\n").unwrap();
    assert_eq!(channel.read_outbound(), &b"one\nbefore\n"[..]);
    let mut peer = Peer::new(1);
    channel.write_inbound(&peer.take()).unwrap();
    assert_eq!(peer.open(&channel.read_outbound()), b"after\n");
    channel.write_inbound(&peer.seal(b"two\n")).unwrap();
    assert_eq!(peer.open(&channel.read_outbound()), b"two\n");
    assert_eq!(recorder.take()[1..], ["one", "upgrade", "two"]);
}

#[test]
fn plaintext_behind_the_upgrade_command_is_an_injection() {
    let recorder = Recorder::default();
    let mut channel = EmbeddedChannel::new(pipeline(&recorder));
    channel.write_inbound(b"upgrade\ninjected\n").unwrap();
    let log = recorder.take();
    assert_eq!(log[1], "upgrade");
    assert!(log[2].contains("plaintext after the upgrade"), "{log:?}");
    assert_eq!(log[3..], ["inactive"]);
    assert_eq!(channel.read_outbound(), &b"before\n"[..]);
}

#[test]
fn an_upgrade_that_is_not_completed_in_time_closes_the_channel_with_an_error() {
    let recorder = Recorder::default();
    let mut channel = EmbeddedChannel::new(pipeline(&recorder));
    channel.write_inbound(b"upgrade\n").unwrap();
    channel.advance(Duration::from_secs(9));
    assert!(channel.is_open());
    channel.advance(Duration::from_secs(1));
    assert!(channel.is_closed());
    let log = recorder.take();
    assert!(log[2].contains("the handshake"), "{log:?}");
}

#[test]
fn an_upgrade_has_the_handshake_timeout_of_its_channel() {
    let recorder = Recorder::default();
    let builder = EmbeddedChannel::builder(pipeline(&recorder)).handshake_timeout(Duration::from_secs(2));
    let mut channel = builder.build().unwrap();
    channel.write_inbound(b"upgrade\n").unwrap();
    channel.advance(Duration::from_secs(1));
    assert!(channel.is_open());
    channel.advance(Duration::from_secs(1));
    assert!(channel.is_closed());
}

#[test]
fn a_handshake_that_takes_too_long_closes_the_channel_without_a_callback() {
    let recorder = Recorder::default();
    let builder = EmbeddedChannel::builder(pipeline(&recorder)).filter(Xor::server());
    let mut channel = builder.handshake_timeout(Duration::from_secs(3)).build().unwrap();
    // One byte of the handshake now and then does not extend it.
    for byte in [0x48, 0] {
        channel.write_inbound(&[byte]).unwrap();
        channel.advance(Duration::from_secs(1));
    }
    assert!(channel.is_open());
    channel.advance(Duration::from_secs(1));
    assert!(channel.is_closed());
    assert_eq!((recorder.take(), channel.timers()), (vec![], 0));
}

/// S-09.
#[test]
fn a_turn_handles_a_bounded_number_of_handshakes() {
    thread_local! {
        static READS: Cell<usize> = const { Cell::new(0) };
    }
    /// Counts its reads, and is never established.
    struct Slow;

    impl Filter for Slow {
        fn read(&mut self, _: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
            READS.set(READS.get() + 1);
            Ok(input.len())
        }

        fn state(&self) -> FilterState {
            FilterState::Handshaking
        }
    }

    let recorder = Recorder::default();
    let mut event_loop = EmbeddedLoop::new();
    let ids: Vec<_> =
        (0..20).map(|_| event_loop.open(pipeline(&recorder).filters(vec![Box::new(Slow)]))).collect();
    event_loop.within(|event_loop| {
        for id in &ids {
            event_loop.on(id.key, |driver, io| {
                let ready = driver.transport.as_mut().unwrap().receive(b"hello");
                driver.handle_ready(io, ready)
            });
        }
        assert_eq!(READS.get(), 8, "the default of handshakes_per_turn");
    });
    assert_eq!(READS.get(), 20, "later turns handle the rest");
}
