//! A producer that found a channel unwritable is notified when the channel is writable again.

use crate::support::{
    journal::Log,
    recorder::{Event, Recorder},
    wait::done,
};
use crate::writability::{blocked, changes, zeros};
use bytes::Bytes;
use netwheel::{Error, channel::ChannelOptions, prelude::*};

/// The peer accepts everything. Queued messages alone make the channel unwritable.
#[test]
fn a_producer_is_notified_after_queued_messages_filled_the_channel() {
    let log = Log::new();
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&log));
    channel.set_outbound_room(None);
    let handle = channel.channel();
    let mut written = 0;
    while handle.is_writable() {
        handle.write("x".into()).unwrap();
        written += 1;
    }
    assert!((600..=700).contains(&written), "{written} messages of 96 plus three bytes reach 64 KiB");
    channel.run_pending();
    assert_eq!(changes(&log), ["writable false", "writable true"]);
    assert!(handle.is_writable());
    assert_eq!(channel.read_outbound().len(), 2 * written);
}

#[test]
fn the_handler_and_its_handles_see_the_same_state() {
    let log = Log::new();
    let seen = log.clone();
    let handler = Recorder::with(&log, move |ctx, call| {
        seen.push(format!("{call}: {} {}", ctx.is_writable(), ctx.channel().is_writable()));
        Ok(())
    });
    let mut channel = blocked(&ChannelOptions::new(), handler);
    let handle = channel.channel();
    log.take();
    handle.write(zeros(70_000)).unwrap();
    assert!(!handle.is_writable(), "from the moment it is submitted");
    let is_full = |ctx: &mut netwheel::ChannelContext<'_, bytes::Bytes>| {
        assert!(!ctx.is_writable());
        Ok(())
    };
    handle.execute(is_full).unwrap();
    channel.run_pending();
    assert!(!handle.is_writable());
    channel.set_outbound_room(Some(37_000));
    assert!(!handle.is_writable(), "33,001 bytes are not below the low mark");
    channel.set_outbound_room(None);
    assert!(handle.is_writable());
    let seen: Vec<_> = log.take().into_iter().filter(|entry| entry.contains(": ")).collect();
    assert_eq!(seen, ["writable false: false false", "writable true: true true"]);
}

#[test]
fn writable_completes_at_once_on_a_writable_channel() {
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
    assert!(channel.channel().writable().is_done());
}

#[test]
fn writable_completes_below_the_low_mark() {
    let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
    let handle = channel.channel();
    handle.write(zeros(100_000)).unwrap();
    let waiting = [handle.writable(), handle.clone().writable()];
    channel.run_pending();
    channel.set_outbound_room(Some(60_000));
    assert!(waiting.iter().all(|completion| !completion.is_done()));
    channel.set_outbound_room(Some(10_000));
    for completion in waiting {
        assert!(completion.is_done() && handle.is_writable());
        done(completion).unwrap();
    }
}

#[test]
fn writable_fails_when_the_channel_closes_or_its_output_ends() {
    for end in [Channel::close, Channel::close_now, Channel::shutdown_write] {
        let mut channel = blocked(&ChannelOptions::new(), Recorder::new(&Log::new()));
        let handle = channel.channel();
        handle.write(zeros(100_000)).unwrap();
        let waiting = handle.writable();
        end(&handle);
        channel.run_pending();
        assert!(matches!(done(waiting), Err(Error::Closed)));
        assert!(matches!(done(handle.writable()), Err(Error::Closed)));
    }
}

/// The queued message is dropped behind the end of the output, and must not leave reading paused.
#[test]
fn a_message_that_meets_the_end_of_the_output_does_not_pause_reading_forever() {
    type Send = fn(&Channel<Bytes>, &ChannelGroup<Bytes>);
    let write: Send = |channel, _| channel.write(zeros(100_000)).unwrap();
    let latest: Send = |channel, _| channel.write_latest(1, zeros(100_000)).unwrap();
    let broadcast: Send = |_, group| {
        let sent = group.broadcast_where(Channel::is_writable, zeros(100_000)).unwrap();
        assert_eq!(sent.members(), 1);
    };
    for send in [write, latest, broadcast] {
        let (log, group) = (Log::new(), ChannelGroup::new());
        let members = group.clone();
        let handler = Recorder::with(&log, move |ctx, call| match call {
            Event::Active(channel) => {
                assert!(group.join(channel.clone()));
                Ok(())
            }
            Event::Read(text) if text == "end" => {
                send(&ctx.channel(), &members);
                ctx.shutdown_write();
                Ok(())
            }
            _ => Ok(()),
        });
        let options = ChannelOptions::new().half_close(true).read_while_writable(true);
        let mut channel = blocked(&options, handler.half_open());
        channel.set_outbound_room(None);
        log.take();
        channel.write_inbound(b"end\n").unwrap();
        channel.run_pending();
        channel.write_inbound(b"more\n").unwrap();
        let calls = log.take();
        assert!(calls.iter().any(|call| call == "read more"), "{calls:?}");
        channel.end_inbound();
        assert!(channel.is_closed());
    }
}

/// Notifications stop for a handler that changes the state in each of them, but not while the
/// handler is waiting to write.
#[test]
fn the_last_notification_of_a_handler_that_keeps_toggling_is_writable() {
    use netwheel::{buffer::WaterMark, channel::Overflow};
    let log = Log::new();
    let handler = Recorder::exactly(&log, |ctx, call| match call {
        Event::Writable(true) => (0..2).try_for_each(|_| ctx.write("1234567".into())),
        Event::Writable(false) => ctx.write("1234567".into()),
        _ => Ok(()),
    });
    let options = ChannelOptions::new()
        .max_outbound(128)
        .overflow(Overflow::DropOldest)
        .water_mark(WaterMark::new(120, 127).unwrap());
    let mut channel = blocked(&options, handler);
    for _ in 0..16 {
        channel.channel().write("1234567".into()).unwrap();
    }
    channel.run_pending();
    assert_eq!(changes(&log).last().map(String::as_str), Some("writable true"));
}
