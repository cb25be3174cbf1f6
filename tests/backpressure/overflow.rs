//! Overflow policies: messages to a peer that does not keep up, at the outbound limit.

use crate::support::{
    journal::Log,
    loops::{block, end, metrics, one_loop, settle, the_loop},
    recorder::Recorder,
    wait::done,
};
use bytes::Bytes;
use netwheel::{
    Error, Stage, StageContext,
    channel::{ChannelOptions, CloseCause, Overflow, TimeLimits},
    codec::{Line, RawBytes},
    prelude::*,
    testing::EmbeddedChannel,
};
use std::time::Duration;

/// Sixteen messages of eight bytes.
const LIMIT: usize = 128;

/// A channel whose peer accepts nothing, and the log of its handler.
fn blocked(policy: Overflow) -> (EmbeddedChannel<Bytes>, Log) {
    let log = Log::new();
    let options = ChannelOptions::new().max_outbound(LIMIT).overflow(policy);
    let handler = Recorder::new(&log);
    let limits = TimeLimits::new().write(Duration::from_secs(60));
    let pipeline = Pipeline::codec(Line::new()).time_limits(limits).handler(handler);
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.set_outbound_room(Some(0));
    log.take();
    (channel, log)
}

/// Returns the calls except for changes of writability, because the marks lie below such a small
/// limit.
fn told(log: &Log) -> Vec<String> {
    log.take().into_iter().filter(|call| !call.starts_with("writable")).collect()
}

/// Message number `n`: seven bytes, and eight with the end of the line.
fn message(n: usize) -> Bytes {
    format!("{n:07}").into()
}

/// Writes through a handle.
fn write(channel: &mut EmbeddedChannel<Bytes>, n: usize) -> Result<(), netwheel::SendError<Bytes>> {
    let written = channel.channel().write(message(n));
    channel.run_pending();
    written
}

/// Lets the peer accept everything, and returns the numbers of the messages sent.
fn sent(channel: &mut EmbeddedChannel<Bytes>) -> Vec<usize> {
    channel.set_outbound_room(None);
    let bytes = channel.read_outbound();
    std::str::from_utf8(&bytes).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

#[test]
fn a_refused_message_is_handed_back_and_no_other_is_lost() {
    let (mut channel, log) = blocked(Overflow::Refuse);
    for n in 0..16 {
        write(&mut channel, n).unwrap();
    }
    let refused = write(&mut channel, 16).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { limit: LIMIT, .. }) && *refused.value() == message(16));
    assert_eq!(told(&log), Vec::<String>::new());
    assert_eq!(sent(&mut channel), (0..16).collect::<Vec<_>>());
    write(&mut channel, 17).unwrap();
    assert_eq!(sent(&mut channel), [17]);
}

/// Closes with a farewell when the outbound buffer is full.
struct Goodbye;

impl Handler for Goodbye {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        assert!(matches!(error, Error::Full { .. }));
        ctx.close_with("too slow".into())?;
        assert!(!ctx.is_open() && ctx.close_with("once more".into()).is_err());
        Ok(())
    }
}

#[test]
fn a_farewell_is_accepted_above_the_limit() {
    for policy in [Overflow::Refuse, Overflow::DropOldest] {
        let options = ChannelOptions::new().max_outbound(LIMIT).overflow(policy);
        let pipeline = Pipeline::codec(Line::new()).handler(Goodbye);
        let mut channel =
            EmbeddedChannel::<Bytes>::builder(pipeline).channel_options(options).build().unwrap();
        channel.set_outbound_room(Some(1));
        let long = format!("{}\n", "x".repeat(LIMIT));
        channel.write_inbound(format!("{}\n", "y".repeat(LIMIT - 1)).as_bytes()).unwrap();
        channel.write_inbound(long.as_bytes()).unwrap();
        assert!(!channel.is_open() && channel.pending_bytes() > LIMIT, "{policy:?}");
        channel.set_outbound_room(None);
        assert!(channel.is_closed());
        assert!(channel.read_outbound().ends_with(b"y\ntoo slow\n"), "{policy:?}");
    }
}

#[test]
fn drop_newest_drops_the_message_without_an_error() {
    let (mut channel, log) = blocked(Overflow::DropNewest);
    for n in 0..40 {
        write(&mut channel, n).unwrap();
    }
    assert_eq!((channel.pending_bytes(), told(&log)), (LIMIT, vec![]));
    assert_eq!(sent(&mut channel), (0..16).collect::<Vec<_>>());
}

#[test]
fn drop_oldest_drops_until_an_eighth_is_free() {
    let (mut channel, log) = blocked(Overflow::DropOldest);
    for n in 0..16 {
        write(&mut channel, n).unwrap();
    }
    write(&mut channel, 16).unwrap();
    assert_eq!(channel.pending_bytes(), LIMIT * 7 / 8);
    for n in 17..40 {
        write(&mut channel, n).unwrap();
    }
    assert!(channel.pending_bytes() <= LIMIT && told(&log).is_empty());
    let numbers = sent(&mut channel);
    assert_eq!(numbers.last(), Some(&39));
    assert!(numbers.windows(2).all(|pair| pair[1] == pair[0] + 1), "gap in the sequence: {numbers:?}");
    assert!((14..=16).contains(&numbers.len()), "{numbers:?}");
}

#[test]
fn drop_oldest_keeps_a_partly_sent_message() {
    for begun in 1..8 {
        let (mut channel, _log) = blocked(Overflow::DropOldest);
        write(&mut channel, 1_000).unwrap();
        channel.set_outbound_room(Some(begun));
        for n in 0..100 {
            write(&mut channel, n).unwrap();
        }
        let numbers = sent(&mut channel);
        assert_eq!((numbers[0], numbers.last()), (1_000, Some(&99)), "{begun} bytes of the first");
        assert!(numbers[1..].windows(2).all(|pair| pair[1] == pair[0] + 1), "{numbers:?}");
        assert!(channel.is_open());
    }
}

#[test]
fn drop_oldest_drops_large_messages_whole() {
    const LARGE: usize = 10_000;
    let log = Log::new();
    let options = ChannelOptions::new().max_outbound(5 * LARGE).overflow(Overflow::DropOldest);
    let pipeline = Pipeline::codec(Line::new().max_len(LARGE)).handler(Recorder::new(&log));
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.set_outbound_room(Some(0));
    let line = |n: u8| Bytes::from(vec![b'a' + n % 26; LARGE / (1 + usize::from(n % 3))]);
    for n in 0..60 {
        channel.channel().write(line(n)).unwrap();
        channel.run_pending();
        if n % 7 == 0 {
            channel.set_outbound_room(Some(usize::from(n) * 11));
        }
    }
    channel.set_outbound_room(None);
    let bytes = channel.read_outbound();
    let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).collect();
    let all: Vec<Bytes> = (0..60).map(line).collect();
    let mut rest = all.iter();
    for got in &lines {
        assert!(rest.any(|line| line == got), "not a whole message in order: {} bytes", got.len());
    }
    assert_eq!(lines.last(), Some(&&all[59][..]));
    assert!(lines.len() < 60 && log.all().iter().all(|call| !call.starts_with("error")));
}

#[test]
fn a_message_larger_than_the_limit_is_refused_and_drops_nothing() {
    let (mut channel, log) = blocked(Overflow::DropOldest);
    for n in 0..16 {
        write(&mut channel, n).unwrap();
    }
    assert!(!channel.channel().is_writable());
    channel.channel().write(Bytes::from(vec![b'x'; LIMIT])).unwrap();
    channel.run_pending();
    assert_eq!(told(&log), ["error the limit of 128 outbound bytes of a channel is reached"]);
    assert_eq!(channel.read_outbound(), "");
}

/// A writer that obeys `is_writable` is never refused, however long its message is.
#[test]
fn a_writable_channel_accepts_one_message_of_any_size_under_each_policy() {
    for policy in [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest, Overflow::Close] {
        let (mut channel, log) = blocked(policy);
        write(&mut channel, 1).unwrap();
        assert!(channel.channel().is_writable());
        let long = vec![b'9'; 10 * LIMIT];
        channel.channel().write(long.into()).unwrap();
        channel.run_pending();
        assert!(!channel.channel().is_writable() && channel.is_open());
        assert_eq!(told(&log), Vec::<String>::new());
        channel.set_outbound_room(None);
        assert!(channel.read_outbound().ends_with(b"9999\n"), "{policy:?}");
    }
}

/// Writes a message in three parts.
struct InThree;

impl Stage for InThree {
    type ReadIn = Bytes;
    type ReadOut = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Self>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Self>, message: Bytes) -> Result {
        let third = message.len() / 3;
        ctx.write(message.slice(..third))?;
        ctx.write(message.slice(third..2 * third))?;
        ctx.write(message.slice(2 * third..))
    }
}

#[test]
fn a_writable_channel_accepts_one_message_of_several_parts_under_each_policy() {
    for policy in [Overflow::Refuse, Overflow::DropNewest, Overflow::DropOldest, Overflow::Close] {
        let log = Log::new();
        let options = ChannelOptions::new().max_outbound(LIMIT).overflow(policy);
        let pipeline = Pipeline::codec(RawBytes).stage(InThree).handler(Recorder::new(&log));
        let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
        channel.set_outbound_room(Some(0));
        log.take();
        for message in [vec![b'1'; 9], vec![b'9'; 10 * LIMIT]] {
            assert!(channel.channel().is_writable());
            channel.channel().write(message.into()).unwrap();
            channel.run_pending();
        }
        assert!(channel.is_open());
        assert_eq!(told(&log), Vec::<String>::new(), "{policy:?}");
        channel.set_outbound_room(None);
        let sent = channel.read_outbound();
        assert_eq!(sent.iter().filter(|byte| **byte == b'9').count(), 10 * LIMIT, "{policy:?}");
    }
}

/// The handler was quicker than the message of the handle, which was accepted.
#[test]
fn a_channel_that_closes_because_an_accepted_message_does_not_fit_is_counted() {
    const MIB: usize = 1 << 20;
    let write = |length: usize| {
        move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| ctx.write(vec![0; length].into())
    };
    let group = one_loop();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let client = ClientBootstrap::new(&group)
        .channel_options(
            ChannelOptions::new().max_outbound(32 * MIB).close_timeout(Duration::from_millis(50)),
        )
        .pipeline(|_| Pipeline::codec(RawBytes).on_read(|_, _: Bytes| Ok(())));
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    // The kernel takes a part of it.
    channel.execute(write(12 * MIB)).unwrap();
    settle(the_loop(&group));
    let blocked = block(&group);
    channel.execute(write(18 * MIB)).unwrap();
    channel.write(vec![0; 18 * MIB].into()).unwrap();
    drop(blocked);
    assert_eq!(done(channel.closed()).unwrap(), CloseCause::Failed);
    settle(the_loop(&group));
    assert_eq!(metrics(&group).closes_overflowed, 1);
    end(&group);
}

#[test]
fn a_message_of_no_bytes_completes_when_all_messages_before_it_are_dropped() {
    let options = ChannelOptions::new().max_outbound(LIMIT).overflow(Overflow::DropOldest);
    let pipeline = Pipeline::codec(RawBytes).handler(Recorder::new(&Log::new()));
    let mut channel = EmbeddedChannel::builder(pipeline).channel_options(options).build().unwrap();
    channel.set_outbound_room(Some(0));
    let handle = channel.channel();
    let large = handle.write_tracked(vec![b'x'; 10 * LIMIT].into()).unwrap();
    channel.run_pending();
    let empty = handle.write_tracked(Bytes::new()).unwrap();
    channel.run_pending();
    handle.write(Bytes::new()).unwrap();
    channel.run_pending();
    assert!(matches!(done(large), Err(Error::Full { .. })));
    assert!(channel.is_open());
    done(empty).unwrap();
}

#[test]
fn overflow_close_closes_with_a_reason() {
    let (mut channel, log) = blocked(Overflow::Close);
    for n in 0..16 {
        write(&mut channel, n).unwrap();
    }
    let answers = Log::new();
    let inner = answers.clone();
    let completion = channel.channel().write_tracked(message(16)).unwrap();
    completion.on_complete(move |result| inner.push(result.unwrap_err().to_string()));
    channel.run_pending();
    assert!(channel.is_closed());
    assert_eq!(
        told(&log),
        ["error the limit of 128 outbound bytes of a channel is reached", "inactive", "drop"]
    );
    assert_eq!(answers.take(), ["the limit of 128 outbound bytes of a channel is reached"]);
    assert!(matches!(write(&mut channel, 17).unwrap_err().error(), Error::Closed));
}

#[test]
fn completions_report_dropped_messages() {
    for policy in [Overflow::DropNewest, Overflow::DropOldest] {
        let (mut channel, _log) = blocked(policy);
        let answers = Log::new();
        for n in 0..20 {
            let inner = answers.clone();
            let completion = channel.channel().write_tracked(message(n)).unwrap();
            completion.on_complete(move |result| inner.push(format!("{n} {}", result.is_ok())));
            channel.run_pending();
        }
        let numbers = sent(&mut channel);
        let answers = answers.all();
        assert_eq!(answers.len(), 20, "one completion per message: {answers:?}");
        for n in 0..20 {
            assert!(
                answers.contains(&format!("{n} {}", numbers.contains(&n))),
                "{policy:?} {n}: {answers:?}"
            );
        }
        assert!(numbers.len() < 20);
    }
}

#[test]
fn a_dropped_message_does_not_affect_the_next_completion() {
    let (mut channel, _log) = blocked(Overflow::DropNewest);
    for n in 0..20 {
        write(&mut channel, n).unwrap();
    }
    assert_eq!(sent(&mut channel).len(), 16);
    let completion = channel.channel().write_tracked(message(20)).unwrap();
    channel.run_pending();
    assert!(completion.wait().is_ok());
    assert_eq!(sent(&mut channel), [20]);
}

#[test]
fn writes_of_a_handler_are_under_the_same_policy() {
    for (policy, accepted) in [
        (Overflow::Refuse, 16),
        (Overflow::DropNewest, 20),
        (Overflow::DropOldest, 20),
        (Overflow::Close, 16),
    ] {
        let (mut channel, _log) = blocked(policy);
        let (sender, counts) = std::sync::mpsc::channel();
        let burst = move |ctx: &mut netwheel::ChannelContext<'_, Bytes>| {
            sender.send((0..20).filter(|n| ctx.write(message(*n)).is_ok()).count()).unwrap();
            Ok(())
        };
        channel.channel().execute(burst).unwrap();
        channel.run_pending();
        assert_eq!(counts.recv().unwrap(), accepted, "{policy:?}");
        assert_eq!(channel.is_open(), policy != Overflow::Close);
    }
}

#[test]
fn the_write_limit_applies_to_messages_left_after_a_drop() {
    let (mut channel, log) = blocked(Overflow::DropOldest);
    for n in 0..100 {
        write(&mut channel, n).unwrap();
        channel.advance(Duration::from_secs(1));
        if channel.is_closed() {
            break;
        }
    }
    let log = told(&log);
    assert_eq!(log.len(), 3, "{log:?}");
    assert_eq!(log[0], "error writing timed out after 60s");
}
