//! Switching auto-read off and on, and requested reads: C-66, T-27, T-28.

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
    channel::ChannelOptions,
    codec::{Line, RawBytes},
};
use std::{cell::RefCell, io::Write, time::Duration};

#[test]
fn c_66_turning_auto_read_on_reads_available_bytes() {
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
fn c_66_turning_auto_read_off_cancels_a_requested_read() {
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

fn c_66_over_tcp_bytes_that_arrived_while_auto_read_was_off_need_no_new_event() {
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
    // When this timer has run, the event of the later bytes has been processed.
    done(group.next().schedule(Duration::from_millis(1), || ()).unwrap().completion()).unwrap();
    assert_eq!(log.all(), ["active", "read off", "read_complete"]);
    set_auto_read(&channel, true);
    log.wait_for("read later read");
    end(&group);
}

#[test]
fn t_27_auto_read_off_in_the_first_read_ends_the_burst_without_losing_bytes() {
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
fn t_27_later_messages_are_kept_after_auto_read_off_beyond_max_inbound() {
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

fn t_27_over_tcp_auto_read_off_in_each_read_and_requests_from_another_thread() {
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

// In this crate a request allows one read, not one burst. A second request within the first read
// makes a burst of two reads.
#[test]
fn t_28_a_request_allows_one_read() {
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
    assert_eq!(log.take(), [""; 0], "the request is not repeated");
}

#[test]
fn t_28_one_read_delivers_all_messages_of_its_bytes() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::with(&log, read_once));
    channel.write_inbound(b"a\nb\nc").unwrap();
    channel.write_inbound(b"\nd\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read b", "read_complete"]);
}

over_each_transport! {
    c_66_over_tcp_bytes_that_arrived_while_auto_read_was_off_need_no_new_event,
    t_27_over_tcp_auto_read_off_in_each_read_and_requests_from_another_thread,
}
