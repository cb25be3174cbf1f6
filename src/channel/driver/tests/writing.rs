//! Bursts of writes and how they end.

use super::{Fixture, echo, nothing};
use crate::{
    channel::{
        config::ChannelOptions,
        driver::{Next, ready::Ready},
    },
    error::Result,
};
use bytes::Bytes;
use std::io::ErrorKind;

fn write(fixture: &mut Fixture, text: &'static str) {
    fixture.drive(|driver, io| {
        driver.call(io, |core, services| {
            core.state.borrow_outbound(services);
            core.state.write_encoded(&Bytes::from_static(text.as_bytes())).unwrap();
            core.request_attention(services);
        })
    });
}

#[test]
fn the_reply_to_a_burst_is_sent_with_one_write_directly_after_it() {
    let mut fixture = Fixture::new(&ChannelOptions::new().read_size(4), echo);
    fixture.prepare(|transport| transport.receive(b"abcdefgh"));
    fixture.drive(|driver, io| {
        let next = driver.handle_ready(io, Ready::READABLE);
        assert_eq!((io.metrics.writes.read(), io.metrics.bytes_written.read()), (1, 8));
        next
    });
    assert_eq!(fixture.sent(), "abcdefgh");
}

#[test]
fn after_a_blocked_write_the_next_write_waits_for_an_event() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), nothing);
    fixture.change(|transport| transport.set_room(Some(2)));
    write(&mut fixture, "abcd");
    let counters = fixture.counters();
    assert_eq!((counters.writes.read(), counters.writes_blocked.read()), (2, 1));
    write(&mut fixture, "ef");
    fixture.drive(|driver, io| {
        driver.flush(io);
        Next::Stay
    });
    assert_eq!(counters.writes.read(), 2);
    assert_eq!(fixture.sent(), "ab");
    fixture.change(|transport| transport.set_room(None));
    assert_eq!(fixture.sent(), "cdef");
}

#[test]
fn a_deferred_event_flushes_a_blocked_channel_at_the_end_of_the_turn() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), nothing);
    fixture.change(|transport| transport.set_room(Some(0)));
    write(&mut fixture, "abcd");
    fixture.drive(|driver, io| {
        let ready = driver.transport.as_mut().map(|transport| transport.set_room(None));
        driver.defer(io, ready.unwrap());
        Next::Stay
    });
    assert_eq!(fixture.sent(), "abcd");
}

/// If each write takes only a few bytes, a long reply is sent over several turns.
#[test]
fn the_write_budget_ends_a_flush_and_the_next_turn_continues_it() {
    let mut fixture = Fixture::new(&ChannelOptions::new().writes_per_turn(3), nothing);
    fixture.prepare(|transport| (0..7).for_each(|_| transport.limit_write(1)));
    fixture.drive(|driver, io| {
        let next = driver.call(io, |core, services| {
            core.state.borrow_outbound(services);
            core.state.write_encoded(&Bytes::from_static(b"abcdefgh")).unwrap();
        });
        driver.flush(io);
        assert_eq!(io.metrics.writes.read(), 3);
        assert_eq!(driver.attend(io), Next::Stay);
        assert_eq!(io.metrics.writes.read(), 6);
        assert!(!io.services.attention.is_empty());
        next
    });
    assert_eq!(fixture.sent(), "abcdefgh");
}

#[test]
fn an_interrupted_write_is_repeated() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), echo);
    fixture.prepare(|transport| transport.fail_write(ErrorKind::Interrupted.into()));
    fixture.receive("abc");
    assert_eq!((fixture.sent().as_str(), fixture.log()), ("abc", vec!["abc".into(), "complete".into()]));
}

#[test]
fn a_failed_write_closes_the_channel_with_its_error() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), echo);
    fixture.prepare(|transport| transport.fail_write(ErrorKind::BrokenPipe.into()));
    fixture.receive("abc");
    let log = fixture.log();
    assert!(log[2].starts_with("error: writing"), "{log:?}");
    assert_eq!((log.len(), log[3].as_str()), (4, "inactive"));
}

#[test]
fn the_write_half_is_shut_down_behind_the_last_byte() {
    let script = |ctx: &mut crate::pipeline::Context<'_, super::Probe>, call: &str| -> Result {
        if call == "go" {
            ctx.write("farewell".into())?;
            ctx.shutdown_write();
        }
        Ok(())
    };
    let mut fixture = Fixture::new(&ChannelOptions::new().half_close(true), script);
    fixture.change(|transport| transport.set_room(Some(4)));
    fixture.receive("go");
    let is_ended = |fixture: &mut Fixture| {
        let mut ended = false;
        fixture.drive(|driver, _| {
            ended = driver.transport.as_ref().unwrap().has_ended_writing();
            Next::Stay
        });
        ended
    };
    assert!(!is_ended(&mut fixture));
    fixture.change(|transport| transport.set_room(None));
    assert!(is_ended(&mut fixture));
    assert_eq!(fixture.sent(), "farewell");
    fixture.change(crate::testing::MemoryTransport::end);
    assert!(!fixture.is_open());
}

#[test]
fn a_closing_channel_sends_its_pending_bytes() {
    let mut fixture = Fixture::new(&ChannelOptions::new(), |ctx, call| {
        if call == "go" {
            ctx.write("farewell".into())?;
            ctx.close();
        }
        Ok(())
    });
    fixture.receive("go");
    assert_eq!((fixture.sent().as_str(), fixture.log()), ("farewell", vec!["go".into(), "inactive".into()]));
}
