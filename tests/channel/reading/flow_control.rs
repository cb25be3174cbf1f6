//! Reading on demand: the effect of one request, one message at a time, and the size of reads.
//! Covers C-61 to C-64, D-09, D-12, H-10 to H-12 and T-32, as built-in features of a channel.

use crate::support::{
    channels::{embedded_with, read, set_auto_read},
    journal::Log,
    loops::{block, end, metrics, one_loop, some_turns, turn_until},
    random::Random,
    recorder::{Event, Recorder, hand_over, read_bytes, silent, stop_reading},
    servers::{Settings, serve, serve_with},
    tcp::{ANY_PORT, assert_same, connect},
    wait::receive,
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::{Line, RawBytes},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{io::Write, net::Shutdown};

fn on_demand() -> ChannelOptions {
    ChannelOptions::new().auto_read(false)
}

fn one_by_one() -> ChannelOptions {
    on_demand().one_message_per_read(true)
}

/// Requests a read from outside the handler.
fn ask(channel: &mut EmbeddedChannel<Bytes>) {
    read(&channel.channel());
    channel.run_pending();
}

fn message(text: &'static str) -> Event {
    Event::Read(text.into())
}

// ---- one message at a time: H-10 to H-12, D-12 -------------------------------------------------

#[test]
fn h_10_each_request_releases_exactly_one_message() {
    let log = Log::new();
    let mut channel = embedded_with(&one_by_one(), Recorder::new(&log));
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    assert_eq!(log.take(), ["active"]);
    for expected in ["read 1", "read 2", "read 3"] {
        ask(&mut channel);
        assert_eq!(log.take(), [expected, "read_complete"]);
        channel.run_pending();
        assert_eq!(log.take(), [""; 0]);
    }
    // No message remains: the request waits for bytes and delivers the first message of these.
    ask(&mut channel);
    assert_eq!(log.take(), [""; 0]);
    channel.write_inbound(b"4\n5\n").unwrap();
    assert_eq!(log.take(), ["read 4", "read_complete"]);
}

#[test]
fn h_10_without_the_option_one_request_releases_all_messages_of_its_bytes() {
    let log = Log::new();
    let mut channel = embedded_with(&on_demand(), Recorder::new(&log));
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    ask(&mut channel);
    assert_eq!(log.take(), ["active", "read 1", "read 2", "read 3", "read_complete"]);
}

/// H-10: a request does not read the socket while messages are buffered. Without requests the loop
/// does not spin.
#[test]
fn h_10_over_tcp_buffered_messages_are_delivered_before_the_socket_is_read() {
    let group = one_loop();
    let (server, events) = serve_with(&group, Settings::channel(one_by_one()), Line::new(), silent);
    let mut stream = connect(server.local_address());
    let child = events.channel();
    let release = block(&group);
    stream.write_all(b"1\n2\n3\n4").unwrap();
    drop(release);
    read(&child);
    assert_eq!(events.next(), message("1"));
    assert_eq!(events.next(), Event::ReadComplete);
    let reads = metrics(&group).reads;
    for expected in ["2", "3"] {
        some_turns(&group);
        assert_eq!(events.so_far(), []);
        read(&child);
        assert_eq!(events.next(), message(expected));
        assert_eq!(events.next(), Event::ReadComplete);
    }
    assert_eq!(metrics(&group).reads, reads);
    // The loop sleeps although bytes are buffered: only the waker wakes it.
    let woken = metrics(&group).wakes_waker;
    turn_until(&group, |metrics| metrics.wakes_waker > woken + 2);
    // A partial message is buffered and the socket is known to be empty. The request stays pending
    // until the message is complete.
    read(&child);
    some_turns(&group);
    assert!(events.so_far().iter().all(|event| *event == Event::ReadComplete));
    assert_eq!(metrics(&group).reads, reads);
    stream.write_all(b"\n5\n").unwrap();
    assert_eq!(events.next(), message("4"));
    assert_eq!(events.next(), Event::ReadComplete);
    some_turns(&group);
    assert_eq!(events.so_far(), []);
    end(&group);
}

#[test]
fn h_11_with_auto_read_all_messages_are_delivered() {
    let log = Log::new();
    let options = ChannelOptions::new().one_message_per_read(true);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    assert_eq!(log.take(), ["active", "read 1", "read 2", "read 3", "read_complete"]);
}

#[test]
fn h_11_turning_auto_read_off_in_each_read_delivers_one_message_at_a_time() {
    for options in [ChannelOptions::new(), ChannelOptions::new().one_message_per_read(true)] {
        let log = Log::new();
        let mut channel = embedded_with(&options, Recorder::with(&log, stop_reading));
        channel.write_inbound(b"1\n2\n3\n").unwrap();
        assert_eq!(log.take(), ["active", "read 1", "read_complete"]);
        for expected in ["read 2", "read 3"] {
            set_auto_read(&channel.channel(), true);
            channel.run_pending();
            assert_eq!(log.take(), [expected, "read_complete"]);
        }
    }
}

/// H-11, C-64: a request within `read` applies to the next message, which is delivered afterwards
/// and in order.
#[test]
fn c_64_requests_within_reads_neither_nest_nor_change_the_order() {
    for options in [on_demand(), one_by_one(), ChannelOptions::new()] {
        let log = Log::new();
        let inner = log.clone();
        let mut channel = embedded_with(
            &options,
            Recorder::with(&log, move |ctx, call| {
                match call {
                    Event::Active(_) => ctx.read(),
                    Event::Read(message) => {
                        ctx.read();
                        ctx.read();
                        inner.push(format!("end of {}", String::from_utf8_lossy(message)));
                    }
                    _ => {}
                }
                Ok(())
            }),
        );
        channel.write_inbound(b"A\nB\nC").unwrap();
        channel.write_inbound(b"\n").unwrap();
        let told: Vec<_> = log.take().into_iter().filter(|e| e != "read_complete").collect();
        assert_eq!(told, ["active", "read A", "end of A", "read B", "end of B", "read C", "end of C"]);
    }
}

/// H-12: turning auto-read on delivers all buffered messages.
#[test]
fn h_12_turning_auto_read_on_delivers_buffered_messages() {
    let log = Log::new();
    let mut channel = embedded_with(&one_by_one(), Recorder::new(&log));
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    ask(&mut channel);
    log.take();
    set_auto_read(&channel.channel(), true);
    channel.run_pending();
    assert_eq!(log.take(), ["read 2", "read 3", "read_complete"]);
}

/// H-12: a channel closed locally delivers none of its buffered messages.
#[test]
fn h_12_a_close_drops_buffered_messages() {
    let log = Log::new();
    let mut channel = embedded_with(&one_by_one(), Recorder::new(&log));
    channel.write_inbound(b"1\n2\n3\n").unwrap();
    ask(&mut channel);
    channel.close();
    assert_eq!(log.take(), ["active", "read 1", "read_complete", "inactive", "drop"]);
}

#[test]
fn d_12_each_request_delivers_one_message_and_the_end_follows_the_last() {
    let log = Log::new();
    let mut channel = embedded_with(&one_by_one(), Recorder::new(&log));
    channel.write_inbound(b"C\nB\n").unwrap();
    channel.end_inbound();
    assert_eq!(log.take(), ["active"]);
    ask(&mut channel);
    assert_eq!(log.take(), ["read C", "read_complete"]);
    ask(&mut channel);
    assert_eq!(log.take(), ["read B", "read_complete"]);
    ask(&mut channel);
    assert_eq!(log.take(), ["read_complete", "inactive", "drop"]);
}

// ---- D-09 --------------------------------------------------------------------------------------

/// D-09: a request stays pending until a complete message has been delivered.
#[test]
fn d_09_a_request_stays_pending_until_there_is_a_message() {
    for options in [on_demand(), one_by_one()] {
        let log = Log::new();
        let mut channel = embedded_with(&options, Recorder::new(&log));
        ask(&mut channel);
        channel.write_inbound(b"ha").unwrap();
        channel.write_inbound(b"lf").unwrap();
        assert_eq!(log.take(), ["active", "read_complete", "read_complete"]);
        channel.write_inbound(b"\nne").unwrap();
        assert_eq!(log.take(), ["read half", "read_complete"]);
        channel.write_inbound(b"xt\n").unwrap();
        assert_eq!(log.take(), [""; 0]);
        ask(&mut channel);
        assert_eq!(log.take(), ["read next", "read_complete"]);
    }
}

/// D-09: turning auto-read off cancels a pending request.
#[test]
fn d_09_turning_auto_read_off_cancels_a_pending_request() {
    let log = Log::new();
    let mut channel = embedded_with(
        &on_demand(),
        Recorder::with(&log, |ctx, call| {
            if *call == Event::ReadComplete {
                ctx.set_auto_read(false);
            }
            Ok(())
        }),
    );
    ask(&mut channel);
    channel.write_inbound(b"ha").unwrap();
    channel.write_inbound(b"lf\n").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
}

/// A stage that drops the message `no`.
struct Swallow;

impl Stage for Swallow {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok((message != "no").then_some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }
}

/// D-09: a message dropped by a stage does not complete the request.
#[test]
fn d_09_over_tcp_a_request_stays_pending_across_partial_and_dropped_messages() {
    let group = one_loop();
    let log = Log::new();
    let (hand_over, channels) = hand_over();
    let inner = log.clone();
    let server = ServerBootstrap::new(&group)
        .channel_options(one_by_one())
        .pipeline(move |_| {
            let handler = Recorder::with(&inner, hand_over.clone());
            Pipeline::codec(Line::new()).stage(Swallow).handler(handler)
        })
        .bind(ANY_PORT)
        .unwrap();
    let mut stream = connect(server.local_address());
    let channel = receive(&channels);
    read(&channel);
    stream.write_all(b"no\nno\nn").unwrap();
    log.wait_for("read_complete");
    stream.write_all(b"o\nye").unwrap();
    log.wait_until("a second read_complete", |log| log.iter().filter(|e| *e == "read_complete").count() == 2);
    stream.write_all(b"s\nyes\n").unwrap();
    log.wait_for("read yes");
    some_turns(&group);
    assert_eq!(log.count("read yes"), 1);
    end(&group);
}

// ---- T-32 --------------------------------------------------------------------------------------

/// T-32 with a difference: with auto-read off, neither bytes nor the end of the stream are read
/// without a request. No byte is lost, and the end comes after the last byte.
#[test]
fn t_32_a_closed_peer_is_read_to_the_end_on_request() {
    let group = one_loop();
    for by_request in [true, false] {
        let settings = Settings::channel(on_demand().read_size(10));
        let (server, events) = serve(&group, settings, silent);
        let mut stream = connect(server.local_address());
        let child = events.channel();
        let before = metrics(&group);
        let sent = Random::new(32).bytes(100);
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Both).unwrap();
        drop(stream);
        turn_until(&group, |metrics| metrics.wakes_io > before.wakes_io);
        some_turns(&group);
        assert_eq!(events.so_far(), []);
        assert_eq!(metrics(&group).reads, before.reads);

        let mut got = Vec::new();
        if by_request {
            for _ in 0..10 {
                read(&child);
                let bytes = events.message();
                assert_eq!(bytes.len(), 10);
                got.extend_from_slice(&bytes);
            }
            read(&child);
        } else {
            set_auto_read(&child, true);
            got = events.bytes(100);
        }
        assert_same(&got, &sent);
        assert!(read_bytes(&events.until_inactive()).is_empty());
    }
    end(&group);
}

/// T-32: buffered messages are delivered before the end, one at a time if so configured.
#[test]
fn t_32_buffered_messages_come_before_the_end() {
    let group = one_loop();
    let (server, events) = serve_with(&group, Settings::channel(one_by_one()), Line::new(), silent);
    let mut stream = connect(server.local_address());
    let child = events.channel();
    stream.write_all(b"1\n2\n3\n").unwrap();
    drop(stream);
    for expected in ["1", "2", "3"] {
        read(&child);
        assert_eq!(events.next(), message(expected));
        assert_eq!(events.next(), Event::ReadComplete);
    }
    read(&child);
    let told = events.until_inactive();
    assert_eq!(told, [Event::ReadComplete, Event::Inactive]);
    end(&group);
}

// ---- the size of a read: C-61 to C-63 ----------------------------------------------------------

/// C-61, C-62 with a difference: the size of a read is fixed, not a guess that adapts to previous
/// reads.
#[test]
fn c_61_a_read_takes_all_available_bytes_initially_and_after_small_reads() {
    const MUCH: usize = 20_000;
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let mut stream = connect(server.local_address());
    events.channel();
    for small in [0, 20] {
        for _ in 0..small {
            stream.write_all(b"x").unwrap();
            assert_eq!(events.message(), "x");
        }
        let release = block(&group);
        let sent = Random::new(61).bytes(MUCH);
        stream.write_all(&sent).unwrap();
        drop(release);
        let first = events.message();
        assert_eq!(first.len(), MUCH, "after {small} small reads");
        assert_same(&first, &sent);
    }
    end(&group);
}

/// C-61: a burst continues while reads are full, and ends with a partial read.
#[test]
fn c_61_a_burst_continues_while_reads_are_full() {
    let group = one_loop();
    let settings = Settings::channel(ChannelOptions::new().read_size(1000));
    let (server, events) = serve(&group, settings, silent);
    let mut stream = connect(server.local_address());
    events.channel();
    let before = metrics(&group).reads;
    let release = block(&group);
    stream.write_all(&[b'.'; 3500]).unwrap();
    drop(release);
    let sizes: Vec<_> = (0..4).map(|_| events.message().len()).collect();
    assert_eq!(sizes, [1000, 1000, 1000, 500]);
    assert_eq!(events.next(), Event::ReadComplete);
    some_turns(&group);
    assert_eq!(metrics(&group).reads - before, 4, "no empty read");
    end(&group);
}

/// C-63 with a difference: `read_size` is validated when the channel is built, and limits every
/// read.
#[test]
fn c_63_the_read_size_has_a_range_and_limits_each_read() {
    for (size, allowed) in [(0, false), (1, true), (65_536, true), (65_537, false)] {
        let log = Log::new();
        let pipeline = Pipeline::codec(RawBytes).handler(Recorder::new(&log));
        let made =
            EmbeddedChannel::builder(pipeline).channel_options(ChannelOptions::new().read_size(size)).build();
        let Ok(mut channel) = made else {
            assert!(!allowed, "{size}");
            continue;
        };
        assert!(allowed, "{size}");
        channel.write_inbound(b"abc").unwrap();
        let first = if size == 1 { "read a" } else { "read abc" };
        assert_eq!(log.all()[1], first);
    }
}
