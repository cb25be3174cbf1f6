//! The peer ends its stream: earlier bytes are read and earlier requests are answered.

use crate::over_each_transport;
use crate::support::{
    loops::{end, one_loop, some_turns, turn_until},
    random::Random,
    recorder::{Event, echo, read_bytes},
    servers::{Settings, serve_at},
    streams::{anywhere, connect},
    tcp::{assert_same, read_all},
};
use bytes::Bytes;
use netwheel::{
    channel::ChannelOptions,
    codec::{Line, RawBytes},
};
use std::{io::Write, net::Shutdown, thread};

const MIB: usize = 1024 * 1024;

/// Asserts that every byte is read before `inactive`, which comes once and last, for the given
/// options.
#[track_caller]
fn all_is_read_before_inactive(options: ChannelOptions) {
    let group = one_loop();
    let (server, events) =
        serve_at(anywhere(), &group, Settings::channel(options), RawBytes, |ctx, event| {
            if !ctx.auto_read() && matches!(event, Event::Active(_) | Event::ReadComplete) {
                ctx.read();
            }
            Ok(())
        });
    let sent = Random::new(1).bytes(MIB);
    let mut stream = connect(&server);
    let bytes = sent.clone();
    let sender = thread::spawn(move || stream.write_all(&bytes).unwrap());
    sender.join().unwrap();

    let told = events.until_inactive();
    assert_same(&read_bytes(&told), &sent);
    assert!(
        !told.iter().any(|event| matches!(event, Event::Error(_))),
        "the end of a stream is not an error"
    );
    let last_read = told.iter().rposition(|event| matches!(event, Event::Read(_))).unwrap();
    assert!(
        told[last_read..].contains(&Event::ReadComplete),
        "the end of the stream calls read_complete too"
    );
    drop(server);
    end(&group);
    assert_eq!(events.rest(), [], "nothing after inactive");
}

fn a_mebibyte_and_a_close_with_auto_read() {
    all_is_read_before_inactive(ChannelOptions::new());
}

fn a_mebibyte_and_a_close_with_explicit_read() {
    all_is_read_before_inactive(ChannelOptions::new().auto_read(false));
}

fn a_mebibyte_and_a_close_in_small_reads_one_per_turn() {
    all_is_read_before_inactive(ChannelOptions::new().read_size(1000).reads_per_turn(1));
}

fn a_request_before_a_half_close_is_answered() {
    let group = one_loop();
    let (server, events) = serve_at(anywhere(), &group, Settings::new(), Line::new(), echo);
    let mut stream = connect(&server);
    stream.write_all(b"one\ntwo\n").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    assert_eq!(read_all(&mut stream), b"one\ntwo\n");
    events.until_inactive();
    end(&group);
}

fn a_reply_written_at_the_end_of_the_stream_arrives() {
    let group = one_loop();
    // The request is complete only at the end of the stream, so the last `read_complete` answers
    // it.
    let (server, events) =
        serve_at(anywhere(), &group, Settings::new(), RawBytes, |ctx, event| match event {
            Event::ReadComplete => ctx.write("noted;".into()),
            _ => Ok(()),
        });
    let mut stream = connect(&server);
    stream.write_all(b"a request of arbitrary length").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let answer = read_all(&mut stream);
    let completes = events.until_inactive().iter().filter(|event| **event == Event::ReadComplete).count();
    assert!(completes > 0);
    assert_eq!(answer, b"noted;".repeat(completes));
    end(&group);
}

fn a_reply_larger_than_all_buffers_arrives_after_a_half_close() {
    const SIZE: usize = 12 * MIB;
    let group = one_loop();
    let answer = Random::new(2).bytes(SIZE);
    let written: Bytes = answer.clone();
    let (server, events) =
        serve_at(anywhere(), &group, Settings::new(), RawBytes, move |ctx, event| match event {
            Event::Read(_) => ctx.write(written.clone()),
            _ => Ok(()),
        });
    let mut stream = connect(&server);
    stream.write_all(b"?").unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    // The peer does not read until the kernel's buffers are full. Most of the reply is still unsent
    // when the channel closes.
    turn_until(&group, |metrics| metrics.writes_blocked > 0);
    some_turns(&group);
    assert_same(&read_all(&mut stream), &answer);
    events.until_inactive();
    end(&group);
}

over_each_transport! {
    a_mebibyte_and_a_close_with_auto_read,
    a_mebibyte_and_a_close_with_explicit_read,
    a_mebibyte_and_a_close_in_small_reads_one_per_turn,
    a_request_before_a_half_close_is_answered,
    a_reply_written_at_the_end_of_the_stream_arrives,
    a_reply_larger_than_all_buffers_arrives_after_a_half_close,
}
