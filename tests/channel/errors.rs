//! An error or a panic in any callback closes only the channel in which it happened.

use crate::over_each_transport;
use crate::support::{
    channels::embedded,
    codecs::Fussy,
    journal::Log,
    logs::{self, quiet_panics},
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    streams::{anywhere, connect},
    tcp::{ask, read_to_end},
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    Codec, Error, IdleState, Stage, StageContext,
    buffer::{OutboundBuffer, WaterMark},
    channel::{ChannelOptions, CloseCause, Overflow},
    codec::Line,
    error::PeerError,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    io::Write,
    sync::{Arc, Barrier, Mutex},
    time::Duration,
};

/// The place of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Factory,
    Active,
    Decode,
    StageRead,
    Read,
    Encode,
    StageWrite,
    ReadComplete,
    Writability,
    Idle,
    Scheduled,
    Executed,
    Error,
    Inactive,
    Drop,
    TaskDrop,
    Nowhere,
}

const PLACES: [Place; 16] = [
    Place::Factory,
    Place::Active,
    Place::Decode,
    Place::StageRead,
    Place::Read,
    Place::Encode,
    Place::StageWrite,
    Place::ReadComplete,
    Place::Writability,
    Place::Idle,
    Place::Scheduled,
    Place::Executed,
    Place::Error,
    Place::Inactive,
    Place::Drop,
    Place::TaskDrop,
];

/// A failure at one place.
#[derive(Clone)]
struct Fault {
    place: Place,
    panics: bool,
    log: Log,
}

impl Fault {
    fn at(&self, place: Place) -> Result {
        if self.place != place {
            return Ok(());
        }
        self.log.push("fault");
        assert!(!self.panics, "{place:?} on purpose");
        Err(Error::from(format!("{place:?} on purpose")))
    }
}

#[derive(Clone)]
struct FaultyCodec(Line, Fault);

impl Codec for FaultyCodec {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        let line = self.0.decode(input)?;
        line.map(|line| self.1.at(Place::Decode).map(|()| line)).transpose()
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        self.0.encode(message, output)?;
        self.1.at(Place::Encode)
    }
}

struct FaultyStage(Fault);

impl Stage for FaultyStage {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        self.0.at(Place::StageRead).map(|()| Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)?;
        self.0.at(Place::StageWrite)
    }
}

/// Echoes until its fault occurs.
struct Faulty(Fault);

impl Handler for Faulty {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let log = self.0.log.clone();
        ctx.channel().closed().on_complete(move |_| log.push("closed"));
        if self.0.place == Place::TaskDrop {
            let bomb = Bomb(self.0.clone());
            ctx.schedule(Duration::from_secs(3600), move |_, _| {
                let _bomb = bomb;
                Ok(())
            });
        }
        self.0.at(Place::Active)
    }

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match self.0.place {
            Place::Error | Place::Read => {
                self.0.at(Place::Read)?;
                return Err("the error before the error".into());
            }
            Place::Writability => return ctx.write(Bytes::from_static(&[b'x'; 100])),
            Place::Idle => ctx.set_idle_timeouts(IdleTimeouts::new().reader(Duration::from_millis(1))),
            Place::Scheduled => {
                ctx.schedule(Duration::ZERO, |me, _| me.0.at(Place::Scheduled));
            }
            Place::Executed => {
                let fault = self.0.clone();
                ctx.channel().execute(move |_| fault.at(Place::Executed))?;
            }
            Place::Inactive | Place::Drop | Place::TaskDrop => {
                ctx.close();
                return Ok(());
            }
            _ => {}
        }
        ctx.write(message)
    }

    fn read_complete(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.at(Place::ReadComplete)
    }

    fn writability_changed(&mut self, _: &mut Context<'_, Self>, _: bool) -> Result {
        self.0.at(Place::Writability)
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.0.at(Place::Idle)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.0.log.push(format!("error {error:#}"));
        self.0.at(Place::Error)?;
        // After a panic the channel is closed regardless of this callback.
        if !matches!(error, Error::Panicked(_)) {
            ctx.close();
        }
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.0.log.push("inactive");
        self.0.at(Place::Inactive)
    }
}

impl Drop for Faulty {
    fn drop(&mut self) {
        self.0.log.push("drop");
        if let (Place::Drop, Err(_)) = (self.0.place, self.0.at(Place::Drop)) {
            self.0.log.push("only a panic can make drop fail");
        }
    }
}

/// Triggers the fault when dropped.
struct Bomb(Fault);

impl Drop for Bomb {
    fn drop(&mut self) {
        let _ = self.0.at(Place::TaskDrop);
    }
}

fn pipeline(fault: Fault) -> Result<netwheel::Pipeline<Bytes>> {
    fault.at(Place::Factory)?;
    Ok(Pipeline::codec(FaultyCodec(Line::new(), fault.clone()))
        .stage(FaultyStage(fault.clone()))
        .handler(Faulty(fault)))
}

fn faulty_options() -> ChannelOptions {
    ChannelOptions::new().water_mark(WaterMark::new(10, 50).unwrap())
}

/// Checks the log of a channel with this fault.
fn check(fault: &Fault) {
    let log = fault.log.all();
    let count = |what: &str| log.iter().filter(|e| e.starts_with(what)).count();
    let place = fault.place;
    assert_eq!(count("fault"), 1, "{place:?}: {log:?}");
    if place == Place::Factory {
        assert_eq!(log, ["fault"], "without a pipeline no callback is called");
        return;
    }
    assert_eq!(count("inactive"), 1, "{place:?}: {log:?}");
    assert_eq!(count("closed"), 1, "{place:?}: {log:?}");
    assert_eq!(count("drop"), 1, "{place:?}: {log:?}");
    let errors = usize::from(!matches!(place, Place::Inactive | Place::Drop | Place::TaskDrop));
    assert_eq!(count("error"), errors, "at most one error: {place:?}: {log:?}");
    if errors == 1 && place != Place::Error {
        let prefix = if fault.panics { "error panicked: " } else { "error " };
        assert!(log.contains(&format!("{prefix}{place:?} on purpose")), "{log:?}");
    }
    let at = |what: &str| log.iter().position(|e| e.starts_with(what)).unwrap();
    assert!(at("closed") < at("inactive") && at("inactive") < at("drop"), "{place:?}: {log:?}");
}

fn faults() -> impl Iterator<Item = Fault> {
    PLACES.into_iter().flat_map(|place| {
        let fault = move |panics| Fault { place, panics, log: Log::new() };
        [fault(false), fault(true)]
    })
}

/// C-27 with a difference: the error of a callback goes to `error` of the same handler, once, and
/// to no other handler. The default closes the channel, while Netty's leaves it open.
fn a_failure_closes_its_own_connection_and_no_other_of_the_loop() {
    quiet_panics();
    let group = one_loop();
    let next = Arc::new(Mutex::new(Fault { place: Place::Nowhere, panics: false, log: Log::new() }));
    let factory = next.clone();
    let server = ServerBootstrap::new(&group)
        .channel_options(faulty_options())
        .pipeline(move |_| {
            let fault = factory.lock().unwrap().clone();
            pipeline(fault)
        })
        .bind(anywhere())
        .unwrap();
    let mut healthy = connect(&server);
    ask(&mut healthy, "before\n", "before\n");
    for fault in faults() {
        *next.lock().unwrap() = fault.clone();
        let mut victim = connect(&server);
        // The connection may be closed before these bytes arrive.
        let _ = victim.write_all(b"go\n");
        read_to_end(&mut victim);
        fault.log.wait_for(if fault.place == Place::Factory { "fault" } else { "drop" });
        ask(&mut healthy, "still here\n", "still here\n");
        check(&fault);
    }
    assert_eq!(group.next().metrics().channels, 1, "the healthy channel remains");
    // The loop still accepts connections.
    *next.lock().unwrap() = Fault { place: Place::Nowhere, panics: false, log: Log::new() };
    ask(&mut connect(&server), "new\n", "new\n");
    end(&group);
}

#[test]
fn failures_of_embedded_channels_have_the_same_effect() {
    quiet_panics();
    for fault in faults() {
        // Only bootstraps have a factory, and the test itself drops the handler of an embedded
        // channel.
        if matches!(fault.place, Place::Factory | Place::Drop) {
            continue;
        }
        let channel = pipeline(fault.clone()).unwrap();
        let mut channel =
            EmbeddedChannel::builder(channel).channel_options(faulty_options()).build().unwrap();
        let _ = channel.write_inbound(b"go\n");
        channel.advance(Duration::from_millis(2));
        assert!(channel.is_closed(), "{:?}", fault.place);
        drop(channel);
        check(&fault);
    }
}

// Netty's default leaves the channel open. This crate's default logs the error and closes.
/// C-29 with a difference: an unhandled error is logged once as a warning and closes the channel.
#[test]
fn an_error_closes_the_channel_by_default() {
    logs::collect();
    struct Default;
    impl Handler for Default {
        type Read = Bytes;
        type Write = Bytes;
        fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
            ctx.write(message)?;
            Err("left to the default".into())
        }
    }
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Default));
    channel.write_inbound(b"one\ntwo\n").unwrap();
    assert!(channel.is_closed());
    assert_eq!(channel.read_outbound(), "one\n", "what was written before is sent, nothing more is read");
    let lines = logs::lines_with("left to the default");
    assert!(matches!(&lines[..], [line] if line.starts_with("WARN channel")), "{lines:?}");
}

type Read = fn(&mut Context<'_, Fails>, Bytes) -> Result;

/// A handler that leaves errors to the default.
struct Fails(Read);

impl Handler for Fails {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        self.0(ctx, message)
    }

    fn writability_changed(&mut self, ctx: &mut Context<'_, Self>, writable: bool) -> Result {
        if ctx.attributes().get::<Unwritable>().is_some() {
            panic!("writable {writable}, logged once on purpose");
        }
        Ok(())
    }
}

/// Marks a channel whose handler panics in `writability_changed`.
struct Unwritable;

#[test]
fn a_panic_is_logged_once() {
    quiet_panics();
    logs::collect();
    let cases: [(&str, Read); 3] = [
        ("read, logged once", |_, _| panic!("read, logged once on purpose")),
        ("task, logged once", |ctx, _| {
            ctx.schedule(Duration::ZERO, |_, _| panic!("task, logged once on purpose"));
            Ok(())
        }),
        ("writable false, logged once", |ctx, message| {
            ctx.attributes_mut().insert(Unwritable);
            (0..3).try_for_each(|_| ctx.write(message.repeat(15_000).into()))
        }),
    ];
    for (text, read) in cases {
        let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Fails(read)));
        channel.set_outbound_room(Some(0));
        let _ = channel.write_inbound(b"go\n");
        channel.advance(Duration::from_millis(2));
        let lines = logs::lines_with(text);
        let [line] = &lines[..] else { panic!("{text}: {lines:?}") };
        assert!(line.starts_with("ERROR channel") && line.contains("closing this channel"), "{line}");
    }
}

#[test]
fn the_panic_of_offloaded_work_is_logged_by_the_handler_that_fails_with_it() {
    quiet_panics();
    logs::collect();
    let read = |ctx: &mut Context<'_, Fails>, _: Bytes| {
        ctx.offload(|| panic!("work, logged once on purpose"), |_, _, result: Result<()>| result)?;
        Ok(())
    };
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Fails(read)));
    channel.write_inbound(b"go\n").unwrap();
    channel.run_pending();
    assert!(channel.is_closed());
    let lines = logs::lines_with("work, logged once");
    assert!(matches!(&lines[..], [line] if line.starts_with("WARN channel")), "{lines:?}");
}

#[test]
fn a_slow_peer_is_logged_once() {
    logs::collect();
    let options = ChannelOptions::new().max_outbound(4321).overflow(Overflow::Close);
    for is_queued in [false, true] {
        let before = logs::lines_with("the limit of 4321 ").len();
        let mut channel = EmbeddedChannel::builder(
            Pipeline::codec(Line::new()).handler(Fails(|ctx, message| ctx.write(message))),
        )
        .channel_options(options.clone())
        .build()
        .unwrap();
        channel.set_outbound_room(Some(0));
        let handle = channel.channel();
        let line = Bytes::from(vec![b'x'; 1000]);
        while channel.is_open() {
            if is_queued {
                let _ = handle.write(line.clone());
                channel.run_pending();
            } else {
                let _ = channel.write_inbound(&[&line[..], b"\n"].concat());
            }
        }
        let lines = logs::lines_with("the limit of 4321 ").split_off(before);
        assert!(matches!(&lines[..], [line] if line.contains("does not keep up")), "{is_queued}: {lines:?}");
    }
}

#[test]
fn a_handled_error_leaves_the_channel_open_wherever_it_occurred() {
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(
        Pipeline::codec(Fussy::new()).idle(IdleTimeouts::new().reader(Duration::from_secs(1))).handler(
            Recorder::exactly(&log, |ctx, call| match call {
                Event::Error(_) => Ok(()),
                Event::Active(_) => {
                    ctx.schedule(Duration::from_millis(1), |_, _| Err("task".into()));
                    Err("active".into())
                }
                Event::Read(message) if message == "x" => ctx.write("x".into()),
                other => Err(Error::from(format!("in {other}"))),
            }),
        ),
    );
    channel.write_inbound(b"one\nbad\n").unwrap();
    channel.channel().execute(|_| Err("executed".into())).unwrap();
    channel.channel().write("fail".into()).unwrap();
    channel.advance(Duration::from_secs(1));
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(
        log.take(),
        [
            "active",
            "error active",
            "read one",
            "error in read one",
            "error the peer violated the protocol: malformed message: bad",
            "read_complete",
            "error in read_complete",
            "error executed",
            // The next message is queued, and its codec gives no estimate of its size.
            "writable false",
            "error in writable false",
            "error the message cannot be encoded: on purpose",
            "writable true",
            "error in writable true",
            "error task",
            "idle Reader idle, first",
            "error in idle Reader idle, first",
            "read x",
            "read_complete",
            "error in read_complete",
        ]
    );
    assert!(channel.is_open());
    assert_eq!(channel.read_outbound(), "x\n");
}

/// C-28 with a difference: a failing `error` callback is logged once and closes the channel.
#[test]
fn an_error_in_error_is_not_reported_again_and_closes() {
    quiet_panics();
    logs::collect();
    for (panics, text) in [(false, "the error callback fails"), (true, "the error callback panics")] {
        let log = Log::new();
        let mut channel = embedded(Recorder::exactly(&log, move |_, call| match call {
            Event::Error(_) if panics => panic!("{text} on purpose"),
            Event::Error(_) => Err(format!("{text} on purpose").into()),
            Event::Read(_) => Err("first".into()),
            _ => Ok(()),
        }));
        channel.write_inbound(b"one\ntwo\n").unwrap();
        assert_eq!(log.take(), ["active", "read one", "error first", "inactive", "drop"]);
        let lines = logs::lines_with(text);
        let [line] = &lines[..] else { panic!("logged once: {lines:?}") };
        assert!(line.starts_with("WARN channel") && line.contains("in error: "), "{line}");
    }
}

/// C-28: the second of two panics with the same words is a failure of its own.
#[test]
fn a_panic_in_error_is_logged_even_if_it_repeats_the_words_of_the_first() {
    quiet_panics();
    logs::collect();
    let log = Log::new();
    let mut channel = embedded(Recorder::exactly(&log, |_, call| match call {
        Event::Error(_) | Event::Read(_) => panic!("the same words twice on purpose"),
        _ => Ok(()),
    }));
    channel.write_inbound(b"one\n").unwrap();
    let lines = logs::lines_with("the same words twice");
    let [first, second] = &lines[..] else { panic!("logged twice: {lines:?}") };
    assert!(first.starts_with("ERROR") && second.starts_with("WARN"), "{lines:?}");
    assert!(second.contains("in error: "), "{second}");
}

#[test]
fn a_panic_in_the_middle_of_encoding_discards_that_message_only() {
    quiet_panics();
    let log = Log::new();
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(Recorder::exactly(&log, |ctx, call| {
            match call {
                Event::Read(_) => {
                    ctx.write("before".into())?;
                    ctx.write("panic".into())
                }
                Event::Error(_) => {
                    // Nothing of the message whose encoding has panicked precedes this one.
                    ctx.write("sorry".into())?;
                    ctx.flush();
                    Ok(())
                }
                _ => Ok(()),
            }
        })));
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.take(), ["active", "read go", "error panicked: encode on purpose", "inactive", "drop"]);
    assert_eq!(channel.read_outbound(), "before\nsorry\n");
}

#[derive(Debug, Clone, Copy)]
enum Reply {
    WriteAndFail,
    FlushAndFail,
    CloseWith,
    CloseWithAndFail,
    Write,
    Panic,
}

/// Fails in `read`, and replies in `error`.
struct Replies {
    reply: Reply,
    panics: bool,
}

impl Handler for Replies {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        assert!(!self.panics, "read on purpose");
        Err("read on purpose".into())
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        let reason = Bytes::from_static(b"reason");
        match self.reply {
            Reply::WriteAndFail => ctx.write(reason).and(Err(error)),
            Reply::FlushAndFail => {
                ctx.write(reason)?;
                ctx.flush();
                Err(error)
            }
            Reply::CloseWith => ctx.close_with(reason),
            Reply::CloseWithAndFail => ctx.close_with(reason).and(Err(error)),
            Reply::Write => {
                ctx.write(reason)?;
                ctx.close();
                Ok(())
            }
            Reply::Panic => {
                ctx.write(reason)?;
                panic!("error on purpose")
            }
        }
    }
}

#[test]
fn what_error_writes_is_sent_whatever_it_returns_and_after_a_panic() {
    use Reply::{CloseWith, CloseWithAndFail, FlushAndFail, Panic, Write, WriteAndFail};
    quiet_panics();
    for panics in [false, true] {
        for reply in [WriteAndFail, FlushAndFail, CloseWith, CloseWithAndFail, Write, Panic] {
            let handler = Replies { reply, panics };
            let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(handler));
            let closed = channel.channel().closed();
            channel.write_inbound(b"go\n").unwrap();
            assert!(channel.is_closed(), "{reply:?}");
            assert_eq!(channel.read_outbound(), "reason\n", "{reply:?} after a panic: {panics}");
            assert_eq!(closed.wait().unwrap(), CloseCause::Failed);
        }
    }
}

fn over_tcp_a_panic_in_the_middle_of_encoding_discards_that_message_only() {
    quiet_panics();
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| {
            Pipeline::codec(Fussy::new()).handler(Recorder::exactly(&Log::new(), |ctx, call| match call {
                Event::Read(_) => {
                    ctx.write("before".into())?;
                    ctx.write("panic".into())
                }
                Event::Error(_) => {
                    ctx.write("sorry".into())?;
                    ctx.flush();
                    Ok(())
                }
                _ => Ok(()),
            }))
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    peer.write_all(b"go\n").unwrap();
    assert_eq!(read_to_end(&mut peer), b"before\nsorry\n");
    end(&group);
}

#[test]
fn a_panic_while_decoding_closes_the_channel() {
    quiet_panics();
    let log = Log::new();
    let handler = Recorder::exactly(&log, |_, _| Ok(()));
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(handler));
    channel.write_inbound(b"one\nburst\ntwo\n").unwrap();
    assert_eq!(log.take(), ["active", "read one", "error panicked: decode on purpose", "inactive", "drop"]);
}

#[test]
fn an_error_tells_peer_errors_from_others() {
    let log = Log::new();
    let blamed = log.clone();
    struct Blame(Log);
    impl Handler for Blame {
        type Read = Bytes;
        type Write = Bytes;
        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Err(std::io::Error::from(std::io::ErrorKind::NotFound).into())
        }
        fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
            let malformed = matches!(&error, Error::Peer(PeerError::Malformed(_)));
            self.0.push(format!("peer {} malformed {malformed} kind {:?}", error.is_peer(), error.io_kind()));
            Ok(())
        }
    }
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Fussy::new()).handler(Blame(blamed)));
    channel.write_inbound(b"bad\nfile\n").unwrap();
    assert_eq!(
        log.take(),
        ["peer true malformed true kind None", "peer false malformed false kind Some(NotFound)"]
    );
}

fn a_panicking_close_callback_stops_neither_the_loop_nor_other_callbacks() {
    quiet_panics();
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let inner = handler_log.clone();
            Pipeline::codec(Line::new()).handler(Recorder::with(&handler_log, move |ctx, call| {
                match call {
                    Event::Active(_) => {
                        let log = inner.clone();
                        ctx.channel().closed().on_complete(|_| panic!("callback on purpose"));
                        ctx.channel().closed().on_complete(move |_| log.push("closed"));
                    }
                    Event::Read(message) => ctx.write(message.clone())?,
                    _ => {}
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    drop(connect(&server));
    log.wait_for("drop");
    let all = log.take();
    assert_eq!(all[all.len() - 3..], ["closed", "inactive", "drop"]);
    ask(&mut connect(&server), "alive\n", "alive\n");
    end(&group);
}

#[test]
fn a_panicking_connect_callback_does_not_stop_the_loop() {
    quiet_panics();
    let group = one_loop();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new())));
    // Block the loop until the callback is registered. Otherwise the callback might run on this
    // thread.
    let gate = Arc::new(Barrier::new(2));
    let inside = gate.clone();
    let hold = move || {
        inside.wait();
    };
    group.next().execute(hold).unwrap();
    client.connect(address).on_complete(|_| panic!("callback on purpose"));
    gate.wait();
    done(client.connect(address)).unwrap();
    end(&group);
}

#[test]
fn idle_detection_continues_after_a_failing_idle_callback() {
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(
        Pipeline::codec(Line::new()).idle(IdleTimeouts::new().writer(Duration::from_secs(1))).handler(
            Recorder::exactly(&log, |_, call| match call {
                Event::Idle(event) if event.state == IdleState::Writer => Err("idle".into()),
                _ => Ok(()),
            }),
        ),
    );
    channel.advance(Duration::from_secs(2));
    assert_eq!(
        log.take(),
        ["active", "idle Writer idle, first", "error idle", "idle Writer idle", "error idle"]
    );
}

over_each_transport! {
    a_failure_closes_its_own_connection_and_no_other_of_the_loop,
    over_tcp_a_panic_in_the_middle_of_encoding_discards_that_message_only,
    a_panicking_close_callback_stops_neither_the_loop_nor_other_callbacks,
}
