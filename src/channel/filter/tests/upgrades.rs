//! Filters that a handler starts, with everything that it may do during their handshake.

use super::xor::{Peer, Xor};
use crate::{
    buffer::WaterMark,
    channel::{
        Pipeline,
        close_cause::CloseCause,
        config::ChannelOptions,
        filter::{FilterContext, filter_state::FilterState, filter_trait::Filter, filter_waker::FilterWaker},
        shaping::TrafficLimits,
    },
    codec::Line,
    error::{Error, Result},
    pipeline::{Context, Handler, handler_ref::HandlerRef},
    testing::EmbeddedChannel,
};
use bytes::Bytes;
use std::{
    cell::RefCell,
    rc::Rc,
    sync::{Arc, Mutex},
    time::Duration,
};

type Log = Rc<RefCell<Vec<String>>>;
type Upgrade = Box<dyn FnMut(&mut Context<'_, Upgrading>) -> Result>;

/// Records its callbacks, pauses reading while it is not writable, and upgrades on the line `go`.
struct Upgrading {
    log: Log,
    upgrade: Upgrade,
    myself: Rc<RefCell<Option<HandlerRef<Upgrading>>>>,
    reads: bool,
}

impl Upgrading {
    fn note(&self, call: impl Into<String>) {
        self.log.borrow_mut().push(call.into());
    }
}

impl Handler for Upgrading {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        *self.myself.borrow_mut() = Some(ctx.handler_ref());
        ctx.read();
        Ok(())
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        self.note(String::from_utf8_lossy(&line));
        if &line[..] == b"go" { (self.upgrade)(ctx) } else { Ok(()) }
    }

    fn read_closed(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("end");
        Ok(())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if self.reads {
            ctx.set_auto_read(writable);
        }
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        self.note(format!("{error:#}"));
        Err(error)
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.note("inactive");
        Ok(())
    }
}

struct Fixture {
    channel: EmbeddedChannel<Bytes>,
    log: Log,
    myself: Rc<RefCell<Option<HandlerRef<Upgrading>>>>,
    peer: Peer,
}

impl Fixture {
    fn new(
        options: ChannelOptions,
        upgrade: impl FnMut(&mut Context<'_, Upgrading>) -> Result + 'static,
    ) -> Self {
        let (log, myself) = (Log::default(), Rc::default());
        let reads = options.clone().build().unwrap().auto_read;
        let handler =
            Upgrading { log: log.clone(), upgrade: Box::new(upgrade), myself: Rc::clone(&myself), reads };
        let channel = EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(handler))
            .channel_options(options)
            .build()
            .unwrap();
        Fixture { channel, log, myself, peer: Peer::new(1) }
    }

    /// Sends the line that upgrades.
    fn go(&mut self) {
        self.channel.write_inbound(b"go\n").unwrap();
        assert_eq!(self.calls(), ["go"]);
    }

    /// Sends the peer's part of the handshake. Returns the channel's output, without its part.
    fn shake_hands(&mut self) -> String {
        let hello = self.peer.take();
        let _ = self.channel.write_inbound(&hello);
        self.answer()
    }

    fn answer(&mut self) -> String {
        self.channel.run_pending();
        let wire = self.channel.read_outbound();
        String::from_utf8(self.peer.open(&wire)).unwrap()
    }

    fn receive(&mut self, plain: &str) {
        let wire = self.peer.seal(plain.as_bytes());
        let _ = self.channel.write_inbound(&wire);
        self.channel.run_pending();
    }

    fn calls(&self) -> Vec<String> {
        self.log.take()
    }
}

fn marks() -> ChannelOptions {
    ChannelOptions::new().water_mark(WaterMark::new(10, 20).unwrap())
}

const LONG: &str = "a message of more than twenty bytes";

#[test]
fn a_handler_that_stops_reading_does_not_stop_a_handshake() {
    let mut fixture = Fixture::new(marks(), |ctx| ctx.start_filter(Xor::server()));
    fixture.go();
    fixture.channel.channel().write(LONG.into()).unwrap();
    fixture.channel.run_pending();
    assert_eq!(fixture.shake_hands(), format!("{LONG}\n"));
    fixture.receive("more\n");
    assert_eq!(fixture.calls(), ["more"]);
}

#[test]
fn a_read_that_is_requested_during_a_handshake_delivers_the_next_message() {
    for together in [false, true] {
        let mut fixture =
            Fixture::new(ChannelOptions::new().auto_read(false), |ctx| ctx.start_filter(Xor::server()));
        fixture.go();
        let myself = fixture.myself.take().unwrap();
        let read = || {
            myself.execute(|_, ctx| {
                ctx.read();
                Ok(())
            })
        };
        read().map_err(drop).unwrap();
        fixture.channel.run_pending();
        if together {
            let mut wire = fixture.peer.take();
            // The peer of a test knows the answer before it has come.
            fixture.peer.open(&[0x48, 0, 1, 0x5A]);
            wire.extend(fixture.peer.seal(b"first\nsecond\n"));
            fixture.channel.write_inbound(&wire).unwrap();
            assert_eq!(fixture.calls(), ["first", "second"], "all messages of the bytes that were read");
        } else {
            assert_eq!(fixture.shake_hands(), "");
            fixture.receive("first\n");
            assert_eq!(fixture.calls(), ["first"]);
            fixture.receive("second\n");
            assert!(fixture.calls().is_empty(), "no read was requested");
            read().map_err(drop).unwrap();
            fixture.channel.run_pending();
            assert_eq!(fixture.calls(), ["second"]);
        }
    }
}

/// Waits for its waker whenever it reads a `K`; passes other bytes on.
struct Rekey {
    waker: Arc<Mutex<Option<FilterWaker>>>,
    waits: bool,
}

impl Filter for Rekey {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        self.waits = false;
        let key = input.iter().position(|byte| *byte == b'K');
        ctx.deliver(&input[..key.unwrap_or(input.len())]);
        if key.is_some() {
            *self.waker.lock().unwrap() = Some(ctx.waker());
            self.waits = true;
        }
        Ok(key.map_or(input.len(), |key| key + 1))
    }

    fn state(&self) -> FilterState {
        if self.waits { FilterState::Waiting } else { FilterState::Established }
    }
}

#[test]
fn a_filter_that_waits_again_is_woken_although_the_handler_does_not_read() {
    let waker = Arc::default();
    let shared = Arc::clone(&waker);
    let mut fixture = Fixture::new(marks(), move |ctx| {
        ctx.start_filter(Rekey { waker: Arc::clone(&shared), waits: false })
    });
    fixture.go();
    fixture.channel.write_inbound(b"Kone\n").unwrap();
    fixture.channel.channel().write(LONG.into()).unwrap();
    fixture.channel.run_pending();
    assert_eq!(fixture.channel.read_outbound(), &b""[..]);
    assert!(fixture.calls().is_empty());
    waker.lock().unwrap().take().unwrap().wake();
    fixture.channel.run_pending();
    assert_eq!(fixture.channel.read_outbound(), format!("{LONG}\n"));
    fixture.channel.run_pending();
    assert_eq!(fixture.calls(), ["one"]);
}

/// A graceful close sends the messages written before it, also if they wait for a handshake.
#[test]
fn a_close_during_an_upgrade_completes_the_handshake_for_the_messages_that_wait() {
    for later in [false, true] {
        let mut fixture = Fixture::new(ChannelOptions::new(), move |ctx| {
            ctx.start_filter(Xor::server())?;
            ctx.write("bye".into())?;
            if !later {
                ctx.close();
            }
            Ok(())
        });
        fixture.go();
        if later {
            fixture.channel.channel().close();
            fixture.channel.run_pending();
        }
        assert!(!fixture.channel.is_closed());
        let hello = fixture.peer.take();
        // In pieces: the input of the handshake is not discarded.
        let _ = fixture.channel.write_inbound(&hello[..1]);
        let _ = fixture.channel.write_inbound(&hello[1..]);
        assert_eq!(fixture.answer(), "bye\n");
        assert!(fixture.peer.has_ended() && fixture.channel.is_closed());
        assert_eq!(fixture.calls(), ["inactive"]);
    }
}

#[test]
fn a_close_during_an_upgrade_with_nothing_to_send_is_immediate() {
    for later in [false, true] {
        let mut fixture = Fixture::new(ChannelOptions::new(), move |ctx| {
            ctx.start_filter(Xor::server())?;
            if !later {
                ctx.close();
            }
            Ok(())
        });
        fixture.channel.write_inbound(b"go\n").unwrap();
        if later {
            fixture.channel.channel().close();
            fixture.channel.run_pending();
        }
        assert!(fixture.channel.is_closed());
        assert_eq!(fixture.calls(), ["go", "inactive"]);
    }
}

#[test]
fn a_close_during_an_upgrade_that_is_not_answered_ends_with_the_close_timeout() {
    let mut fixture = Fixture::new(ChannelOptions::new().close_timeout(Duration::from_secs(3)), |ctx| {
        ctx.start_filter(Xor::server())?;
        ctx.write("bye".into())?;
        ctx.close();
        Ok(())
    });
    fixture.go();
    fixture.channel.advance(Duration::from_millis(2_900));
    assert!(!fixture.channel.is_closed());
    fixture.channel.advance(Duration::from_millis(200));
    assert!(fixture.channel.is_closed());
    assert_eq!(fixture.calls(), ["inactive"]);
}

#[test]
fn a_close_during_an_upgrade_that_the_peer_abandons_is_immediate() {
    for wire in [&b"\xee\0\0"[..], b""] {
        let mut fixture = Fixture::new(ChannelOptions::new(), |ctx| {
            ctx.start_filter(Xor::server())?;
            ctx.write("bye".into())?;
            ctx.close();
            Ok(())
        });
        fixture.go();
        if wire.is_empty() {
            fixture.channel.end_inbound();
        } else {
            let _ = fixture.channel.write_inbound(wire);
        }
        assert!(fixture.channel.is_closed());
        assert_eq!(fixture.calls(), ["inactive"]);
    }
}

#[test]
fn a_close_while_a_filter_waits_for_a_worker_waits_too() {
    let waker = Arc::default();
    let shared = Arc::clone(&waker);
    let mut fixture = Fixture::new(ChannelOptions::new(), move |ctx| {
        ctx.start_filter(Rekey { waker: Arc::clone(&shared), waits: false })
    });
    fixture.go();
    fixture.channel.write_inbound(b"K").unwrap();
    let channel = fixture.channel.channel();
    channel.write("bye".into()).unwrap();
    channel.close();
    let _ = fixture.channel.write_inbound(b"more\n");
    fixture.channel.run_pending();
    assert_eq!(fixture.channel.read_outbound(), &b""[..]);
    waker.lock().unwrap().take().unwrap().wake();
    fixture.channel.run_pending();
    assert_eq!(fixture.channel.read_outbound(), &b"bye\n"[..]);
    assert!(fixture.channel.is_closed());
    assert_eq!(fixture.calls(), ["inactive"]);
}

/// The end of the output follows the handshake, behind the messages.
#[test]
fn the_write_half_is_shut_down_when_the_handshake_is_complete() {
    for message in [false, true] {
        let mut fixture = Fixture::new(ChannelOptions::new().half_close(true), move |ctx| {
            ctx.start_filter(Xor::server())?;
            if message {
                ctx.write("bye".into())?;
            }
            ctx.shutdown_write();
            Ok(())
        });
        fixture.go();
        assert!(!fixture.channel.is_output_ended());
        assert_eq!(fixture.shake_hands(), if message { "bye\n" } else { "" });
        assert!(fixture.channel.is_output_ended() && fixture.peer.has_ended());
        fixture.receive("still read\n");
        assert_eq!(fixture.calls(), ["still read"]);
    }
}

#[test]
fn an_upgrade_of_a_channel_whose_peer_has_ended_its_stream_fails_at_once() {
    let mut fixture = Fixture::new(ChannelOptions::new().half_close(true), |_| Ok(()));
    fixture.go();
    fixture.channel.end_inbound();
    assert_eq!(fixture.calls(), ["end"]);
    let myself = fixture.myself.take().unwrap();
    myself.execute(|_, ctx| ctx.start_filter(Xor::server())).map_err(drop).unwrap();
    fixture.channel.run_pending();
    assert!(fixture.channel.is_closed());
    assert!(fixture.calls()[0].contains("cut off"), "the stream is truncated");
}

#[test]
fn a_message_that_waits_for_an_upgrade_behind_the_end_of_the_peer_does_not_delay_a_close() {
    let mut fixture = Fixture::new(ChannelOptions::new().half_close(true), |_| Ok(()));
    fixture.go();
    fixture.channel.end_inbound();
    let myself = fixture.myself.take().unwrap();
    let upgrade = |_: &mut Upgrading, ctx: &mut Context<'_, Upgrading>| {
        ctx.start_filter(Xor::server())?;
        ctx.write("bye".into())?;
        ctx.close();
        Ok(())
    };
    myself.execute(upgrade).map_err(drop).unwrap();
    fixture.channel.run_pending();
    assert!(fixture.channel.is_closed());
    assert_eq!(fixture.channel.read_outbound(), "");
}

/// Waits for its waker in its first `write`.
#[derive(Default)]
struct WaitsOnce {
    waker: Arc<Mutex<Option<FilterWaker>>>,
    writes: usize,
    waits: bool,
}

impl Filter for WaitsOnce {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        self.waits = false;
        ctx.deliver(input);
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        self.writes += 1;
        if self.writes == 1 {
            *self.waker.lock().unwrap() = Some(ctx.waker());
            self.waits = true;
        }
        Ok(())
    }

    fn state(&self) -> FilterState {
        if self.waits { FilterState::Waiting } else { FilterState::Established }
    }
}

#[test]
fn a_waker_is_heard_behind_the_end_of_the_peer() {
    for closes in [false, true] {
        let filter = WaitsOnce::default();
        let waker = filter.waker.clone();
        let handler = Upgrading {
            log: Log::default(),
            upgrade: Box::new(|_| Ok(())),
            myself: Rc::default(),
            reads: true,
        };
        let mut channel = EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(handler))
            .channel_options(ChannelOptions::new().half_close(true))
            .filter(filter)
            .build()
            .unwrap();
        channel.end_inbound();
        for line in ["one", "two"] {
            channel.channel().write(line.into()).unwrap();
            channel.run_pending();
        }
        assert_eq!(channel.read_outbound(), "one\n");
        if closes {
            channel.channel().close();
            channel.run_pending();
        }
        waker.lock().unwrap().take().unwrap().wake();
        channel.run_pending();
        assert_eq!(channel.read_outbound(), "two\n");
        assert_eq!(channel.is_closed(), closes);
    }
}

/// A filter that finds the end of its stream in the bytes of the last message.
struct LastLine {
    has_ended: bool,
}

impl Filter for LastLine {
    fn read(&mut self, ctx: &mut FilterContext<'_>, input: &mut [u8]) -> Result<usize> {
        ctx.deliver(input);
        self.has_ended = true;
        Ok(input.len())
    }

    fn write(&mut self, ctx: &mut FilterContext<'_>, plain: &[u8]) -> Result {
        ctx.output().extend_from_slice(plain);
        Ok(())
    }

    fn state(&self) -> FilterState {
        if self.has_ended { FilterState::InputEnded } else { FilterState::Established }
    }
}

/// Its handshake can never be answered, although the connection is open.
#[test]
fn a_filter_that_starts_behind_the_end_of_another_one_fails_at_once() {
    let log = Log::default();
    let handler = Upgrading {
        log: log.clone(),
        upgrade: Box::new(|ctx| ctx.start_filter(Xor::server())),
        myself: Rc::default(),
        reads: true,
    };
    let pipeline = Pipeline::codec(Line::new()).handler(handler);
    let filters: Vec<Box<dyn Filter>> = vec![Box::new(LastLine { has_ended: false })];
    let mut channel = EmbeddedChannel::new(pipeline.filters(filters));
    let _ = channel.write_inbound(b"go\n");
    channel.run_pending();
    assert!(channel.is_closed());
    let calls = log.take();
    assert_eq!((calls[0].as_str(), calls.len()), ("go", 3), "{calls:?}");
    assert!(calls[1].contains("cut off"), "{calls:?}");
}

#[test]
fn a_filter_that_waits_receives_no_further_piece_of_a_long_message() {
    let filter = WaitsOnce::default();
    let waker = filter.waker.clone();
    let log = Log::default();
    let handler = Upgrading { log, upgrade: Box::new(|_| Ok(())), myself: Rc::default(), reads: true };
    let mut channel = EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(handler))
        .filter(filter)
        .build()
        .unwrap();
    let message = vec![b'x'; 40 * 1024];
    channel.channel().write(message.clone().into()).unwrap();
    channel.run_pending();
    let first = channel.read_outbound();
    assert!(!first.is_empty() && first.len() < message.len(), "{}", first.len());
    waker.lock().unwrap().take().unwrap().wake();
    channel.run_pending();
    assert_eq!([first, channel.read_outbound()].concat(), [&message[..], b"\n"].concat());
}

/// The wait ends with the time of the limit, which only a loop that sleeps reaches.
#[test]
fn a_filter_that_is_woken_waits_for_the_traffic_limit_without_spinning() {
    let waker = Arc::default();
    let shared = Arc::clone(&waker);
    let mut fixture = Fixture::new(ChannelOptions::new(), move |ctx| {
        ctx.set_traffic(TrafficLimits::new().read(1).read_burst(5));
        ctx.start_filter(Rekey { waker: Arc::clone(&shared), waits: false })
    });
    fixture.go();
    fixture.channel.write_inbound(b"Kone\n").unwrap();
    fixture.channel.channel().write("bye".into()).unwrap();
    fixture.channel.run_pending();
    waker.lock().unwrap().take().unwrap().wake();
    fixture.channel.run_pending();
    fixture.channel.advance(Duration::from_secs(60));
    assert_eq!(fixture.channel.read_outbound(), "bye\n");
    assert_eq!(fixture.calls(), ["one"]);
}

/// Upgrades when it is writable again, in the middle of a flush.
#[derive(Default)]
struct UpgradesWhenWritable {
    replaces: bool,
    upgraded: bool,
}

fn upgrade(ctx: &mut Context<'_, UpgradesWhenWritable>) -> Result {
    ctx.write("ready".into())?;
    ctx.start_filter(Xor::server())?;
    ctx.write("secret".into())
}

impl Handler for UpgradesWhenWritable {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if self.upgraded { upgrade(ctx) } else { Ok(()) }
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
        ctx.write(LONG.into())
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if !writable || std::mem::replace(&mut self.upgraded, true) {
            return Ok(());
        }
        if self.replaces {
            let next = UpgradesWhenWritable { upgraded: true, replaces: false };
            return ctx.replace_pipeline(Pipeline::codec(Line::new()).handler(next));
        }
        upgrade(ctx)
    }
}

/// What is written before the upgrade is sent once, and nothing later is sent as plaintext.
#[test]
fn a_filter_that_starts_in_the_middle_of_a_flush_takes_over_at_once() {
    for replaces in [false, true] {
        for room in [None, Some(7)] {
            let handler = UpgradesWhenWritable { replaces, upgraded: false };
            let mut channel = EmbeddedChannel::builder(Pipeline::codec(Line::new()).handler(handler))
                .channel_options(marks())
                .build()
                .unwrap();
            channel.set_outbound_room(room);
            channel.write_inbound(b"go\n").unwrap();
            channel.set_outbound_room(None);
            channel.run_pending();
            assert_eq!(channel.read_outbound(), format!("{LONG}\nready\n"));
            let mut peer = Peer::new(1);
            channel.write_inbound(&peer.take()).unwrap();
            channel.run_pending();
            assert_eq!(peer.open(&channel.read_outbound()), b"secret\n");
        }
    }
}

/// Only messages that wait for the handshake are lost with it.
#[test]
fn a_close_behind_the_end_of_the_peer_is_clean_if_all_messages_precede_the_upgrade() {
    for waits in [false, true] {
        let mut fixture = Fixture::new(ChannelOptions::new().half_close(true), |_| Ok(()));
        fixture.go();
        fixture.channel.end_inbound();
        let myself = fixture.myself.take().unwrap();
        let upgrade = move |_: &mut Upgrading, ctx: &mut Context<'_, Upgrading>| {
            ctx.write("bye".into())?;
            ctx.start_filter(Xor::server())?;
            if waits {
                ctx.write("lost".into())?;
            }
            ctx.close();
            Ok(())
        };
        myself.execute(upgrade).map_err(drop).unwrap();
        fixture.channel.run_pending();
        assert!(fixture.channel.is_closed());
        assert_eq!(fixture.channel.read_outbound(), "bye\n");
        let cause = fixture.channel.channel().closed().wait().unwrap();
        assert_eq!(cause, if waits { CloseCause::Cut } else { CloseCause::Clean });
    }
}
