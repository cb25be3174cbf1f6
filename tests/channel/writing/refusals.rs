//! Refused writes: closed channels (C-50), and output above `max_outbound`.

use crate::over_each_transport;
use crate::support::{
    channels::embedded_with,
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    streams::{anywhere, connect},
    wait::reason,
};
use crate::writing::{OVERHEAD, marks, raw, take, write};
use bytes::Bytes;
use netwheel::{Error, channel::ChannelOptions, codec::Line, error::Resource, prelude::*};
use std::time::Duration;

#[test]
fn c_50_a_closed_channel_refuses_writes_and_sends_no_notification() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = raw(
        &marks(100, 200),
        Recorder::with(&log, move |ctx, call| {
            if *call == Event::Inactive {
                let failed = ctx.write("late".into()).unwrap_err();
                inner.push(format!("write: {failed:#}"));
            }
            Ok(())
        }),
    );
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    write(&mut channel, 300);
    assert_eq!(log.take(), ["active", "writable false"]);
    channel.close();
    take(&mut channel, 250);
    assert_eq!(log.take(), [""; 0], "pending bytes fell below the low mark, but the channel is closing");
    let message = Bytes::from_static(b"too late");
    let refused = handle.write(message).unwrap_err();
    assert_eq!(refused.value(), "too late", "the message is handed back");
    assert!(matches!(refused.error(), Error::Closed));
    channel.set_outbound_room(None);
    assert_eq!(log.take(), ["inactive", "write: the channel is closed", "drop"]);
    assert!(matches!(reason(handle.write("later".into())), Error::Closed));
    assert!(handle.execute(|_| Ok(())).is_err());
    assert!(handle.schedule(Duration::ZERO, |_| Ok(())).is_err());
    assert_eq!(channel.run_pending(), 0);
    assert_eq!(channel.read_outbound().len(), 50);
}

fn c_50_over_tcp_a_write_in_inactive_is_refused() {
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let inner = handler_log.clone();
            Pipeline::codec(Line::new()).handler(Recorder::with(&handler_log, move |ctx, call| {
                if *call == Event::Inactive {
                    let (own, handle) = (ctx.write("late".into()), ctx.channel());
                    inner.push(format!("{} / {}", own.unwrap_err(), reason(handle.write("late".into()))));
                    assert!(!ctx.is_open() && !ctx.is_writable());
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    drop(connect(&server));
    log.wait_for("drop");
    let log = log.all();
    assert_eq!(log[log.len() - 3..], ["inactive", "the channel is closed / the channel is closed", "drop"]);
    end(&group);
}

#[test]
fn max_outbound_refuses_with_full_and_loses_no_other_message() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().max_outbound(10);
    let mut channel = embedded_with(
        &options,
        Recorder::exactly(&log, move |ctx, call| match call {
            Event::Active(_) => {
                ctx.write("1234".into())?;
                ctx.write("5678".into())?;
                assert!(ctx.pending_bytes() == 10 && !ctx.is_writable());
                let failed = ctx.write("123456".into()).unwrap_err();
                assert!(
                    matches!(failed, Error::Full { resource: Resource::ChannelOutput, limit: 10, .. }),
                    "{failed}"
                );
                inner.push(format!("{failed:#}"));
                assert!(matches!(ctx.write("".into()), Err(Error::Full { .. })));
                Ok(())
            }
            _ => Ok(()),
        }),
    );
    assert_eq!(
        log.take(),
        [
            "active",
            "the limit of 10 outbound bytes of a channel is reached",
            "writable false",
            "writable true"
        ]
    );
    assert!(channel.is_open(), "a full buffer does not close the channel");
    assert_eq!(channel.read_outbound(), "1234\n5678\n");
    channel.channel().write("12345678".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "12345678\n", "there is room again after the bytes are sent");
}

#[test]
fn a_write_of_a_handle_above_max_outbound_is_handed_back() {
    let log = Log::new();
    let options = ChannelOptions::new().max_outbound(2 * OVERHEAD);
    let mut channel = embedded_with(&options, Recorder::exactly(&log, |_, _| Ok(())));
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    handle.write("first".into()).unwrap();
    // The channel is writable, so one message of any size is accepted.
    handle.write("x".repeat(500).into()).unwrap();
    for _ in 0..2 {
        let refused = handle.write("third".into()).unwrap_err();
        assert_eq!(refused.value(), "third");
        assert!(matches!(refused.error(), Error::Full { limit: 192, .. }), "{}", refused.error());
        channel.run_pending();
    }
    assert_eq!(log.take(), ["active", "writable false"]);
    channel.set_outbound_room(None);
    handle.write("fourth".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), format!("first\n{}\nfourth\n", "x".repeat(500)));
}

over_each_transport! {
    c_50_over_tcp_a_write_in_inactive_is_refused,
}
