//! Completions of writes: timing, order, errors, and operations within them (C-30, C-41, C-47 to
//! C-51).

use crate::over_each_transport;
use crate::support::{
    journal::Log,
    loops::{self, end},
    recorder::{Event, Recorder, hand_over},
    streams::{anywhere, connect},
    tcp,
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    Error,
    channel::{ChannelOptions, TimeLimits},
    codec::{LengthField, Line},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::{io::Read, time::Duration};

/// Returns an embedded line channel whose peer accepts nothing yet, and a log of completions.
fn blocked() -> (EmbeddedChannel<Bytes>, Log) {
    let log = Log::new();
    let pipeline = Pipeline::codec(Line::new()).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    (channel, log)
}

fn notify(channel: &mut EmbeddedChannel<Bytes>, log: &Log, text: &'static str) {
    let log = log.clone();
    let completion = channel.channel().write_tracked(text.into()).unwrap();
    completion.on_complete(move |result| {
        log.push(match result {
            Ok(()) => format!("{text}: sent"),
            Err(e) => format!("{text}: {e:#}"),
        });
    });
    channel.run_pending();
}

#[test]
fn c_41_completions_complete_in_order_each_with_its_last_byte() {
    let (mut channel, log) = blocked();
    channel.channel().write("first".into()).unwrap();
    notify(&mut channel, &log, "one");
    notify(&mut channel, &log, "two");
    // Only "first
    // " and "on" are sent: the completion waits for the last byte.
    channel.set_outbound_room(Some(8));
    assert_eq!(log.take(), Vec::<String>::new());
    channel.set_outbound_room(Some(1));
    assert_eq!(log.take(), Vec::<String>::new());
    channel.set_outbound_room(Some(1));
    assert_eq!(log.take(), ["one: sent"]);
    channel.set_outbound_room(None);
    assert_eq!(log.take(), ["two: sent"]);
    assert_eq!(channel.read_outbound(), "first\none\ntwo\n");
    notify(&mut channel, &log, "three");
    assert_eq!(log.take(), ["three: sent"]);
}

#[test]
fn c_40_a_completion_never_completes_before_its_bytes_are_sent() {
    let log = Log::new();
    let inner = log.clone();
    let handler = Recorder::exactly(&Log::new(), move |ctx, call| {
        if let Event::Read(_) = call {
            let log = inner.clone();
            ctx.write_tracked("answer".into())?.on_complete(move |result| log.push(format!("{result:?}")));
            inner.push("callback returns");
        }
        Ok(())
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(handler));
    channel.write_inbound(b"ask\n").unwrap();
    assert_eq!(log.all(), ["callback returns", "Ok(())"]);
}

#[test]
fn c_43_a_message_without_bytes_completes_in_order() {
    /// Encodes an empty message to no bytes.
    struct Quiet(Line);

    impl netwheel::Codec for Quiet {
        type Read = Bytes;
        type Write = Bytes;

        fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
            self.0.decode(input)
        }

        fn encode(&mut self, message: Bytes, output: &mut netwheel::buffer::OutboundBuffer) -> Result {
            if message.is_empty() { Ok(()) } else { self.0.encode(message, output) }
        }
    }

    let log = Log::new();
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Quiet(Line::new())).handler(Recorder::new(&Log::new())));
    notify(&mut channel, &log, "");
    assert_eq!(log.take(), [": sent"], "nothing is pending before it");
    channel.set_outbound_room(Some(0));
    notify(&mut channel, &log, "one");
    notify(&mut channel, &log, "");
    assert_eq!(log.take(), Vec::<String>::new());
    channel.set_outbound_room(None);
    assert_eq!(log.take(), ["one: sent", ": sent"]);
}

#[test]
fn c_30_a_failed_encoding_fails_its_completion_and_calls_error() {
    let (log, calls) = (Log::new(), Log::new());
    let pipeline = Pipeline::codec(LengthField::u8()).handler(Recorder::new(&calls));
    let mut channel = EmbeddedChannel::new(pipeline);
    let inner = log.clone();
    let completion = channel.channel().write_tracked(Bytes::from(vec![0; 300])).unwrap();
    completion.on_complete(move |result| inner.push(result.unwrap_err().to_string()));
    channel.run_pending();
    assert!(log.all()[0].starts_with("the message cannot be encoded"), "{:?}", log.all());
    // A dropped message must not go unnoticed if the program ignores the completion. The handler
    // decides, and closes by default.
    assert!(calls.all().iter().any(|call| call.starts_with("error the message cannot be encoded")));
    assert!(channel.is_closed());
}

#[test]
fn c_47_a_write_in_a_completion_is_sent_without_another_trigger() {
    let (mut channel, log) = blocked();
    let handle = channel.channel();
    for text in ["a", "b"] {
        let (handle, log) = (handle.clone(), log.clone());
        let completion = handle.clone().write_tracked(text.into()).unwrap();
        completion.on_complete(move |_| {
            log.push(text);
            if text == "b" {
                handle.write("c".into()).unwrap();
                log.push("c written");
            }
        });
    }
    channel.run_pending();
    channel.set_outbound_room(None);
    assert_eq!(log.all(), ["a", "b", "c written"]);
    assert_eq!(channel.read_outbound(), "a\nb\nc\n");
}

#[test]
fn c_48_a_completion_can_close_the_channel_in_the_middle_of_a_flush() {
    let (mut channel, log) = blocked();
    let handle = channel.channel();
    let inner = log.clone();
    handle.clone().write_tracked("one".into()).unwrap().on_complete(move |result| {
        inner.push(format!("one: {result:?}"));
        handle.close_now();
        inner.push("closed by it");
    });
    channel.run_pending();
    notify(&mut channel, &log, "two");
    notify(&mut channel, &log, "three");
    channel.set_outbound_room(Some(4));
    let closed = "the channel is closed";
    assert_eq!(
        log.all(),
        ["one: Ok(())".into(), "closed by it".into(), format!("two: {closed}"), format!("three: {closed}")]
    );
    assert!(channel.is_closed());
}

#[test]
fn c_49_a_failed_completion_can_write_and_close_without_recursion() {
    let (mut channel, log) = blocked();
    for text in ["one", "two"] {
        let (handle, log) = (channel.channel(), log.clone());
        handle.clone().write_tracked(text.into()).unwrap().on_complete(move |_| {
            handle.close();
            let refused = handle.write("more".into()).unwrap_err();
            log.push(format!("{text}, then {}", refused.error()));
        });
    }
    channel.run_pending();
    channel.channel().close_now();
    channel.run_pending();
    assert_eq!(log.all(), ["one, then the channel is closed", "two, then the channel is closed"]);
}

#[test]
fn c_50_a_write_to_a_closed_channel_is_handed_back_and_writes_in_transit_fail() {
    let (mut channel, log) = blocked();
    let handle = channel.channel();
    // The close precedes the write in the queue.
    handle.close_now();
    let inner = log.clone();
    handle
        .write_tracked("late".into())
        .unwrap()
        .on_complete(move |result| inner.push(result.unwrap_err().to_string()));
    channel.run_pending();
    assert_eq!(log.all(), ["the channel is closed"]);
    let refused = handle.write_tracked("later".into()).unwrap_err();
    assert!(matches!(refused.error(), Error::Closed) && refused.value() == "later");
}

#[test]
fn c_51_completions_fail_with_the_error_of_the_connection() {
    let (mut channel, log) = blocked();
    notify(&mut channel, &log, "one");
    channel.fail_inbound(std::io::ErrorKind::ConnectionReset.into());
    assert_eq!(log.all(), ["one: reading failed: connection reset"]);
}

#[test]
fn c_51_completions_fail_with_the_error_that_closed_the_channel() {
    let log = Log::new();
    let limits = TimeLimits::new().write(Duration::from_secs(1));
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::new(pipeline);
    channel.set_outbound_room(Some(0));
    notify(&mut channel, &log, "one");
    channel.advance(Duration::from_secs(1));
    assert_eq!(log.take(), ["one: writing timed out after 1s"]);

    // An error after which the channel stays open is not the cause of a later close.
    let handler = Recorder::exactly(&Log::new(), |_, call| match call {
        Event::Read(_) => Err(Error::other("not so bad")),
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(handler));
    channel.set_outbound_room(Some(0));
    notify(&mut channel, &log, "two");
    channel.write_inbound(b"x\n").unwrap();
    assert!(channel.is_open());
    channel.channel().close_now();
    channel.run_pending();
    assert_eq!(log.take(), ["two: the channel is closed"]);
}

#[test]
fn the_limit_of_unconfirmed_writes_loses_none() {
    const LIMIT: usize = 65_536;
    let (mut channel, log) = blocked();
    let handle = channel.channel();
    for _ in 0..LIMIT {
        handle.write_tracked(Bytes::new()).unwrap().detach();
        channel.run_pending();
    }
    let refused = handle.write_tracked("one too many".into()).unwrap_err();
    assert_eq!(refused.to_string(), "the limit of 65536 tracked writes of a channel is reached");
    assert_eq!(refused.value(), "one too many", "handed back");
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound().len(), LIMIT, "one empty line each");
    notify(&mut channel, &log, "room again");
    assert_eq!(log.take(), ["room again: sent"]);
}

fn over_tcp_a_thread_waits_until_its_message_is_sent() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let (hand_over, channels) = hand_over();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_peer| {
            let handler = Recorder::exactly(&Log::new(), hand_over.clone());
            Pipeline::codec(Line::new()).handler(handler)
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    let completion = channel.write_tracked("hello".into()).unwrap();
    done(completion).unwrap();
    let mut line = [0; 6];
    peer.read_exact(&mut line).unwrap();
    assert_eq!(&line, b"hello\n");
    drop(peer);
    done(channel.closed()).unwrap();
    assert!(channel.write_tracked("late".into()).is_err());
}

/// C-35: a chain of completions goes through the loop's queue, so its length does not grow the
/// stack.
#[test]
fn c_35_each_completion_can_start_the_next_write() {
    const ROUNDS: usize = 20_000;
    fn again(channel: Channel<Bytes>, log: Log, left: usize) {
        if left == 0 {
            log.push("all");
            return;
        }
        let next = channel.clone();
        channel.write_tracked("x".into()).unwrap().on_complete(move |_| again(next, log, left - 1));
    }
    let (mut channel, log) = blocked();
    channel.set_outbound_room(None);
    again(channel.channel(), log.clone(), ROUNDS);
    channel.run_pending();
    assert_eq!(log.all(), ["all"]);
    assert_eq!(channel.read_outbound().len(), 2 * ROUNDS);
}

/// C-74: a completion may write and close. The write is sent first.
#[test]
fn c_74_a_completion_can_write_and_close_and_the_data_is_sent_first() {
    let (mut channel, _) = blocked();
    let handle = channel.channel();
    handle.clone().write_tracked("one".into()).unwrap().on_complete(move |_| {
        handle.write("two".into()).unwrap();
        handle.close();
    });
    channel.run_pending();
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "one\ntwo\n");
    assert!(channel.is_closed());
}

/// C-55: a failed write closes the channel, and its completion fails with the same error.
#[test]
fn c_55_over_tcp_a_failed_write_closes_and_fails_the_completions() {
    let group = loops::one_loop();
    let log = Log::new();
    let (channels, channel) = std::sync::mpsc::channel();
    let inner = log.clone();
    let server = ServerBootstrap::new(&group)
        // Without reads only a write can detect the reset.
        .channel_options(ChannelOptions::new().auto_read(false))
        .pipeline(move |_| {
            let channels = channels.clone();
            Pipeline::codec(Line::new()).handler(Recorder::with(&inner, move |ctx, call| {
                if call.is_active() {
                    channels.send(ctx.channel()).unwrap();
                    ctx.write("not read".into())?;
                }
                Ok(())
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let peer = tcp::connect(server.local_address());
    let channel: Channel<Bytes> = channel.recv().unwrap();
    done(channel.write_tracked("nor this".into()).unwrap()).unwrap();
    // Closing with unread bytes sends a reset.
    drop(peer);
    let failed = loop {
        let sent = channel
            .write_tracked("into the void".into())
            .expect("writes are accepted until a completion fails");
        if let Err(failed) = done(sent) {
            break failed;
        }
    };
    assert!(failed.to_string().starts_with("writing failed"), "{failed}");
    log.wait_for("drop");
    assert_eq!(log.take(), ["active", &format!("error {failed:#}"), "inactive", "drop"]);
    end(&group);
}

over_each_transport! {
    over_tcp_a_thread_waits_until_its_message_is_sent,
}
