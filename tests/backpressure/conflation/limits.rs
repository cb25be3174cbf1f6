//! The size of a backlog of messages with keys, and overflow policies at the limit of a channel.

use super::{blocked, in_handler, sent};
use crate::support::{journal::Log, wait::done};
use bytes::Bytes;
use netwheel::{
    Error,
    buffer::WaterMark,
    channel::{ChannelOptions, Overflow},
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
};
use std::time::Duration;

fn write(channel: &mut EmbeddedChannel<Bytes>, key: u64, message: &str) {
    channel.channel().write_latest(key, message.to_owned().into()).unwrap();
    channel.run_pending();
}

#[test]
fn a_backlog_holds_one_message_for_each_key() {
    const KEYS: u64 = 50;
    let (mut channel, log) = blocked(ChannelOptions::new());
    for n in 0..20_000u64 {
        let key = n * 7 % KEYS;
        write(&mut channel, key, &format!("{key:03} {n:07}"));
        assert!(channel.pending_bytes() <= "first\n".len() + KEYS as usize * "000 0000000\n".len());
    }
    let lines = sent(&mut channel);
    assert_eq!(lines.len() as u64, 1 + KEYS);
    let newest = |line: &String| line[4..].parse::<u64>().unwrap() >= 20_000 - KEYS;
    assert!(lines[1..].iter().all(newest), "{lines:?}");
    assert_eq!(log.take(), Vec::<String>::new());
}

#[test]
fn messages_without_a_key_keep_their_places() {
    let (mut channel, _) = blocked(ChannelOptions::new());
    write(&mut channel, 1, "a1");
    channel.channel().write("between".into()).unwrap();
    write(&mut channel, 2, "b1");
    write(&mut channel, 1, "a2 is longer");
    channel.channel().write("behind".into()).unwrap();
    write(&mut channel, 2, "b");
    write(&mut channel, 1, "a3");
    assert_eq!(sent(&mut channel), ["first", "a3", "between", "b", "behind"]);
}

#[test]
fn a_channel_without_a_backlog_sends_every_message() {
    let (mut channel, _) = blocked(ChannelOptions::new());
    assert_eq!(sent(&mut channel), ["first"]);
    for n in 0..10 {
        channel.channel().write_latest(1, n.to_string().into()).unwrap();
    }
    channel.run_pending();
    assert_eq!(sent(&mut channel).len(), 10, "written within one turn");
}

/// One callback that writes more than a turn sends has a backlog too.
#[test]
fn a_callback_that_writes_much_replaces_its_own_messages() {
    let pipeline = Pipeline::codec(Line::new()).on_read(|ctx, _: Bytes| {
        for n in 0..100_000 {
            ctx.write_latest(1, format!("{n:09}").into())?;
        }
        assert!(ctx.stats().pending_bytes <= 16 * 1024 + 20);
        Ok(())
    });
    let mut channel: EmbeddedChannel<Bytes> = EmbeddedChannel::new(pipeline);
    channel.write_inbound(b"go\n").unwrap();
    assert!(channel.read_outbound().ends_with(b"000099999\n"));
}

#[test]
fn at_the_limit_new_keys_are_refused_and_values_are_replaced() {
    let (mut channel, log) = blocked(ChannelOptions::new().max_outbound(1024));
    let handle = channel.channel();
    let mut keys = 0;
    let refused = loop {
        match handle.write_latest(keys, format!("{keys:07}").into()) {
            Ok(()) => keys += 1,
            Err(refused) => break refused,
        }
        channel.run_pending();
    };
    assert!(matches!(refused.error(), Error::Full { limit: 1024, .. }) && keys >= 2, "{keys} keys");
    // A handler may fill the limit up to the last byte, because its messages are encoded at once.
    let pending = channel.pending_bytes();
    in_handler(&mut channel, move |ctx| {
        let room = 1024 - pending - 1;
        ctx.write_latest(90, "x".repeat(room).into())?;
        assert!(matches!(ctx.write_latest(91, "y".into()), Err(Error::Full { .. })));
        let longer = ctx.write_tracked_latest(0, "longer than before".into());
        assert!(matches!(longer, Err(Error::Full { .. })));
        ctx.write_latest(0, "newest!".into())?;
        assert_eq!(ctx.stats().pending_bytes, 1024);
        Ok(())
    })
    .unwrap();
    let lines = sent(&mut channel);
    assert_eq!((lines[1].as_str(), lines.len() as u64), ("newest!", keys + 2));
    assert!(log.take().iter().all(|call| call.starts_with("writable")));
}

#[test]
fn each_policy_handles_a_key_without_room() {
    const LIMIT: usize = 128;
    for policy in [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest, Overflow::Close] {
        let mark = WaterMark::new(1, 1).unwrap();
        let options = ChannelOptions::new().max_outbound(LIMIT).overflow(policy).water_mark(mark);
        let (mut channel, _log) = blocked(options);
        let result = in_handler(&mut channel, |ctx| {
            (0..100).try_for_each(|key| ctx.write_latest(key, format!("{key:03}").into()))
        });
        match policy {
            Overflow::Refuse | Overflow::Close => {
                assert!(matches!(result, Err(Error::Full { .. })), "{policy:?}");
                assert_eq!(channel.is_open(), policy == Overflow::Refuse);
            }
            Overflow::DropNewest => {
                assert!(result.is_ok() && channel.pending_bytes() <= LIMIT);
                assert_eq!(sent(&mut channel)[1], "000");
            }
            _ => {
                assert!(result.is_ok() && channel.pending_bytes() <= LIMIT);
                // The keys of dropped messages are free again, the others are replaced.
                write(&mut channel, 99, "new");
                write(&mut channel, 0, "old");
                let lines = sent(&mut channel);
                assert_eq!(&lines[lines.len() - 3..], ["098", "new", "old"], "{lines:?}");
            }
        }
    }
}

#[test]
fn a_replacement_that_is_dropped_with_the_oldest_fails() {
    const LIMIT: usize = 128;
    let options = ChannelOptions::new().max_outbound(LIMIT).overflow(Overflow::DropOldest);
    let (mut channel, _log) = blocked(options);
    for key in 0..20 {
        write(&mut channel, key, "0123");
    }
    let handle = channel.channel();
    let first = handle.write_tracked_latest(0, "x".repeat(60).into()).unwrap();
    channel.run_pending();
    assert!(matches!(done(first), Err(Error::Full { .. })));
    let last = handle.write_tracked_latest(19, "last".into()).unwrap();
    channel.run_pending();
    let lines = sent(&mut channel);
    assert_eq!(lines.last().unwrap(), "last", "{lines:?}");
    done(last).unwrap();
}

#[test]
fn replaced_writes_complete_with_a_named_error() {
    let (mut channel, _) = blocked(ChannelOptions::new());
    let handle = channel.channel();
    let [first, second, third] = ["1", "2", "3"].map(|value| {
        let completion = handle.write_tracked_latest(7, value.into()).unwrap();
        channel.run_pending();
        completion
    });
    assert!(matches!(done(first), Err(Error::Conflated)));
    let error = done(second).unwrap_err();
    assert_eq!(error.to_string(), "a newer message with the same key has replaced this one");
    assert!(!third.is_done());
    assert_eq!(sent(&mut channel), ["first", "3"]);
    done(third).unwrap();
}

/// A peer that accepts nothing is closed, although its messages are replaced all the time.
#[test]
fn replacing_does_not_extend_the_write_limit() {
    for len in [1, 5, 2000] {
        let (mut channel, _) = blocked(ChannelOptions::new());
        write(&mut channel, 1, "hello");
        for n in 0..70 {
            if channel.is_open() {
                write(&mut channel, 1, &"x".repeat(len + n % 3));
            }
            channel.advance(Duration::from_secs(1));
            assert!(channel.is_closed() == (n >= 60) || n == 59, "after {} s", n + 1);
        }
    }
}

/// A peer that accepts each message within the limit stays connected.
#[test]
fn a_slow_peer_that_accepts_each_message_in_time_stays_connected() {
    let (mut channel, _) = blocked(ChannelOptions::new());
    for n in 0..600usize {
        write(&mut channel, 1, &format!("{n:0len$}", len = 3 + n % 40));
        if n % 20 == 0 {
            channel.set_outbound_room(Some(30));
        }
        channel.advance(Duration::from_secs(1));
        assert!(channel.is_open(), "after {n} s");
    }
}

/// Writes one message for the line `first`, and short messages with new keys until it must not
/// write for any other one. Has no handle, so only its own weight decides.
struct Fills(Log);

impl Handler for Fills {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        if line == "first" {
            return ctx.write(line);
        }
        let mut keys = 0..100_000;
        while ctx.is_writable() {
            let key = keys.next().expect("the mark is reached");
            ctx.write_latest(key, format!("{key:06}").into())?;
        }
        Ok(())
    }

    fn writability_changed(&mut self, _: &mut Context<'_, Self>, writable: bool) -> Result {
        self.0.push(format!("writable {writable}"));
        Ok(())
    }
}

#[test]
fn a_handler_that_is_unwritable_by_short_messages_with_keys_is_told_when_it_is_writable_again() {
    for high in [150, 1_000, 64 * 1024] {
        let log = Log::new();
        let options = ChannelOptions::new().water_mark(WaterMark::new(high / 2, high).unwrap());
        let pipeline = Pipeline::codec(Line::new()).handler(Fills(log.clone()));
        let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        channel.set_outbound_room(Some(0));
        channel.write_inbound(b"first\n").unwrap();
        channel.write_inbound(b"fill\n").unwrap();
        assert_eq!(log.take(), ["writable false"], "{high}");
        let lines = sent(&mut channel);
        assert!(lines.len() > 1);
        assert_eq!(log.take(), ["writable true"], "{high}");
    }
}
