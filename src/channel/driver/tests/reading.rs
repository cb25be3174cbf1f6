//! Bursts of reads and how they end.

use super::{Fixture, echo, nothing};
use crate::{
    channel::{
        Pipeline,
        config::ChannelOptions,
        driver::{Next, ready::Ready},
    },
    codec::Line,
    error::Result,
};
use std::io::ErrorKind;

fn small_reads() -> ChannelOptions {
    ChannelOptions::new().read_size(4)
}

#[test]
fn a_short_read_empties_the_transport() {
    let mut fixture = Fixture::new(&small_reads(), nothing);
    fixture.receive("abc");
    assert_eq!(fixture.log(), ["abc", "complete"]);
    let counters = fixture.counters();
    assert_eq!((counters.reads.read(), counters.reads_blocked.read()), (1, 0));
    assert_eq!(counters.bytes_read.read(), 3);
}

#[test]
fn after_a_full_read_the_transport_is_read_again() {
    let mut fixture = Fixture::new(&small_reads(), nothing);
    fixture.receive("abcdefgh");
    assert_eq!(fixture.log(), ["abcd", "efgh", "complete"]);
    let counters = fixture.counters();
    assert_eq!((counters.reads.read(), counters.reads_blocked.read()), (3, 1));
}

#[test]
fn bytes_behind_urgent_data_are_read() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), nothing);
    fixture.change(|transport| {
        transport.limit_read(6);
        transport.receive(b"beforebehind").with(Ready::PRIORITY)
    });
    assert_eq!(fixture.log(), ["before", "behind", "complete"]);
}

#[test]
fn a_hang_up_that_is_reported_with_the_last_bytes_is_not_lost() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), nothing);
    fixture.change(|transport| transport.receive(b"last").with(transport.end()));
    assert_eq!(fixture.log(), ["last", "complete", "complete", "inactive"]);
}

/// While reading is off, the hang-up and the bytes are remembered.
#[test]
fn a_hang_up_while_reading_is_off_ends_the_channel_when_reading_is_on() {
    let mut fixture = Fixture::new(&ChannelOptions::new().auto_read(false), nothing);
    fixture.receive("last");
    fixture.change(crate::testing::MemoryTransport::end);
    assert!(fixture.is_open() && fixture.log().is_empty());
    fixture.drive(|driver, io| {
        driver.core.state.status.set_auto_read(true);
        driver.call(io, |core, services| core.request_attention(services))
    });
    assert_eq!(fixture.log(), ["last", "complete", "complete", "inactive"]);
}

#[test]
fn an_interrupted_read_is_repeated() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), nothing);
    fixture.change(|transport| {
        transport.fail_read(ErrorKind::Interrupted.into());
        transport.fail_read(ErrorKind::Interrupted.into());
        transport.receive(b"abc")
    });
    assert_eq!(fixture.log(), ["abc", "complete"]);
}

#[test]
fn an_error_behind_the_bytes_of_a_burst_comes_after_read_complete() {
    let mut fixture = Fixture::new(&small_reads(), nothing);
    fixture.receive("abc");
    fixture.log();
    fixture.change(|transport| {
        transport.fail_read(ErrorKind::ConnectionReset.into());
        Ready::READABLE.with(Ready::ERROR)
    });
    let log = fixture.log();
    assert!(log[0].starts_with("error: reading"), "{log:?}");
    assert_eq!(log[1..], ["inactive"]);
}

#[test]
fn an_empty_read_keeps_undecoded_input() {
    let pipeline = |probe| Pipeline::codec(Line::new()).handler(probe);
    let mut fixture = Fixture::of(&ChannelOptions::new(), pipeline, nothing);
    fixture.receive("half");
    fixture.receive("");
    fixture.receive(" a line\n");
    assert_eq!(fixture.log(), ["complete", "complete", "half a line", "complete"]);
}

/// The remaining input of a burst waits for the next turn, in which other channels come first.
#[test]
fn the_read_budget_ends_a_burst_and_the_next_turn_continues_it() {
    let mut fixture = Fixture::new(&small_reads().reads_per_turn(2), nothing);
    fixture.prepare(|transport| transport.receive(b"aaaabbbbccccddddee"));
    let log = fixture.log.clone();
    fixture.drive(|driver, io| {
        let next = driver.handle_ready(io, Ready::READABLE);
        assert_eq!(*log.borrow(), ["aaaa", "bbbb", "complete"]);
        assert_eq!(io.carried_over.len(), 1);
        // A further event does not grant another share.
        assert_eq!(driver.handle_ready(io, Ready::READABLE), Next::Stay);
        assert_eq!(log.borrow().len(), 3);
        assert_eq!(io.carried_over.len(), 1);
        next
    });
    assert_eq!(fixture.log()[3..], ["cccc", "dddd", "complete", "ee", "complete"]);
}

#[test]
fn a_turn_that_has_read_its_limit_of_bytes_reads_each_channel_once() {
    let mut fixture = Fixture::new(&small_reads(), nothing);
    fixture.prepare(|transport| transport.receive(b"aaaabbbb"));
    let log = fixture.log.clone();
    fixture.drive(|driver, io| {
        io.turn_bytes = 8 * 1024 * 1024;
        let next = driver.handle_ready(io, Ready::READABLE);
        assert_eq!(*log.borrow(), ["aaaa", "complete"]);
        next
    });
    assert_eq!(fixture.log()[2..], ["bbbb", "complete"]);
}

#[test]
fn an_event_that_has_to_wait_is_handled_in_the_next_turn() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), nothing);
    fixture.prepare(|transport| transport.receive(b"abc"));
    let log = fixture.log.clone();
    fixture.drive(|driver, io| {
        driver.defer(io, Ready::READABLE);
        driver.defer(io, Ready::READABLE.with(Ready::READ_CLOSED));
        assert!(log.borrow().is_empty());
        assert_eq!(io.carried_over.len(), 1, "the channel is listed once");
        Next::Stay
    });
    assert_eq!(fixture.log(), ["abc", "complete"]);
}

/// Interrupted decoding continues with the kept bytes, and does not read the empty transport.
#[test]
fn an_interrupted_decoding_is_resumed_without_a_read() {
    let options = ChannelOptions::new().auto_read(false).one_message_per_read(true);
    let pipeline = |probe| Pipeline::codec(Line::new()).handler(probe);
    let mut fixture = Fixture::of(&options, pipeline, nothing);
    fixture.receive("one\ntwo\nthree\n");
    let ask = |fixture: &mut Fixture| {
        fixture.drive(|driver, io| {
            driver.core.state.status.want_read();
            driver.call(io, |core, services| core.request_attention(services))
        });
    };
    let counters = fixture.counters();
    let mut reads = Vec::new();
    for expected in ["one", "two", "three"] {
        ask(&mut fixture);
        assert_eq!(fixture.log(), [expected, "complete"]);
        reads.push(counters.reads.read());
    }
    ask(&mut fixture);
    assert!(fixture.log().is_empty());
    assert_eq!((reads, counters.reads.read()), (vec![1, 1, 1], 1));
}

#[test]
fn a_flush_between_two_messages_goes_out_before_the_second() {
    let pipeline = |probe| Pipeline::codec(Line::new()).handler(probe);
    let script = |ctx: &mut crate::pipeline::Context<'_, super::Probe>, call: &str| -> Result {
        if call != "complete" && call != "inactive" {
            assert_eq!(ctx.pending_bytes(), 0, "before {call}");
            ctx.write(bytes::Bytes::copy_from_slice(call.as_bytes()))?;
            ctx.flush();
        }
        Ok(())
    };
    let mut fixture = Fixture::of(&ChannelOptions::new(), pipeline, script);
    fixture.receive("one\ntwo\nthree\n");
    assert_eq!(fixture.log(), ["one", "two", "three", "complete"]);
    assert_eq!(fixture.sent(), "one\ntwo\nthree\n");
    assert_eq!(fixture.counters().writes.read(), 3);
}

#[test]
fn every_read_returns_its_buffer() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), echo);
    for _ in 0..10 {
        fixture.receive("abc");
    }
    fixture.receive(&"x".repeat(100_000));
    let mut allocated = 0;
    fixture.drive(|_, io| {
        allocated = io.receive.allocated();
        Next::Stay
    });
    assert_eq!(allocated, 1);
}

/// A closing channel keeps reading, because a peer that is blocked in its own write may never read.
#[test]
fn a_closing_channel_discards_its_input_until_everything_is_sent() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), |ctx, call| {
        if call == "go" {
            ctx.write("farewell".into())?;
            ctx.close();
        }
        Ok(())
    });
    fixture.change(|transport| transport.set_room(Some(0)));
    fixture.receive("go");
    fixture.receive("more");
    let unread = |fixture: &mut Fixture| {
        let mut unread = 0;
        fixture.drive(|driver, _| {
            let transport = driver.transport.as_ref().unwrap();
            unread = crate::channel::driver::transport::Transport::peek(transport).unwrap_or(0);
            Next::Stay
        });
        unread
    };
    assert_eq!(unread(&mut fixture), 0);
    assert_eq!(fixture.log(), ["go"]);
    fixture.change(|transport| transport.set_room(None));
    assert_eq!((fixture.sent().as_str(), fixture.log()), ("farewell", vec!["inactive".to_owned()]));
}

/// After the end of the input, only a read can detect that the connection is broken.
#[test]
fn after_the_end_of_the_input_a_broken_connection_is_noticed() {
    let mut fixture = Fixture::new(&ChannelOptions::new().half_close(true), nothing);
    fixture.change(crate::testing::MemoryTransport::end);
    assert_eq!(fixture.log(), ["complete", "end"]);
    fixture.change(|transport| {
        transport.fail_read(ErrorKind::ConnectionReset.into());
        Ready::READABLE.with(Ready::ERROR)
    });
    let log = fixture.log();
    assert!(log[0].starts_with("error: reading") && log[1..] == ["inactive"], "{log:?}");
}
