//! Bursts of reads and how they end; end of stream; errors (C-58 to C-60).

use crate::over_each_transport;
use crate::reading::{raw, serve};
use crate::support::{
    channels::embedded,
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    streams::{self, connect},
    tcp::read_to_end,
    wait::done,
};
use netwheel::{channel::ChannelOptions, codec::RawBytes, prelude::*};
use std::{
    io::{self, Write},
    net::Shutdown,
    time::Duration,
};

#[test]
fn c_58_a_burst_of_reads_has_one_read_complete() {
    let log = Log::new();
    let options = ChannelOptions::new().read_size(2);
    let mut channel = raw(&options, Recorder::new(&log));
    channel.write_inbound(b"abcde").unwrap();
    assert_eq!(log.take(), ["active", "read ab", "read cd", "read e", "read_complete"]);
    channel.write_inbound(b"f").unwrap();
    assert_eq!(log.take(), ["read f", "read_complete"]);
}

#[test]
fn c_58_a_burst_ends_when_auto_read_is_turned_off() {
    let log = Log::new();
    let options = ChannelOptions::new().read_size(2);
    let mut channel = raw(
        &options,
        Recorder::with(&log, |ctx, call| {
            if let Event::Read(message) = call {
                ctx.set_auto_read(message != "cd");
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"abcdef").unwrap();
    assert_eq!(log.take(), ["active", "read ab", "read cd", "read_complete"]);
}

fn c_58_over_tcp_reads_per_turn_are_limited() {
    let group = one_loop();
    for (limit, set) in [(16, None), (3, Some(3))] {
        let log = Log::new();
        let mut options = ChannelOptions::new().read_size(1).auto_read(false);
        if let Some(limit) = set {
            options = options.reads_per_turn(limit);
        }
        let server = serve(&group, options, RawBytes, &log, |log| {
            // Reading starts when all bytes have arrived, so that each turn makes as many reads as
            // it may.
            Recorder::with(log, |ctx, call| {
                if call.is_active() {
                    ctx.schedule(Duration::ZERO, when_there);
                }
                Ok(())
            })
        });
        let mut peer = connect(&server);
        peer.write_all(&[b'.'; 100]).unwrap();
        peer.shutdown(Shutdown::Write).unwrap();
        log.wait_for("active");
        log.push("go");
        log.wait_for("drop");
        let log = log.take();
        assert_eq!(log.iter().filter(|e| *e == "read .").count(), 100);
        let bursts: Vec<_> = log
            .split(|e| e == "read_complete")
            .map(|b| b.iter().filter(|e| *e == "read .").count())
            .collect();
        assert!(bursts.iter().all(|n| *n <= limit), "{bursts:?}");
        assert_eq!(bursts.iter().filter(|n| **n == limit).count(), 100 / limit, "{bursts:?}");
        done(server.close()).unwrap();
    }
    end(&group);
}

/// Turns auto-read on after the test has logged that all bytes have been sent.
fn when_there(me: &mut Recorder, ctx: &mut Context<'_, Recorder>) -> Result {
    if me.log.count("go") > 0 {
        ctx.set_auto_read(true);
    } else {
        ctx.schedule(Duration::from_millis(1), when_there);
    }
    Ok(())
}

#[test]
fn c_59_an_end_of_stream_without_bytes_calls_read_complete() {
    let log = Log::new();
    let mut channel = raw(&ChannelOptions::new(), Recorder::new(&log));
    channel.write_inbound(b"abc").unwrap();
    channel.end_inbound();
    assert_eq!(log.take(), ["active", "read abc", "read_complete", "read_complete", "inactive", "drop"]);
}

#[test]
fn c_59_an_empty_read_calls_read_complete() {
    let log = Log::new();
    let mut channel = raw(&ChannelOptions::new(), Recorder::new(&log));
    channel.write_inbound(b"").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = raw(&options, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"").unwrap();
    assert_eq!(log.take(), ["active"], "auto-read is off");
}

fn c_59_over_tcp_bytes_and_then_the_end_of_stream() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), RawBytes, &log, Recorder::new);
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    // Same as Netty: read:3, readComplete, readComplete, inactive.
    assert_eq!(log.take(), ["active", "read abc", "read_complete", "read_complete", "inactive", "drop"]);
    end(&group);
}

#[test]
fn c_60_a_read_error_comes_after_the_bytes_and_closes() {
    let log = Log::new();
    // The connection is broken, so the channel closes even if the handler does not close it.
    let mut channel = raw(&ChannelOptions::new(), Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    channel.fail_inbound(io::ErrorKind::ConnectionReset.into());
    assert_eq!(
        log.take(),
        ["active", "read abc", "read_complete", "error reading failed: connection reset", "inactive", "drop"]
    );
    assert!(channel.is_closed());
}

#[test]
fn c_60_over_tcp_a_reset_comes_after_the_bytes_and_closes() {
    streams::over(streams::Kind::Tcp, a_reset_comes_after_the_bytes);
}

fn a_reset_comes_after_the_bytes() {
    let group = one_loop();
    let log = Log::new();
    let server =
        serve(&group, ChannelOptions::new(), RawBytes, &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    log.wait_for("read_complete");
    socket2::SockRef::from(peer.as_tcp()).set_linger(Some(Duration::ZERO)).unwrap();
    drop(peer);
    log.wait_for("drop");
    let log = log.take();
    assert_eq!(log[..3], ["active", "read abc", "read_complete"]);
    let error =
        log.iter().position(|e| e.starts_with("error reading failed:")).expect("the error is reported");
    assert_eq!(log[error + 1..], ["inactive", "drop"]);
    assert!(log[3..error].iter().all(|e| e == "read_complete"), "{log:?}");
    end(&group);
}

#[test]
fn nothing_is_read_after_a_close_in_the_same_burst() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if let Event::Read(_) = call {
            ctx.close();
        }
        Ok(())
    }));
    channel.write_inbound(b"one\ntwo\n").unwrap();
    assert_eq!(log.take(), ["active", "read one", "inactive", "drop"]);
}

over_each_transport! {
    c_58_over_tcp_reads_per_turn_are_limited,
    c_59_over_tcp_bytes_and_then_the_end_of_stream,
}
