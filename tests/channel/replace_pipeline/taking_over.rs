//! Pipelines can be replaced in any callback, and every byte reaches one of the two pipelines.

use crate::support::{
    channels::{embedded_pipeline, frames, lines, raw},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder, named, quiet},
    tcp::{connect, read_to_end},
    wait::SECOND,
};
use bytes::Bytes;
use netwheel::{
    Pipeline, buffer::WaterMark, channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedChannel,
    time::Delay,
};
use std::{io::Write, net::Shutdown};

/// Reads lines until one says `upgrade`, answers it, and replaces itself with an echo of frames.
fn upgrading(log: &Log) -> Pipeline<Bytes> {
    let inner = log.clone();
    lines(named("old", log, move |ctx, call| match call {
        Event::Read(line) if line == "upgrade" => {
            ctx.write("switching".into())?;
            ctx.replace_pipeline(frames(named("new", &inner, |ctx, call| match call {
                Event::Read(frame) => ctx.write(frame.clone()),
                _ => Ok(()),
            })))
        }
        Event::Read(line) => ctx.write(line.clone()),
        _ => Ok(()),
    }))
}

const UPGRADE: &[u8] = b"a\nupgrade\n\0\x02hi\0\x03abc\0";

const UPGRADED: &[u8] = b"a\nswitching\n\0\x02hi\0\x03abc";

/// D-03, D-05, C-17: decoded messages go to the old pipeline, undecoded bytes to the new one, in
/// the same read.
#[test]
fn d_03_bytes_after_the_upgrade_go_to_the_new_pipeline_in_the_same_read() {
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(upgrading(&log));
    channel.write_inbound(UPGRADE).unwrap();
    assert_eq!(
        log.take(),
        [
            "old active",
            "old read a",
            "old read upgrade",
            "old drop",
            "new active",
            "new read hi",
            "new read abc",
            "new read_complete"
        ]
    );
    assert_eq!(channel.read_outbound(), UPGRADED);
    channel.write_inbound(b"\x01x").unwrap();
    assert_eq!(log.take(), ["new read x", "new read_complete"]);
    channel.end_inbound();
    assert_eq!(log.take(), ["new read_complete", "new inactive", "new drop"]);
}

#[test]
fn d_03_at_every_split_of_the_input() {
    for cut in 0..=UPGRADE.len() {
        let log = Log::new();
        let mut channel = EmbeddedChannel::new(upgrading(&log));
        channel.write_inbound(&UPGRADE[..cut]).unwrap();
        channel.write_inbound(&UPGRADE[cut..]).unwrap();
        assert_eq!(channel.read_outbound(), UPGRADED, "cut at {cut}");
        for once in ["old drop", "new active", "new read hi", "new read abc"] {
            assert_eq!(log.count(once), 1, "cut at {cut}");
        }
    }
}

#[test]
fn d_03_over_tcp_followed_by_the_end_of_the_stream() {
    let group = one_loop();
    let log = Log::new();
    let inner = log.clone();
    let server =
        ServerBootstrap::new(&group).pipeline(move |_| upgrading(&inner)).bind("127.0.0.1:0").unwrap();
    for chunk in [UPGRADE.len(), 1, 7] {
        let mut peer = connect(server.local_address());
        for bytes in UPGRADE.chunks(chunk) {
            peer.write_all(bytes).unwrap();
        }
        peer.shutdown(Shutdown::Write).unwrap();
        assert_eq!(read_to_end(&mut peer), UPGRADED);
        log.wait_for("new drop");
        let told = log.take();
        for once in ["old active", "old drop", "new active", "new inactive"] {
            assert_eq!(told.iter().filter(|e| *e == once).count(), 1, "{told:?}");
        }
        assert!(!told.contains(&"old inactive".to_owned()));
    }
    end(&group);
}

/// D-04, D-05: every callback can replace the pipeline. Bytes that the old codec left go to the new
/// pipeline with a `read_complete`; without such bytes there is no read event.
#[test]
fn d_05_replacing_in_every_callback_with_and_without_remaining_bytes() {
    type Trigger = fn(&mut EmbeddedChannel<Bytes>);
    // The event in which the handler requests the replacement, and its trigger.
    let cases: [(&str, Trigger); 8] = [
        ("read now", |channel| channel.write_inbound(b"\nnow\n").unwrap()),
        ("read_complete", |channel| channel.write_inbound(b"").unwrap()),
        ("idle", |channel| channel.advance(SECOND)),
        ("task", |channel| channel.advance(SECOND / 2)),
        ("timeout", |channel| channel.advance(SECOND / 2)),
        ("error", |channel| {
            channel.channel().execute(|_| Err("mine".into())).unwrap();
            channel.run_pending();
        }),
        ("writable false", |channel| {
            channel.channel().write(vec![b'x'; 100].into()).unwrap();
            channel.run_pending();
        }),
        ("read_closed", |channel| channel.end_inbound()),
    ];
    for (when, trigger) in cases {
        for left in ["", "par"] {
            let log = Log::new();
            let asked = log.clone();
            let take_over =
                move |ctx: &mut Context<'_, Recorder>| ctx.replace_pipeline(raw(quiet("new", &asked)));
            let mut handler = named("old", &log, move |ctx, call| {
                let take_over = take_over.clone();
                match (call, when) {
                    (Event::Active(_), "task") => {
                        let _ = ctx.schedule(SECOND / 2, move |_, ctx| take_over(ctx));
                    }
                    (Event::Active(_), "timeout") => {
                        let _ = ctx.schedule(Delay::coarse(SECOND / 2), move |_, ctx| take_over(ctx));
                    }
                    _ if call.to_string().starts_with(when) => return take_over(ctx),
                    _ => {}
                }
                Ok(())
            });
            handler.closes = false;
            let pipeline =
                Pipeline::codec(Line::new()).idle(IdleTimeouts::new().reader(SECOND)).handler(handler);
            let options = ChannelOptions::new().half_close(true).water_mark(WaterMark::new(1, 50).unwrap());
            let mut channel = embedded_pipeline(&options, pipeline);
            channel.set_outbound_room(Some(0));
            if !left.is_empty() {
                channel.write_inbound(left.as_bytes()).unwrap();
            }
            trigger(&mut channel);
            let told = log.take();
            let at = told.iter().position(|e| e == "old drop").expect("it is replaced");
            let told = &told[at + 1..];
            // The line that triggers the request includes the buffered bytes.
            let left = if when == "read now" { "" } else { left };
            let mut expected = vec!["new active".to_owned()];
            if !left.is_empty() {
                expected.push(format!("new read {left}"));
            }
            match when {
                // The new pipeline receives the end of the stream as well.
                "read_closed" if left.is_empty() => {
                    expected.extend(["new read_complete".into(), "new read_closed".into()]);
                }
                "read_closed" => {
                    expected.extend(["new read_complete"; 2].map(String::from));
                    expected.push("new read_closed".into());
                }
                // The current read always ends with `read_complete`, for whichever handler is
                // current.
                "read now" => expected.push("new read_complete".into()),
                _ if !left.is_empty() => expected.push("new read_complete".into()),
                _ => {}
            }
            if when == "read_complete" && !left.is_empty() {
                // The empty read that triggers the request comes after the bytes.
                expected.push("new read_complete".into());
            }
            assert_eq!(told, expected, "{when}, {left:?} left");
            if when != "read_closed" {
                channel.write_inbound(b"more").unwrap();
                assert_eq!(log.take(), ["new read more", "new read_complete"], "{when}");
            }
        }
    }
}

#[test]
fn replacing_in_active_precedes_all_other_events() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        assert!(call.is_active());
        ctx.write("hello".into())?;
        ctx.replace_pipeline(frames(named("new", &inner, |ctx, call| match call {
            Event::Active(_) => ctx.write("there".into()),
            _ => Ok(()),
        })))
    })));
    assert_eq!(log.take(), ["old active", "old drop", "new active"]);
    assert_eq!(channel.read_outbound(), &b"hello\n\0\x05there"[..]);
    channel.write_inbound(b"\0\x01x").unwrap();
    assert_eq!(log.take(), ["new read x", "new read_complete"]);
}

/// From outside: by a task of a channel handle and by a task of a `HandlerRef`.
#[test]
fn replacing_in_a_task_of_a_handle() {
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(lines(quiet("one", &log)));
    let inner = log.clone();
    let handle = channel.channel();
    handle.execute(move |ctx| ctx.replace_pipeline(lines(quiet("two", &inner)))).unwrap();
    channel.run_pending();
    let inner = log.clone();
    handle
        .execute(move |ctx| {
            ctx.write("from two".into())?;
            ctx.replace_pipeline(lines(quiet("three", &inner)))?;
            ctx.write("from two still".into())
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(log.take(), ["one active", "one drop", "two active", "two drop", "three active"]);
    assert_eq!(channel.read_outbound(), "from two\nfrom two still\n");
}

#[test]
fn the_second_of_two_requests_in_one_callback_wins() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.replace_pipeline(lines(quiet("first", &inner)))?;
            ctx.replace_pipeline(raw(quiet("second", &inner)))?;
        }
        Ok(())
    })));
    channel.write_inbound(b"go\nrest").unwrap();
    assert_eq!(
        log.take(),
        [
            "old active",
            "old read go",
            "first drop",
            "old drop",
            "second active",
            "second read rest",
            "second read_complete"
        ]
    );
}

/// Replaces itself `left` times, each time in `active`.
fn chain(log: &Log, left: usize) -> Pipeline<Bytes> {
    let inner = log.clone();
    lines(named("link", log, move |ctx, call| match call {
        Event::Active(_) if left > 0 => ctx.replace_pipeline(chain(&inner, left - 1)),
        _ => Ok(()),
    }))
}

#[test]
fn successive_replacements_are_limited() {
    for (links, closes) in [(1, false), (16, false), (17, true), (100_000, true)] {
        let log = Log::new();
        let channel = EmbeddedChannel::new(chain(&log, links));
        assert_eq!(channel.is_closed(), closes, "{links}");
        if closes {
            let told = log.all();
            let error = "link error the limit of 16 consecutive pipeline replacements is reached";
            assert_eq!(told[told.len() - 4..], ["link drop", error, "link inactive", "link drop"]);
        }
        drop(channel);
        let (active, dropped) = (log.count("link active"), log.count("link drop"));
        assert_eq!(active, links.min(16) + 1);
        assert_eq!(dropped, active + usize::from(closes));
    }
}

/// C-15: each pipeline becomes active once and ends once, the last one with the channel.
#[test]
fn c_15_each_of_many_pipelines_begins_once_and_ends_once() {
    const NAMES: [&str; 20] =
        ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p", "q", "r", "s", "t"];
    fn link(log: &Log, names: &'static [&'static str]) -> Pipeline<Bytes> {
        let inner = log.clone();
        lines(named(names[0], log, move |ctx, call| match call {
            Event::Read(_) if names.len() > 1 => ctx.replace_pipeline(link(&inner, &names[1..])),
            _ => Ok(()),
        }))
    }
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(link(&log, &NAMES));
    channel.write_inbound(&b".\n".repeat(30)).unwrap();
    channel.close();
    drop(channel);
    let told = log.take();
    for name in NAMES {
        let of: Vec<_> = told.iter().filter_map(|e| e.strip_prefix(name)).collect();
        assert_eq!((of[0], *of.last().unwrap()), (" active", " drop"), "{name}");
        let once = |what| of.iter().filter(|e| **e == what).count();
        assert_eq!((once(" active"), once(" drop")), (1, 1), "{name}");
        assert_eq!(once(" inactive"), usize::from(name == "t"), "{name}");
        assert_eq!(once(" read ."), if name == "t" { 11 } else { 1 }, "{name}");
    }
}
