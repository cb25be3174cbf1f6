//! Codecs that misbehave: no endless loops and no unbounded buffers.

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
use netwheel::{
    Codec, buffer::OutboundBuffer, channel::ChannelOptions, codec::Line, error::PeerError, prelude::*,
};
use std::{io::Write, net::Shutdown};

#[test]
fn max_inbound_closes_a_channel_with_too_much_undecoded_input() {
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(10);
    // Ten bytes may stay undecoded. The handler does not close the channel in `error`, but the next
    // byte closes it.
    let mut channel = embedded_with(&options, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"0123456789").unwrap();
    assert_eq!(log.take(), ["active", "read_complete"]);
    channel.write_inbound(b"x").unwrap();
    let expected = PeerError::too_long("undecoded input", 11, 10);
    assert_eq!(
        log.take(),
        [format!("error the peer violated the protocol: {expected}"), "inactive".into(), "drop".into()]
    );
    assert!(channel.write_inbound(b"\n").is_err());
}

fn max_inbound_over_tcp_closes_the_connection_regardless_of_the_handler() {
    let group = one_loop();
    let log = Log::new();
    let options = ChannelOptions::new().max_inbound(10);
    let server = serve(&group, options, Line::new(), &log, |log| Recorder::exactly(log, |_, _| Ok(())));
    let mut peer = connect(&server);
    peer.write_all(b"0123456789 and more without a newline").unwrap();
    assert!(read_to_end(&mut peer).is_empty());
    log.wait_for("drop");
    let log = log.take();
    assert!(
        log.iter().any(|e| e.starts_with("error the peer violated the protocol: undecoded input")),
        "{log:?}"
    );
    assert_eq!(log[log.len() - 2..], ["inactive", "drop"]);
    end(&group);
}

/// Fails on every call without consuming a byte.
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
fn a_stuck_codec_closes_its_channel_on_the_second_error() {
    let log = Log::new();
    let mut channel = with_codec(&ChannelOptions::new(), Stuck, Recorder::exactly(&log, |_, _| Ok(())));
    channel.write_inbound(b"abc").unwrap();
    assert_eq!(log.take(), ["active", "error stuck", "error stuck", "inactive", "drop"]);
}

fn a_stuck_codec_closes_its_connection_over_tcp() {
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
fn a_codec_stuck_at_the_end_does_not_cause_an_endless_loop() {
    /// Fails in every `decode_last`.
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
    assert_eq!(log[log.len() - 2..], ["inactive", "drop"]);
}

#[test]
fn errors_that_consume_no_byte_close_only_without_progress_in_between() {
    /// Fails at each `!` without consuming it. The next call consumes it and everything up to the
    /// next `!`.
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
fn a_codec_that_decodes_messages_without_consuming_bytes_closes_its_channel() {
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

/// Returns a message from every `decode_last`.
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

/// The number of final messages that a codec may produce without consuming a byte.
const LAST_MESSAGES: usize = 1024;

#[test]
fn endless_final_messages_close_the_channel_after_a_bounded_number() {
    type Act = fn(&mut Context<'_, Recorder>);
    let acts: [Act; 3] = [|_| (), |ctx| ctx.flush(), |ctx| ctx.set_auto_read(false)];
    for (half_close, input) in [(false, &b""[..]), (false, b"abc"), (true, b"abc")] {
        for act in acts {
            let log = Log::new();
            // The handler does not close the channel in `error`, but the limit does.
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
            assert_eq!(log[log.len() - 2..], ["inactive", "drop"]);
        }
    }
}

fn endless_final_messages_do_not_occupy_the_loop() {
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

/// D-11: messages before a decoding error are delivered, then the error, then the messages after
/// it.
#[test]
fn reading_continues_after_an_error_if_the_handler_stays_open() {
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
    max_inbound_over_tcp_closes_the_connection_regardless_of_the_handler,
    a_stuck_codec_closes_its_connection_over_tcp,
    endless_final_messages_do_not_occupy_the_loop,
}
