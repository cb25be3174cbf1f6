//! Half-open connections: one direction ends, the other continues (T-20 to T-23).

use crate::support::{
    loops::{end, metrics, one_loop, some_turns, turn_until},
    random::Random,
    recorder::{Event, read_bytes, silent},
    servers::{Settings, serve},
    tcp::{assert_same, connect, read_all},
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    Error,
    channel::{ChannelOptions, CloseCause},
    codec::RawBytes,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{
    io::{Read, Write},
    net::Shutdown,
};

fn half_close() -> Settings {
    Settings::channel(ChannelOptions::new().half_close(true))
}

#[test]
fn t_20_the_peer_sees_the_end_of_output_and_its_bytes_are_still_read() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    channel.write("goodbye".into()).unwrap();
    channel.shutdown_write();
    assert_eq!(read_all(&mut stream), b"goodbye", "earlier writes, then the end of the stream");
    assert!(channel.is_open() && !channel.is_writable());
    stream.write_all(b"still here").unwrap();
    assert_eq!(events.bytes(10), b"still here");
    assert!(channel.is_open());
    // The channel closes when both directions have ended.
    stream.shutdown(Shutdown::Write).unwrap();
    let told = events.until_inactive();
    assert!(!told.iter().any(|event| matches!(event, Event::ReadClosed | Event::Error(_))), "{told:?}");
    done(channel.closed()).unwrap();
    end(&group);
}

#[test]
fn t_21_after_the_end_of_output_writes_fail_and_shutdown_write_is_a_no_op() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), |ctx, event| {
        if *event == Event::Read("end".into()) {
            ctx.write("last".into())?;
            ctx.shutdown_write();
            ctx.shutdown_write();
            assert!(matches!(ctx.write("too late".into()), Err(Error::Closed)));
            assert!(!ctx.is_writable() && ctx.is_open());
        }
        Ok(())
    });
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    stream.write_all(b"end").unwrap();
    assert_eq!(read_all(&mut stream), b"last");
    let refused = channel.write("later".into()).unwrap_err();
    assert!(matches!(refused.error(), Error::Closed) && refused.value() == "later");
    channel.shutdown_write();
    drop(stream);
    events.until_inactive();
    channel.shutdown_write();
    end(&group);
}

/// T-22: one event, and the loop does not spin.
#[test]
fn half_close_one_event() {
    let group = one_loop();
    let (server, events) = serve(&group, half_close(), silent);
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    stream.write_all(b"request").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut told = Vec::new();
    while told.last() != Some(&Event::ReadClosed) {
        told.push(events.next());
    }
    assert_eq!(read_bytes(&told), b"request");
    assert!(channel.is_open() && channel.is_writable());
    // If the end of the stream arrived during the turn that read it, the poll reports it once more.
    some_turns(&group);
    let before = metrics(&group);
    some_turns(&group);
    let after = metrics(&group);
    assert_eq!((after.reads, after.wakes_io), (before.reads, before.wakes_io), "nothing more is read");
    assert_eq!(events.so_far(), []);
    for part in ["first ", "second ", "third"] {
        channel.write(part.into()).unwrap();
    }
    let mut answer = [0; 18];
    stream.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"first second third");
    channel.shutdown_write();
    assert_eq!(read_all(&mut stream), b"", "the end of the stream");
    assert_eq!(events.until_inactive(), [Event::Inactive]);
    end(&group);
}

#[test]
fn t_22_without_half_close_the_channel_closes_without_the_event() {
    let group = one_loop();
    let (server, events) = serve(&group, Settings::new(), silent);
    let stream = connect(server.local_address());
    stream.shutdown(Shutdown::Write).unwrap();
    assert!(!events.until_inactive().contains(&Event::ReadClosed));
    end(&group);
}

/// T-23: every byte is read before the event, in any read mode.
#[test]
fn fin_after_data_all_read() {
    const SIZE: usize = 256 * 1024;
    for options in [
        ChannelOptions::new(),
        ChannelOptions::new().read_size(1000).reads_per_turn(2),
        ChannelOptions::new().auto_read(false),
        ChannelOptions::new().auto_read(false).read_size(777).reads_per_turn(1),
    ] {
        let group = one_loop();
        let settings = Settings::channel(options.half_close(true));
        let (server, events) = serve(&group, settings, |ctx, event| {
            if !ctx.auto_read() && matches!(event, Event::Active(_) | Event::ReadComplete) {
                ctx.read();
            }
            if *event == Event::ReadClosed {
                ctx.close();
            }
            Ok(())
        });
        let sent = Random::new(7).bytes(SIZE);
        let mut stream = connect(server.local_address());
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let told = events.until_inactive();
        assert_same(&read_bytes(&told), &sent);
        let ends: Vec<usize> = told
            .iter()
            .enumerate()
            .filter(|(_, event)| **event == Event::ReadClosed)
            .map(|(n, _)| n)
            .collect();
        assert_eq!(ends, [told.len() - 2], "once, before inactive and after everything else");
        end(&group);
    }
}

#[test]
fn t_23_every_byte_precedes_the_end_in_reads_of_one_byte() {
    const SIZE: usize = 16 * 1024;
    for (auto_read, half_close) in [(true, true), (true, false), (false, true), (false, false)] {
        let group = one_loop();
        let options = ChannelOptions::new().read_size(1).reads_per_turn(2);
        let options = options.auto_read(auto_read).half_close(half_close);
        let (server, events) = serve(&group, Settings::channel(options), |ctx, event| {
            if !ctx.auto_read() && matches!(event, Event::Active(_) | Event::ReadComplete) {
                ctx.read();
            }
            Ok(())
        });
        let sent = Random::new(23).bytes(SIZE);
        let mut stream = connect(server.local_address());
        let channel = events.channel();
        stream.write_all(&sent).unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        let end_of_input = if half_close { Event::ReadClosed } else { Event::Inactive };
        let mut told = Vec::new();
        while told.last() != Some(&end_of_input) {
            told.push(events.next());
        }
        assert_same(&read_bytes(&told), &sent);
        let read_completes = told.iter().filter(|event| **event == Event::ReadComplete).count();
        let last_read = told.iter().rposition(|event| matches!(event, Event::Read(_))).unwrap();
        let after = &told[last_read + 1..told.len() - 1];
        // The last byte is followed by `read_complete`, and so is the end of the stream.
        assert!(after.iter().all(|event| *event == Event::ReadComplete) && after.len() <= 2, "{after:?}");
        if auto_read {
            assert!(read_completes < SIZE, "{read_completes} for {SIZE} bytes");
        } else {
            // Each request allows one read, so each byte is followed by `read_complete`.
            assert!(read_completes <= SIZE + 1, "{read_completes} for {SIZE} bytes");
        }
        if half_close {
            // The socket stays readable and the handler keeps requesting reads, but the loop does
            // not spin.
            let before = metrics(&group);
            some_turns(&group);
            let later = metrics(&group);
            assert_eq!((later.reads, later.wakes_io), (before.reads, before.wakes_io));
            assert_eq!(events.so_far(), []);
            assert!(channel.is_open());
            channel.close();
            assert_eq!(events.until_inactive(), [Event::Inactive]);
        }
        end(&group);
    }
}

#[test]
fn a_reset_after_the_end_of_input_is_reported() {
    let group = one_loop();
    let (server, events) = serve(&group, half_close(), silent);
    let stream = connect(server.local_address());
    let channel = events.channel();
    stream.shutdown(Shutdown::Write).unwrap();
    while events.next() != Event::ReadClosed {}
    // Unread bytes at the peer turn its close into a reset.
    channel.write(Bytes::from(vec![0; 100_000])).unwrap();
    turn_until(&group, |metrics| metrics.bytes_written > 0);
    drop(stream);
    channel.write(Bytes::from(vec![0; 100_000])).ok();
    let told = events.until_inactive();
    assert!(told.iter().any(|event| matches!(event, Event::Error(_))), "{told:?}");
    end(&group);
}

#[test]
fn input_shutdown_closes_by_default() {
    struct Plain;

    impl Handler for Plain {
        type Read = Bytes;
        type Write = Bytes;

        fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
            ctx.write(message)
        }
    }

    let pipeline = Pipeline::codec(RawBytes).handler(Plain);
    let options = ChannelOptions::new().half_close(true);
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.write_inbound(b"x").unwrap();
    channel.end_inbound();
    assert_eq!(channel.read_outbound(), "x");
    assert!(channel.is_closed());
}

#[test]
fn an_embedded_channel_ends_each_direction_separately() {
    struct Says;

    impl Handler for Says {
        type Read = Bytes;
        type Write = Bytes;

        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Ok(())
        }

        fn read_closed(&mut self, ctx: &mut Context<'_, Self>) -> Result {
            ctx.write("noted".into())
        }
    }

    let options = ChannelOptions::new().half_close(true);
    let new = || {
        let pipeline = Pipeline::codec(RawBytes).handler(Says);
        EmbeddedChannel::builder(pipeline).channel_options(options.clone()).build().unwrap()
    };
    let mut channel = new();
    channel.end_inbound();
    assert!(channel.is_open() && !channel.is_output_ended());
    assert_eq!(channel.read_outbound(), "noted");
    channel.channel().shutdown_write();
    channel.run_pending();
    assert!(channel.is_output_ended() && channel.is_closed());

    // Pending bytes are sent first.
    let mut channel = new();
    channel.set_outbound_room(Some(0));
    channel.channel().write("slow".into()).unwrap();
    channel.channel().shutdown_write();
    channel.run_pending();
    assert!(!channel.is_output_ended());
    channel.set_outbound_room(None);
    assert!(channel.is_output_ended() && channel.is_open());
    assert_eq!(channel.read_outbound(), "slow");
    channel.end_inbound();
    assert!(channel.is_closed());
}

#[test]
fn the_end_of_input_calls_read_closed_also_after_the_output_has_ended() {
    let group = one_loop();
    let (server, events) = serve(&group, half_close(), |ctx, event| {
        if *event == Event::Read("last".into()) {
            ctx.shutdown_write();
        }
        Ok(())
    });
    let mut stream = connect(server.local_address());
    let channel = events.channel();
    stream.write_all(b"last").unwrap();
    assert_eq!(read_all(&mut stream), b"", "our output has ended");
    stream.shutdown(Shutdown::Write).unwrap();
    let told = events.until_inactive();
    let ends = told.iter().filter(|event| **event == Event::ReadClosed).count();
    assert_eq!(ends, 1, "{told:?}");
    assert_eq!(done(channel.closed()).unwrap(), CloseCause::Clean);
    end(&group);
}
