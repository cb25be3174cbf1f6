//! Failures while a pipeline is replaced: C-24.

use crate::support::{
    channels::{lines, raw},
    journal::Log,
    logs::quiet_panics,
    loops::{end, one_loop},
    recorder::{Event, named, quiet},
    tcp::{self, connect, read_to_end},
};
use bytes::Bytes;
use netwheel::{Error, Pipeline, codec::Line, prelude::*, testing::EmbeddedChannel};
use std::io::{self, Write};

/// C-24: if the new pipeline cannot be built, or building it panics, only this channel closes. The
/// old handler receives the error.
#[test]
fn c_24_a_pipeline_that_cannot_be_built_closes_only_its_channel() {
    quiet_panics();
    let group = one_loop();
    let log = Log::new();
    let inner = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let make = |line: &Bytes, log: &Log| -> Result<Pipeline<Bytes>> {
                match &line[..] {
                    b"fail" => Err("cannot be made".into()),
                    b"panic" => panic!("made on purpose"),
                    _ => Ok(lines(quiet("new", log))),
                }
            };
            let log = inner.clone();
            lines(named("old", &inner, move |ctx, call| match call {
                Event::Read(line) if line == "ping" => ctx.write("pong".into()),
                Event::Read(line) => ctx.replace_pipeline(make(line, &log)),
                _ => Ok(()),
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut bystander = connect(server.local_address());
    tcp::ask(&mut bystander, "ping\n", "pong\n");
    for (line, error) in
        [("fail", "old error cannot be made"), ("panic", "old error panicked: made on purpose")]
    {
        log.take();
        let mut peer = connect(server.local_address());
        peer.write_all(format!("{line}\nmore\n").as_bytes()).unwrap();
        assert!(read_to_end(&mut peer).is_empty());
        log.wait_for("old drop");
        let read = format!("old read {line}");
        assert_eq!(log.take(), ["old active", &read, error, "old inactive", "old drop"]);
        tcp::ask(&mut bystander, "ping\n", "pong\n");
    }
    end(&group);
}

#[test]
fn a_callback_that_fails_after_its_request_does_not_replace_the_pipeline() {
    quiet_panics();
    for panics in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut old = named("old", &log, move |ctx, call| {
            if let Event::Read(_) = call {
                ctx.replace_pipeline(lines(quiet("new", &inner)))?;
                assert!(!panics, "on purpose");
                return Err("second thoughts".into());
            }
            Ok(())
        });
        old.closes = false;
        let mut channel = EmbeddedChannel::new(lines(old));
        channel.write_inbound(b"a\n").unwrap();
        let told = log.take();
        assert_eq!(told[..3], ["old active", "old read a", "new drop"]);
        assert!(told[3].starts_with("old error"), "{told:?}");
        assert_eq!(told[4], if panics { "old inactive" } else { "old read_complete" });
        assert_eq!(channel.is_closed(), panics);
    }
}

#[test]
fn the_error_callback_can_replace_the_pipeline_unless_the_connection_is_broken() {
    for broken in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut old = named("old", &log, move |ctx, call| match call {
            Event::Read(_) => Err("a fault".into()),
            Event::Error(_) => ctx.replace_pipeline(raw(quiet("new", &inner))),
            _ => Ok(()),
        });
        old.closes = false;
        let mut channel = EmbeddedChannel::new(lines(old));
        if broken {
            channel.fail_inbound(io::ErrorKind::ConnectionReset.into());
            let error = "old error reading failed: connection reset";
            assert_eq!(log.take(), ["old active", error, "new drop", "old inactive", "old drop"]);
        } else {
            channel.write_inbound(b"bad\nrest").unwrap();
            assert_eq!(
                log.take()[2..],
                ["old error a fault", "old drop", "new active", "new read rest", "new read_complete"]
            );
        }
    }
}

#[test]
fn a_new_handler_that_fails_in_active_closes_only_its_channel() {
    quiet_panics();
    for panics in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| match call {
            Event::Read(_) => ctx.replace_pipeline(lines(named("new", &inner, move |_, call| match call {
                Event::Active(_) if panics => panic!("on purpose"),
                Event::Active(_) => Err("not today".into()),
                _ => Ok(()),
            }))),
            _ => Ok(()),
        })));
        channel.write_inbound(b"a\nb\n").unwrap();
        let told = log.take();
        assert_eq!(told[..4], ["old active", "old read a", "old drop", "new active"]);
        assert!(told[4].starts_with("new error"), "{told:?}");
        assert_eq!(told[5..], ["new inactive", "new drop"]);
        assert!(channel.is_closed());
    }
}

#[test]
fn a_panic_in_the_drop_of_the_old_handler_is_harmless() {
    struct Sore(Log);
    impl Handler for Sore {
        type Read = Bytes;
        type Write = Bytes;
        fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
            ctx.replace_pipeline(raw(quiet("new", &self.0)))
        }
    }
    impl Drop for Sore {
        fn drop(&mut self) {
            self.0.push("sore drop");
            panic!("dropped on purpose");
        }
    }
    quiet_panics();
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(Pipeline::codec(Line::new()).handler(Sore(log.clone())));
    channel.write_inbound(b"go\nrest").unwrap();
    assert_eq!(log.take(), ["sore drop", "new active", "new read rest", "new read_complete"]);
    assert!(channel.is_open());
}

#[test]
fn a_channel_that_is_closing_keeps_its_pipeline() {
    for close_first in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
            match call {
                Event::Read(_) if close_first => {
                    ctx.close();
                    let refused = ctx.replace_pipeline(lines(quiet("new", &inner)));
                    assert!(matches!(refused, Err(Error::Closed)));
                }
                Event::Read(_) => {
                    ctx.replace_pipeline(lines(quiet("new", &inner)))?;
                    ctx.close();
                }
                Event::Inactive => {
                    let refused = ctx.replace_pipeline(lines(quiet("late", &inner)));
                    assert!(matches!(refused, Err(Error::Closed)));
                }
                _ => {}
            }
            Ok(())
        })));
        channel.write_inbound(b"a\nb\n").unwrap();
        assert_eq!(
            log.take(),
            ["old active", "old read a", "new drop", "old inactive", "late drop", "old drop"]
        );
    }
}
