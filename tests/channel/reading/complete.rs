//! `read_complete` is called once, after the messages of a read, in the same place whether it is a
//! separate call or part of the call for the read.

use crate::support::{
    channels::embedded_with,
    journal::Log,
    recorder::{Event, Recorder},
};
use bytes::Bytes;
use netwheel::{buffer::WaterMark, channel::ChannelOptions, prelude::*};
use std::time::Duration;

/// An action of a handler in a callback.
type Act = fn(&mut Context<'_, Recorder>) -> Result;

const ACTS: [(&str, Act); 10] = [
    ("nothing", |_| Ok(())),
    ("an error", |_| Err("on purpose".into())),
    ("a panic", |_| panic!("on purpose")),
    ("a write", |ctx| ctx.write("little".into())),
    ("a flip", |ctx| ctx.write(vec![b'x'; 100].into())),
    ("a flush", |ctx| {
        ctx.write("little".into())?;
        ctx.flush();
        Ok(())
    }),
    ("a close", |ctx| {
        ctx.close();
        Ok(())
    }),
    ("the end of the output", |ctx| {
        ctx.shutdown_write();
        Ok(())
    }),
    ("a pause", |ctx| {
        ctx.set_auto_read(false);
        Ok(())
    }),
    ("too many tasks", |ctx| {
        for _ in 0..3 {
            ctx.schedule(Duration::from_secs(1), |_, _| Ok(()));
        }
        Ok(())
    }),
];

/// Returns the calls and the output of a channel that performs `act` in its `nth` call of a kind,
/// starting at that read.
fn story(act: Act, is_it: fn(&Event) -> bool, nth: usize, stays_open: bool) -> (Vec<String>, Bytes) {
    let log = Log::new();
    let mut calls = 0;
    let hook = move |ctx: &mut Context<'_, Recorder>, call: &Event| {
        if is_it(call) {
            calls += 1;
            if calls == nth {
                return act(ctx);
            }
        }
        Ok(())
    };
    let handler = if stays_open { Recorder::exactly(&log, hook) } else { Recorder::with(&log, hook) };
    let options = ChannelOptions::new().water_mark(WaterMark::new(5, 50).unwrap()).max_scheduled_tasks(2);
    let mut channel = embedded_with(&options, handler);
    for _ in 1..nth {
        channel.write_inbound(b"m\n").unwrap();
    }
    log.take();
    let _ = channel.write_inbound(b"m\n");
    let _ = channel.write_inbound(b"next\n");
    (log.take(), channel.read_outbound())
}

/// The first read of a channel calls `read_complete` separately; later reads do so only if
/// necessary. In both cases it is called once and in the same place, for every action of the
/// handler before or within it.
#[test]
fn read_complete_is_called_once_and_in_the_same_place() {
    for (name, act) in ACTS {
        for is_it in
            [|call: &Event| matches!(call, Event::Read(_)), |call: &Event| *call == Event::ReadComplete]
        {
            for stays_open in [false, true] {
                let first = story(act, is_it, 1, stays_open);
                assert_eq!(first, story(act, is_it, 2, stays_open), "{name}");
                let twice = first.0.windows(2).any(|pair| pair == ["read_complete", "read_complete"]);
                assert!(!twice, "{name}: {first:?}");
            }
        }
    }
}

/// The effects of a message come first. A closing channel receives no `read_complete`.
#[test]
fn effects_of_a_message_come_before_read_complete() {
    let is_read = |call: &Event| matches!(call, Event::Read(_));
    let told = |name: &str| {
        let act = ACTS.iter().find(|(n, _)| *n == name).unwrap().1;
        let told = story(act, is_read, 2, true).0;
        told.into_iter().take_while(|e| e != "read next").collect::<Vec<_>>()
    };
    assert_eq!(told("a flip")[..4], ["read m", "writable false", "writable true", "read_complete"]);
    assert_eq!(told("too many tasks")[2..], ["read_complete"]);
    assert!(told("too many tasks")[1].starts_with("error "));
    assert_eq!(told("a close"), ["read m", "inactive", "drop"]);
    assert_eq!(told("an error"), ["read m", "error on purpose", "read_complete"]);
}
