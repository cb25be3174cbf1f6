//! Auto-read off and on, and reads that are asked for: C-66, T-27, T-28.

use crate::over_each_transport;
use crate::reading::{raw, serve};
use crate::support::{
    channels::{embedded_with, read, set_auto_read},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder, hand_over, read_once, stop_reading},
    streams::connect,
    wait::{done, receive},
};
use netwheel::{
    ChannelOptions,
    codec::{Line, RawBytes},
};
use std::{cell::RefCell, io::Write, time::Duration};

#[test]
fn c_66_turning_auto_read_on_reads_what_is_there() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel.write_inbound(b"one\ntwo\n").unwrap();
    assert_eq!(log.take(), ["active"]);
    set_auto_read(&channel.channel(), true);
    channel.run_pending();
    assert_eq!(log.take(), ["read one", "read two", "read_complete"]);
    channel.write_inbound(b"three\n").unwrap();
    assert_eq!(log.take(), ["read three", "read_complete"]);
}

#[test]
fn c_66_turning_auto_read_off_drops_a_read_that_was_asked_for() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel
        .channel()
        .execute(|ctx| {
            ctx.read();
            ctx.set_auto_read(true);
            ctx.set_auto_read(false);
            assert!(!ctx.auto_read());
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    channel.write_inbound(b"one\n").unwrap();
    assert_eq!(log.take(), ["active"]);
}

fn c_66_over_tcp_bytes_that_came_while_auto_read_was_off_need_no_further_event() {
    let group = one_loop();
    let log = Log::new();
    let (hand_over, channels) = hand_over();
    let server = serve(&group, ChannelOptions::new(), Line::new(), &log, move |log| {
        let hand_over = hand_over.clone();
        Recorder::with(log, move |ctx, call| {
            if *call == Event::Read("off".into()) {
                ctx.set_auto_read(false);
            }
            hand_over(ctx, call)
        })
    });
    let mut peer = connect(&server);
    let channel = receive(&channels);
    peer.write_all(b"off\nsame read\n").unwrap();
    log.wait_for("read_complete");
    peer.write_all(b"later read\n").unwrap();
    // The event of the later bytes has come and gone when this timer has run.
    done(group.next().schedule(Duration::from_millis(1), || ()).unwrap().completion()).unwrap();
    assert_eq!(log.all(), ["active", "read off", "read_complete"]);
    set_auto_read(&channel, true);
    log.wait_for("read later read");
    end(&group);
}

#[test]
fn t_27_auto_read_off_in_the_first_read_ends_the_burst_and_loses_nothing() {
    let log = Log::new();
    let options = ChannelOptions::new().read_size(1);
    let mut channel = raw(&options, Recorder::with(&log, stop_reading));
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read_complete"]);
    for message in ["read b", "read c"] {
        read(&channel.channel());
        channel.run_pending();
        assert_eq!(log.take(), [message, "read_complete"]);
    }
}

#[test]
fn t_27_messages_behind_the_one_that_turned_auto_read_off_are_kept_whatever_max_inbound_says() {
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(8);
    let mut channel = embedded_with(&options, Recorder::with(&log, stop_reading));
    channel.write_inbound(b"one\ntwo\nthree\nfour\nfi").unwrap();
    assert_eq!(log.take(), ["active", "read one", "read_complete"]);
    for message in ["read two", "read three", "read four"] {
        set_auto_read(&channel.channel(), true);
        channel.run_pending();
        assert_eq!(log.take(), [message, "read_complete"]);
    }
    set_auto_read(&channel.channel(), true);
    channel.write_inbound(b"ve\n").unwrap();
    assert!(log.take().contains(&"read five".to_owned()));
}

fn t_27_over_tcp_auto_read_off_in_a_read_and_on_again_from_another_thread() {
    let group = one_loop();
    let log = Log::new();
    let (hand_over, channels) = hand_over();
    let server = serve(&group, ChannelOptions::new().read_size(1), RawBytes, &log, move |log| {
        let hand_over = hand_over.clone();
        Recorder::with(log, move |ctx, call| {
            stop_reading(ctx, call)?;
            hand_over(ctx, call)
        })
    });
    let mut peer = connect(&server);
    let channel = receive(&channels);
    peer.write_all(b"abc").unwrap();
    for message in ["read a", "read b", "read c"] {
        log.wait_for(message);
        log.wait_until("the end of the burst", |log| log.last().is_some_and(|e| e == "read_complete"));
        read(&channel);
    }
    end(&group);
    let reads: Vec<_> = log.take().into_iter().filter(|e| e.starts_with("read ")).collect();
    assert_eq!(reads, ["read a", "read b", "read c"]);
}

// A request is for one read here, not for one burst: asked once more within it, two reads make one burst.
#[test]
fn t_28_a_read_that_was_asked_for_is_used_up_by_one_read() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false).read_size(1);
    let first = RefCell::new(true);
    let mut channel = raw(
        &options,
        Recorder::with(&log, move |ctx, call| {
            if call.is_active() || (matches!(call, Event::Read(_)) && first.replace(false)) {
                ctx.read();
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"abcd").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read b", "read_complete"]);
    channel.run_pending();
    assert_eq!(log.take(), [""; 0], "it is not repeated");
}

#[test]
fn t_28_one_read_gives_all_messages_of_its_bytes() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::with(&log, read_once));
    channel.write_inbound(b"a\nb\nc").unwrap();
    channel.write_inbound(b"\nd\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read b", "read_complete"]);
}

over_each_transport! {
    c_66_over_tcp_bytes_that_came_while_auto_read_was_off_need_no_further_event,
    t_27_over_tcp_auto_read_off_in_a_read_and_on_again_from_another_thread,
}
