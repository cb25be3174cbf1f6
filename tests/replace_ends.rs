//! What ends with a pipeline that is replaced, what its handles are told, and what becomes of failures: C-24 in the form
//! in which pipelines are types.

#[path = "support/recorder.rs"]
mod recorder;

#[path = "support/named.rs"]
mod named;

use bytes::Bytes;
use named::{Guard, SECOND, embedded, frames, lines, named, raw, silent};
use netwheel::{
    ChannelGroup, ChannelOptions, ChannelPipeline, Error, Remote, TimeLimits,
    buffer::Outbound,
    codec::Line,
    pipeline::{Codec, Stage, StageContext},
    prelude::*,
    testing::EmbeddedChannel,
};
use recorder::{Call, Log, connect, done, end, one_loop, quiet_panics, read_to_end, reason};
use std::{
    io::{self, Write},
    sync::mpsc,
    time::Duration,
};

// ---- what goes with the old one --------------------------------------------------------------------------

#[test]
fn its_tasks_are_cancelled_and_what_they_hold_is_dropped_before_the_new_one_begins() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        match call {
            Call::Active => {
                let (exact, coarse) = (Guard("exact", inner.clone()), Guard("coarse", inner.clone()));
                ctx.schedule(SECOND, move |_, _| exact.runs());
                ctx.timeout(SECOND, move |_, _| coarse.runs());
            }
            Call::Read(_) => {
                ctx.replace_pipeline(lines(named("new", &inner, |ctx, call| {
                    if *call == Call::Active {
                        ctx.schedule(SECOND, |me, _| {
                            me.log.push("new task");
                            Ok(())
                        });
                    }
                    Ok(())
                })))?;
                // One that is armed behind the request is the old one's as well.
                ctx.schedule(Duration::ZERO, |_, _| panic!("the last one runs"));
            }
            _ => {}
        }
        Ok(())
    })));
    let guard = Guard("handle's", log.clone());
    channel.channel().schedule(SECOND, move |_| guard.runs()).unwrap();
    channel.run_pending();
    assert_eq!(channel.timers(), 3);
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(channel.timers(), 1);
    let mut told = log.take();
    told[2..5].sort();
    assert_eq!(
        told,
        [
            "old active",
            "old read go",
            "coarse gone",
            "exact gone",
            "handle's gone",
            "old drop",
            "new active",
            "new read_complete"
        ]
    );
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["new task"]);
}

#[test]
fn idle_timeouts_and_time_limits_are_those_of_the_new_one_from_now_on() {
    let log = Log::new();
    let inner = log.clone();
    let old = Pipeline::new()
        .idle(IdleTimeouts::new().reader(SECOND).all(SECOND))
        .time_limits(TimeLimits::new().read(SECOND).first_message(SECOND))
        .codec(Line::new())
        .handler(named("old", &log, move |ctx, call| match call {
            Call::Idle(_) => {
                // Both kinds of quiet and both limits are due: of these the new one hears nothing.
                let new = Pipeline::new()
                    .idle(IdleTimeouts::new().reader(3 * SECOND).all(3 * SECOND))
                    .time_limits(TimeLimits::new().first_message(5 * SECOND))
                    .codec(Line::new())
                    .handler(silent("new", &inner));
                ctx.replace_pipeline(new)
            }
            _ => Ok(()),
        }));
    let mut channel = EmbeddedChannel::new(old);
    channel.advance(SECOND + SECOND / 2);
    assert_eq!(log.take(), ["old active", "old idle Reader idle, first", "old drop", "new active"]);
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), [""; 0]);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["new idle Reader idle, first", "new idle All idle, first"]);
    assert_eq!(channel.timers(), 1);
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["new error the first message timed out after 5s", "new inactive"]);
}

#[test]
fn the_first_message_is_waited_for_anew() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| match call {
        Call::Read(_) => {
            let limits = TimeLimits::new().first_byte(SECOND).first_message(2 * SECOND);
            let new = Pipeline::new().time_limits(limits).codec(Line::new()).handler(silent("new", &inner));
            ctx.replace_pipeline(new)
        }
        _ => Ok(()),
    })));
    channel.write_inbound(b"go\n").unwrap();
    log.take();
    channel.advance(SECOND + SECOND / 2);
    assert_eq!(log.take(), [""; 0], "the first byte has come already");
    channel.advance(SECOND);
    assert_eq!(log.take(), ["new error the first message timed out after 2s", "new inactive"]);
}

#[test]
fn a_task_of_the_old_one_that_was_refused_is_no_error_of_the_new_one() {
    let log = Log::new();
    let inner = log.clone();
    let options = ChannelOptions::new().max_scheduled_tasks(1);
    let mut channel = embedded(
        &options,
        lines(named("old", &log, move |ctx, call| {
            if let Call::Read(_) = call {
                for _ in 0..3 {
                    ctx.schedule(SECOND, |_, _| Ok(()));
                }
                ctx.replace_pipeline(lines(silent("new", &inner)))?;
            }
            Ok(())
        })),
    );
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.take()[2..], ["old drop", "new active", "new read_complete"]);
}

/// Fails on what begins with `!`, and takes nothing then; anything else is one message.
struct Picky;

impl Codec for Picky {
    type In = Bytes;
    type Out = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>> {
        match input.first() {
            Some(b'!') => Err("picky".into()),
            Some(_) => Ok(Some(input.split_to(input.len()))),
            None => Ok(None),
        }
    }

    fn encode(&mut self, message: Bytes, output: &mut Outbound) -> Result {
        output.put(message);
        Ok(())
    }
}

/// Each codec may fail once without taking a byte: here three do so on the same byte, and the fourth takes it.
#[test]
fn what_the_old_codec_failed_on_is_the_new_ones_to_try() {
    fn link(log: &Log, names: &'static [&'static str]) -> ChannelPipeline<Bytes> {
        let inner = log.clone();
        let mut handler = named(names[0], log, move |ctx, call| match call {
            Call::Error(_) if names.len() == 1 => ctx.replace_pipeline(raw(silent("last", &inner))),
            Call::Error(_) => ctx.replace_pipeline(link(&inner, &names[1..])),
            _ => Ok(()),
        });
        handler.closes = false;
        Pipeline::new().codec(Picky).handler(handler)
    }
    let log = Log::new();
    let mut channel = EmbeddedChannel::new(link(&log, &["a", "b", "c"]));
    channel.write_inbound(b"!").unwrap();
    assert!(channel.is_open(), "{:?}", log.all());
    assert_eq!(log.take()[9..], ["last active", "last read !", "last read_complete"]);
}

#[test]
fn without_idle_timeouts_nothing_is_left_on_the_wheel() {
    let log = Log::new();
    let inner = log.clone();
    let old = Pipeline::new().idle(IdleTimeouts::new().reader(SECOND)).codec(Line::new()).handler(named(
        "old",
        &log,
        move |ctx, call| match call {
            Call::Read(_) => ctx.replace_pipeline(lines(silent("new", &inner))),
            _ => Ok(()),
        },
    ));
    let mut channel = EmbeddedChannel::new(old);
    assert_eq!(channel.timers(), 1);
    channel.write_inbound(b"x\n").unwrap();
    assert_eq!(channel.timers(), 0);
}

/// Wakes every second and says so.
struct Ticking(&'static str, Log);

impl Stage for Ticking {
    type In = Bytes;
    type Out = Bytes;
    type WriteIn = Bytes;
    type WriteOut = Bytes;

    fn read(&mut self, _: &mut StageContext<'_, Bytes>, message: Bytes) -> Result<Option<Bytes>> {
        Ok(Some(message))
    }

    fn write(&mut self, ctx: &mut StageContext<'_, Bytes>, message: Bytes) -> Result {
        ctx.write(message)
    }

    fn active(&mut self, ctx: &mut StageContext<'_, Bytes>) -> Result {
        self.1.push(format!("{} stage active", self.0));
        ctx.wake_after(SECOND);
        Ok(())
    }

    fn timer(&mut self, ctx: &mut StageContext<'_, Bytes>) -> Result {
        self.1.push(format!("{} tick", self.0));
        ctx.wake_after(SECOND);
        Ok(())
    }
}

#[test]
fn stages_and_their_timers_give_way_too() {
    let log = Log::new();
    let ticking = |name, log: &Log, handler| {
        Pipeline::new().codec(Line::new()).stage(Ticking(name, log.clone())).handler(handler)
    };
    let inner = log.clone();
    let old = named("old", &log, move |ctx, call| match call {
        Call::Read(_) => ctx.replace_pipeline(ticking("new", &inner, silent("new", &inner))),
        _ => Ok(()),
    });
    let mut channel = EmbeddedChannel::new(ticking("old", &log, old));
    channel.advance(SECOND);
    channel.advance(SECOND / 2);
    channel.write_inbound(b"go\n").unwrap();
    channel.advance(SECOND);
    assert_eq!(
        log.take(),
        [
            "old stage active",
            "old active",
            "old tick",
            "old read go",
            "old drop",
            "new stage active",
            "new active",
            "new read_complete",
            "new tick"
        ]
    );
}

// ---- handles ---------------------------------------------------------------------------------------------

/// Lines of text.
struct Text(Line);

impl Codec for Text {
    type In = String;
    type Out = String;

    fn decode(&mut self, input: &mut Bytes) -> Result<Option<String>> {
        Ok(self.0.decode(input)?.map(|line| String::from_utf8_lossy(&line).into_owned()))
    }

    fn encode(&mut self, message: String, output: &mut Outbound) -> Result {
        self.0.encode(message.into(), output)
    }
}

/// Handles texts, and tells the test of its own handles.
struct Texts {
    handle: Option<mpsc::Sender<Remote<Texts>>>,
    heard: usize,
}

impl Handler for Texts {
    type In = String;
    type Out = String;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        if let Some(handle) = self.handle.take() {
            handle.send(ctx.remote()).unwrap();
        }
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: String) -> Result {
        self.heard += 1;
        Ok(())
    }

    fn error(&mut self, _: &mut Context<'_, Self>, error: Error) -> Result {
        panic!("nobody's error reached the new handler: {error}");
    }
}

#[test]
fn handles_of_another_message_type_are_told_so_and_get_the_message_back() {
    let log = Log::new();
    let (sender, remotes) = mpsc::channel();
    let mut handle = Some(sender);
    let (sender, olds) = mpsc::channel();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        match call {
            Call::Active => sender.send(ctx.remote()).unwrap(),
            Call::Read(_) => {
                let new = Texts { handle: handle.take(), heard: 0 };
                ctx.replace_pipeline(Pipeline::new().codec(Text(Line::new())).handler(new))?;
            }
            _ => {}
        }
        Ok(())
    })));
    let old_remote = olds.recv().unwrap();
    let old = old_remote.channel().clone();
    let closed = old.closed();
    old.write("before".into()).unwrap();
    channel.run_pending();
    channel.write_inbound(b"go\n").unwrap();
    let new_remote = remotes.recv().unwrap();
    let new = new_remote.channel().clone();
    assert_eq!(channel.read_outbound(), "before\n");

    let refused = old.write("stale".into()).unwrap_err();
    assert!(matches!(refused.reason, Error::Replaced) && refused.value == "stale", "{refused}");
    assert!(matches!(old.write_notify("stale".into()).unwrap_err().reason, Error::Replaced));
    assert!(matches!(old.execute(|_| panic!("it runs")), Err(Error::Replaced)));
    assert!(matches!(old.schedule(SECOND, |_| panic!("it runs")), Err(Error::Replaced)));
    assert!(matches!(old_remote.execute(|_, _| panic!("it runs")), Err(Error::Replaced)));
    assert!(matches!(reason(channel.channel().write("stale".into())), Error::Replaced));
    channel.run_pending();
    assert_eq!((channel.read_outbound(), channel.timers()), (Bytes::new(), 0));

    // What knows no message goes on, and both name the same channel.
    assert_eq!(old.id(), new.id());
    assert!(old.is_open());
    new.write("fresh".to_owned()).unwrap();
    new_remote
        .execute(|me, ctx| {
            me.heard += 1;
            ctx.write(format!("heard {}", me.heard))
        })
        .unwrap();
    channel.run_pending();
    assert_eq!(channel.read_outbound(), "fresh\nheard 1\n");
    old.close();
    channel.run_pending();
    done(closed).unwrap();
    assert!(matches!(old.write("late".into()).unwrap_err().reason, Error::Closed));
}

#[test]
fn what_such_handles_had_in_the_queue_is_dropped_and_answered_and_is_nobodys_error() {
    let log = Log::new();
    let (sender, olds) = mpsc::channel();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        if *call == Call::Active {
            sender.send(ctx.remote()).unwrap();
        }
        Ok(())
    })));
    let remote = olds.recv().unwrap();
    let old = remote.channel().clone();
    old.execute(|scope| {
        let new = Texts { handle: None, heard: 0 };
        scope.replace_pipeline(Pipeline::new().codec(Text(Line::new())).handler(new))
    })
    .unwrap();
    old.write("stale".into()).unwrap();
    let answer = old.write_notify("stale".into()).unwrap();
    let guards = ["task", "later", "remote"].map(|name| Guard(name, log.clone()));
    let [task, later, of_remote] = guards;
    old.execute(move |_| task.runs()).unwrap();
    old.schedule(SECOND, move |_| later.runs()).unwrap();
    remote.execute(move |_, _| of_remote.runs()).unwrap();
    channel.run_pending();
    assert!(matches!(done(answer), Err(Error::Replaced)));
    assert_eq!(log.take(), ["old active", "old drop", "task gone", "remote gone"]);
    channel.advance(2 * SECOND);
    assert_eq!(log.take(), ["later gone"]);
    assert!(channel.is_open());
    assert_eq!(channel.read_outbound(), "");
}

#[test]
fn handles_of_the_same_types_go_on() {
    let log = Log::new();
    let (sender, olds) = mpsc::channel();
    let inner = log.clone();
    let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| {
        match call {
            Call::Active => sender.send(ctx.remote()).unwrap(),
            Call::Read(_) => ctx.replace_pipeline(frames(silent("new", &inner)))?,
            _ => {}
        }
        Ok(())
    })));
    let remote = olds.recv().unwrap();
    channel.write_inbound(b"go\n").unwrap();
    log.take();
    remote.channel().write("one".into()).unwrap();
    let answer = remote.channel().write_notify("two".into()).unwrap();
    remote
        .execute(|me, _| {
            me.log.push(format!("{} has it", me.name));
            Ok(())
        })
        .unwrap();
    channel.run_pending();
    done(answer).unwrap();
    assert_eq!(channel.read_outbound(), &b"\0\x03one\0\x03two"[..]);
    assert_eq!(log.take(), ["new has it"]);
}

/// A member of a group whose messages become others leaves it; one whose messages stay does not, and encodes them anew.
#[test]
fn groups_are_left_if_the_message_type_changes() {
    let log = Log::new();
    let room = ChannelGroup::new();
    let inner = log.clone();
    let mut stays = EmbeddedChannel::new(lines(silent("stays", &log)));
    let mut leaves = EmbeddedChannel::new(lines(silent("leaves", &log)));
    let handle = leaves.channel();
    let closed = handle.closed();
    assert!(room.join(stays.channel()) && room.join(handle.clone()));
    stays.channel().execute(move |scope| scope.replace_pipeline(frames(silent("stayed", &inner)))).unwrap();
    handle
        .execute(|scope| {
            let new = Texts { handle: None, heard: 0 };
            scope.replace_pipeline(Pipeline::new().codec(Text(Line::new())).handler(new))
        })
        .unwrap();
    // On its way when the pipelines change.
    let broadcast = room.broadcast(Bytes::from("news")).unwrap();
    for channel in [&mut stays, &mut leaves] {
        channel.run_pending();
    }
    let report = done(broadcast.report()).unwrap();
    assert_eq!((report.members, report.written, report.gone), (2, 1, 1));
    assert_eq!(stays.read_outbound(), &b"\0\x04news"[..]);
    assert_eq!(leaves.read_outbound(), "");
    assert!(leaves.is_open());
    assert!(room.contains(stays.channel().id()) && !room.contains(handle.id()));
    assert!(!room.join(handle), "its messages are others");
    leaves.close();
    done(closed).unwrap();
}

// ---- failures --------------------------------------------------------------------------------------------

/// C-24: one that cannot be made, or whose making panics, closes just this channel, and the old handler is told why.
#[test]
fn c_24_one_that_cannot_be_made_closes_just_this_channel() {
    quiet_panics();
    let group = one_loop();
    let log = Log::new();
    let inner = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let make = |line: &Bytes, log: &Log| -> Result<ChannelPipeline<Bytes>> {
                match &line[..] {
                    b"fail" => Err("cannot be made".into()),
                    b"panic" => panic!("made on purpose"),
                    _ => Ok(lines(silent("new", log))),
                }
            };
            let log = inner.clone();
            lines(named("old", &inner, move |ctx, call| match call {
                Call::Read(line) if line == "ping" => ctx.write("pong".into()),
                Call::Read(line) => ctx.replace_pipeline(make(line, &log)),
                _ => Ok(()),
            }))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    let mut bystander = connect(&server);
    recorder::ask(&mut bystander, "ping\n", "pong\n");
    for (line, error) in
        [("fail", "old error cannot be made"), ("panic", "old error panicked: made on purpose")]
    {
        log.take();
        let mut peer = connect(&server);
        peer.write_all(format!("{line}\nmore\n").as_bytes()).unwrap();
        assert!(read_to_end(&mut peer).is_empty());
        log.wait_for("old drop");
        let read = format!("old read {line}");
        assert_eq!(log.take(), ["old active", &read, error, "old inactive", "old drop"]);
        recorder::ask(&mut bystander, "ping\n", "pong\n");
    }
    end(&group);
}

#[test]
fn a_callback_that_fails_behind_its_request_replaces_nothing() {
    quiet_panics();
    for panics in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut old = named("old", &log, move |ctx, call| {
            if let Call::Read(_) = call {
                ctx.replace_pipeline(lines(silent("new", &inner)))?;
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
fn the_error_of_a_callback_may_ask_as_well_but_not_on_a_broken_connection() {
    for broken in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut old = named("old", &log, move |ctx, call| match call {
            Call::Read(_) => Err("a fault".into()),
            Call::Error(_) => ctx.replace_pipeline(raw(silent("new", &inner))),
            _ => Ok(()),
        });
        old.closes = false;
        let mut channel = EmbeddedChannel::new(lines(old));
        if broken {
            channel.break_with(io::ErrorKind::ConnectionReset.into());
            let error = "old error reading: connection reset";
            assert_eq!(log.take(), ["old active", error, "new drop", "old inactive"]);
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
fn the_new_one_that_fails_in_active_closes_just_its_channel() {
    quiet_panics();
    for panics in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut channel = EmbeddedChannel::new(lines(named("old", &log, move |ctx, call| match call {
            Call::Read(_) => ctx.replace_pipeline(lines(named("new", &inner, move |_, call| match call {
                Call::Active if panics => panic!("on purpose"),
                Call::Active => Err("not today".into()),
                _ => Ok(()),
            }))),
            _ => Ok(()),
        })));
        channel.write_inbound(b"a\nb\n").unwrap();
        let told = log.take();
        assert_eq!(told[..4], ["old active", "old read a", "old drop", "new active"]);
        assert!(told[4].starts_with("new error"), "{told:?}");
        assert_eq!(told[5..], ["new inactive"]);
        assert!(channel.is_closed());
    }
}

#[test]
fn an_old_handler_that_panics_when_it_is_dropped_does_no_harm() {
    struct Sore(Log);
    impl Handler for Sore {
        type In = Bytes;
        type Out = Bytes;
        fn read(&mut self, ctx: &mut Context<'_, Self>, _: Bytes) -> Result {
            ctx.replace_pipeline(raw(silent("new", &self.0)))
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
    let mut channel = EmbeddedChannel::new(Pipeline::new().codec(Line::new()).handler(Sore(log.clone())));
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
                Call::Read(_) if close_first => {
                    ctx.close();
                    let refused = ctx.replace_pipeline(lines(silent("new", &inner)));
                    assert!(matches!(refused, Err(Error::Closed)));
                }
                Call::Read(_) => {
                    ctx.replace_pipeline(lines(silent("new", &inner)))?;
                    ctx.close();
                }
                Call::Inactive => {
                    let refused = ctx.replace_pipeline(lines(silent("late", &inner)));
                    assert!(matches!(refused, Err(Error::Closed)));
                }
                _ => {}
            }
            Ok(())
        })));
        channel.write_inbound(b"a\nb\n").unwrap();
        assert_eq!(log.take(), ["old active", "old read a", "new drop", "old inactive", "late drop"]);
    }
}
