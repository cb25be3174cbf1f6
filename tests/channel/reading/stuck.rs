//! Codecs that misbehave, and errors: nothing goes round for ever, nothing is kept without bound.

use crate::over_each_transport;
use crate::reading::{serve, with_codec};
use crate::support::{
    channels::{embedded_with, read, set_auto_read},
    codecs,
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    streams::connect,
    tcp::read_to_end,
};
use bytes::{Buf, Bytes};
use netwheel::{ChannelOptions, PeerError, buffer::OutboundBuffer, codec::Line, pipeline::Codec, prelude::*};
use std::{io::Write, net::Shutdown};

#[test]
fn max_inbound_closes_a_channel_whose_codec_waits_for_more_than_it_may_keep() {
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(10);
    // Ten bytes may wait; the handler's wish to stay open does not count.
    let mut channel = embedded_with(&options, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"0123456789").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    channel.write_inbound(b"x").unwrap();
    let expected = PeerError::too_long("undecoded input", 11, 10);
    assert_eq!(
        log.take(),
        [format!("error the peer violated the protocol: {expected}"), "inactive".to_owned()]
    );
    assert!(channel.write_inbound(b"\n").is_err());
}

fn max_inbound_over_tcp_closes_the_connection_whatever_the_handler_does() {
    let group = one_loop();
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(10);
    let server = serve(&group, options, Line::new(), &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"0123456789 and more without an end").unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    let log = log.take();
    assert!(
        log.iter().any(|e| e.starts_with("error the peer violated the protocol: a undecoded input")),
        "{log:?}"
    );
    assert_eq!(log[log.len() - 2..], ["inactive", "drop"]);
    end(&group);
}

/// Fails without taking a byte, again and again.
#[derive(Clone)]
struct Stuck;

impl Codec for Stuck {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        if input.is_empty() { Ok(None) } else { Err("stuck".into()) }
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

#[test]
fn a_codec_that_is_stuck_closes_its_channel_on_the_second_error() {
    let log = Log::new();
    let mut channel = with_codec(&ChannelOptions::new(), Stuck, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "error stuck", "error stuck", "inactive"]);
}

fn a_codec_that_is_stuck_closes_its_connection_over_tcp_too() {
    let group = one_loop();
    let log = Log::new();
    let server =
        serve(&group, ChannelOptions::new(), Stuck, &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    assert_eq!(log.take(), ["active", "error stuck", "error stuck", "inactive", "drop"]);
    end(&group);
}

#[test]
fn a_codec_that_is_stuck_at_the_end_does_not_go_round_for_ever() {
    /// Fails whenever it is asked for the last message.
    struct StuckAtLast;
    impl Codec for StuckAtLast {
        type Read = Bytes;
        type Write = Bytes;
        fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Ok(None)
        }
        fn decode_last(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Err("stuck at last".into())
        }
        fn encode(&mut self, _: Bytes, _: &mut OutboundBuffer) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel = with_codec(
        &ChannelOptions::new(),
        StuckAtLast,
        Recorder::exactly(&log, |ctx, _| {
            ctx.flush();
            Ok(())
        }),
    );
    channel.write_inbound(b"abc").unwrap();
    channel.end_inbound();
    let log = log.take();
    assert_eq!(log[..2], ["active", "read_complete"]);
    assert!(log.iter().filter(|e| *e == "error stuck at last").count() <= 2, "{log:?}");
    assert_eq!(log.last().unwrap(), "inactive");
}

#[test]
fn errors_that_take_no_byte_close_only_if_nothing_moves_in_between() {
    /// Fails at each `!` without taking it; the next call takes it and everything up to the next one.
    #[derive(Default)]
    struct Resumes(bool);
    impl Codec for Resumes {
        type Read = Bytes;
        type Write = Bytes;
        fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            while let Some(&first) = input.first() {
                if first == b'!' && !std::mem::replace(&mut self.0, true) {
                    return Err("bang".into());
                }
                self.0 = false;
                input.advance(1);
            }
            Ok(None)
        }
        fn encode(&mut self, _: Bytes, _: &mut OutboundBuffer) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel =
        with_codec(&ChannelOptions::new(), Resumes::default(), Recorder::exactly(&log, |_, _| Ok(())));
    for _ in 0..3 {
        channel.write_inbound(b"!abc").unwrap();
    }
    assert!(channel.is_open());
    assert_eq!(log.take().iter().filter(|e| *e == "error bang").count(), 3);
}

/// D-02.
#[test]
fn a_codec_that_makes_messages_of_no_bytes_does_not_go_round_for_ever() {
    struct Endless;
    impl Codec for Endless {
        type Read = Bytes;
        type Write = Bytes;
        fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
            Ok(Some(Bytes::new()))
        }
        fn encode(&mut self, _: Bytes, _: &mut OutboundBuffer) -> Result {
            Ok(())
        }
    }
    let log = Log::new();
    let mut channel = with_codec(&ChannelOptions::new(), Endless, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    assert!(channel.is_closed());
    assert!(log.take().iter().all(|e| !e.starts_with("read ")));
}

/// Has a last message whenever it is asked for one.
#[derive(Clone)]
struct EndlessAtLast;

impl Codec for EndlessAtLast {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(None)
    }

    fn decode_last(&mut self, _: &mut Bytes) -> Result<Option<Bytes>> {
        Ok(Some("last".into()))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> Result {
        output.put(message);
        Ok(())
    }
}

/// Last messages that take no byte, before it is taken for a fault.
const LAST_MESSAGES: usize = 1024;

#[test]
fn a_codec_that_has_last_messages_without_end_is_closed_after_a_bounded_number() {
    type Act = fn(&mut Context<'_, Recorder>);
    let acts: [Act; 3] = [|_| (), |ctx| ctx.flush(), |ctx| ctx.set_auto_read(false)];
    for (half_close, input) in [(false, &b""[..]), (false, b"abc"), (true, b"abc")] {
        for act in acts {
            let log = Log::new();
            // The handler's wish to stay open does not count.
            let handler = Recorder::exactly(&log, move |ctx, _| {
                act(ctx);
                Ok(())
            });
            let options = ChannelOptions::new().half_close(half_close);
            let mut channel = with_codec(&options, EndlessAtLast, handler);
            set_auto_read(&channel.channel(), true);
            channel.run_pending();
            channel.write_inbound(input).unwrap();
            read(&channel.channel());
            channel.end_inbound();
            channel.run_pending();
            let log = log.take();
            assert!(channel.is_closed());
            assert_eq!(log.iter().filter(|entry| *entry == "read last").count(), LAST_MESSAGES);
            assert!(
                log.iter().any(|entry| entry.starts_with("error at the end of the stream the codec made"))
            );
            assert_eq!(log.last().unwrap(), "inactive");
        }
    }
}

fn a_codec_that_has_last_messages_without_end_leaves_its_loop_to_others() {
    let group = one_loop();
    let log = Log::new();
    let server = serve(&group, ChannelOptions::new(), EndlessAtLast, &log, |log| {
        Recorder::exactly(log, |_, _| Ok(()))
    });
    let mut peer = connect(&server);
    peer.write_all(b"abc").unwrap();
    peer.shutdown(Shutdown::Write).unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    assert_eq!(log.count("read last"), LAST_MESSAGES);
    end(&group);
}

/// D-11: messages before a failed decoding are delivered, then the failure, then those behind it.
#[test]
fn a_handler_that_stays_open_after_an_error_reads_on_behind_it() {
    let log = Log::new();
    let mut channel = with_codec(
        &ChannelOptions::new(),
        codecs::Fussy::new(),
        Recorder::exactly(&log, |_, call| match call {
            Event::Read(message) if message == "mine" => Err("my own".into()),
            _ => Ok(()),
        }),
    );
    channel.write_inbound(b"one\nbad\ntwo\nmine\nthree\n").unwrap();
    assert_eq!(
        log.take(),
        [
            "active",
            "read one",
            "error the peer violated the protocol: malformed message: bad",
            "read two",
            "read mine",
            "error my own",
            "read three",
            "read_complete"
        ]
    );
}

over_each_transport! {
    max_inbound_over_tcp_closes_the_connection_whatever_the_handler_does,
    a_codec_that_is_stuck_closes_its_connection_over_tcp_too,
    a_codec_that_has_last_messages_without_end_leaves_its_loop_to_others,
}
