//! Re-entrancy: an operation requested in a callback takes effect after the callback, never within
//! it.
//!
//! Each row of docs/reentrancy.md has a test. Some are in other files:
//!
//! - the end of the peer's stream: `endings/half_open.rs`
//! - operations in a completion of a write, through handles: `writing/notify.rs` (C-47 to C-49)
//! - repeated flushes, and writes to another channel: `writing/flush.rs`
//! - tasks by `HandlerRef`: `handler_ref.rs`
//! - timeouts of zero delay, and one task more than allowed: `timer/timeouts.rs`
//! - time limits: `timer/time_limits.rs`
//! - panics, and a failing `error`: `errors.rs`
//! - waiting for room in the loop's own queue: `event_loop/tasks/waiting_submission.rs`

use crate::over_each_transport;
use crate::support::{
    channels::{embedded, embedded_with},
    journal::Log,
    loops::{end, one_loop},
    recorder::{Event, Recorder},
    streams::{anywhere, connect},
    tcp::{ask, read_to_end},
    wait::SECOND,
};
use bytes::Bytes;
use netwheel::{
    Error,
    buffer::WaterMark,
    channel::{ChannelOptions, TaskKey},
    codec::Line,
    prelude::*,
    testing::EmbeddedChannel,
    traffic::TrafficLimits,
};
use std::{
    cell::{Cell, RefCell},
    io::Write,
    rc::Rc,
    time::Duration,
};

fn tiny_marks() -> ChannelOptions {
    ChannelOptions::new().water_mark(WaterMark::new(2, 3).unwrap())
}

#[test]
fn write_in_read_encodes_at_once_and_sends_after_the_callback() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(message) = call {
            ctx.write(message.clone())?;
            inner.push(format!("{} bytes pending", ctx.pending_bytes()));
        }
        Ok(())
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(
        log.take(),
        ["active", "read a", "2 bytes pending", "read b", "4 bytes pending", "read_complete"]
    );
    assert_eq!(channel.read_outbound(), "a\nb\n");
}

#[test]
fn flush_in_read_sends_after_this_callback_and_before_the_next() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(message) = call {
            inner.push(format!("{} before", ctx.pending_bytes()));
            ctx.write(message.clone())?;
            ctx.flush();
            inner.push(format!("{} after", ctx.pending_bytes()));
        }
        Ok(())
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    let expected =
        ["active", "read a", "0 before", "2 after", "read b", "0 before", "2 after", "read_complete"];
    assert_eq!(log.take(), expected);
    assert_eq!(channel.read_outbound(), "a\nb\n");
}

/// H-15: a flush in a callback sends immediately, with one system call per flush.
fn over_tcp_flush_in_read_sends_before_the_next_message_and_loses_none() {
    let group = one_loop();
    let server = ServerBootstrap::new(&group)
        .pipeline(|_| {
            Pipeline::codec(Line::new()).handler(Recorder::with(&Log::new(), |ctx, call| {
                if let Event::Read(message) = call {
                    assert_eq!(ctx.pending_bytes(), 0);
                    ctx.write(message.clone())?;
                    ctx.flush();
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    ask(&mut connect(&server), "a\nb\nc\n", "a\nb\nc\n");
    end(&group);
    assert_eq!(group.next().metrics().writes, 3);
}

#[test]
fn flush_in_writability_changed_sends_and_does_not_nest() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded_with(
        &tiny_marks(),
        Recorder::with(&log, move |ctx, call| {
            if let Event::Writable(_) = call {
                ctx.flush();
                inner.push(format!("{} bytes pending", ctx.pending_bytes()));
            }
            Ok(())
        }),
    );
    channel.channel().write("abcd".into()).unwrap();
    channel.run_pending();
    assert_eq!(
        log.take(),
        ["active", "writable false", "5 bytes pending", "writable true", "0 bytes pending"]
    );
    assert_eq!(channel.read_outbound(), "abcd\n");
}

#[test]
fn write_in_writability_changed_notifies_after_the_callback() {
    let log = Log::new();
    let inner = log.clone();
    let more = Cell::new(2);
    let mut channel = embedded_with(
        &tiny_marks(),
        Recorder::with(&log, move |ctx, call| {
            if *call == Event::Writable(true) && more.replace(more.get() - 1) > 0 {
                ctx.write("more".into())?;
                inner.push("end of writable");
            }
            Ok(())
        }),
    );
    channel.channel().write("abcd".into()).unwrap();
    channel.run_pending();
    let round = ["writable true", "end of writable", "writable false"];
    let expected = [&["active", "writable false"], &round[..], &round[..], &["writable true"]].concat();
    assert_eq!(log.take(), expected);
    assert_eq!(channel.read_outbound(), "abcd\nmore\nmore\n");
}

#[test]
fn close_in_read_ends_the_burst_and_calls_inactive_later() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.close();
            inner.push(format!("open {}", ctx.is_open()));
        }
        Ok(())
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "open false", "inactive", "drop"]);
}

#[test]
fn shutdown_write_in_read_ends_the_output_after_pending_writes_and_reading_continues() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            let written = ctx.write("last".into()).is_ok();
            ctx.shutdown_write();
            inner.push(format!("{written}, then {}", ctx.write("late".into()).is_ok()));
        }
        Ok(())
    }));
    channel.set_outbound_room(Some(2));
    channel.write_inbound(b"a\n").unwrap();
    assert!(!channel.is_output_ended());
    channel.set_outbound_room(None);
    assert!(channel.is_output_ended() && channel.is_open());
    assert_eq!(channel.read_outbound(), "last\n");
    channel.write_inbound(b"b\n").unwrap();
    let read =
        ["read a", "true, then false", "read_complete", "read b", "false, then false", "read_complete"];
    assert_eq!(log.take()[1..], read);
}

#[test]
fn set_traffic_in_read_takes_effect_when_the_callback_returns() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.set_traffic(TrafficLimits::new().write(100));
            ctx.write("0123456789".into())?;
            ctx.flush();
            inner.push(format!("{} bytes pending", ctx.pending_bytes()));
        }
        Ok(())
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    let expected = ["active", "read a", "11 bytes pending", "read b", "12 bytes pending", "read_complete"];
    assert_eq!(log.take(), expected, "ten bytes at once; setting the limits again grants no more");
    assert_eq!(channel.read_outbound(), "0123456789");
    channel.advance(SECOND);
    assert_eq!(channel.read_outbound(), "\n0123456789\n");
}

#[test]
fn close_in_active_calls_inactive_after_active() {
    let log = Log::new();
    let channel = embedded(Recorder::with(&log, |ctx, call| {
        if call.is_active() {
            ctx.close();
        }
        Ok(())
    }));
    assert!(channel.is_closed());
    assert_eq!(log.take(), ["active", "inactive", "drop"]);
}

/// C-08.
#[test]
fn closing_repeatedly_in_callbacks_closes_once() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if matches!(call, Event::Read(_) | Event::Inactive) {
            ctx.close();
            ctx.close();
            ctx.close_now();
            ctx.channel().close();
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    channel.run_pending();
    channel.close();
    assert_eq!(log.take(), ["active", "read a", "inactive", "drop"]);
}

#[test]
fn close_now_after_close_drops_pending_bytes() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if let Event::Read(_) = call {
            ctx.write("last words".into())?;
            ctx.close();
            ctx.close_now();
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    assert_eq!(channel.read_outbound(), "");
    assert!(channel.is_closed());
}

#[test]
fn a_task_of_zero_delay_scheduled_in_a_task_runs_after_it() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            let log = inner.clone();
            ctx.schedule(Duration::ZERO, move |_, ctx| {
                let inner = log.clone();
                ctx.schedule(Duration::ZERO, move |_, _| {
                    inner.push("second");
                    Ok(())
                });
                log.push("end of first");
                Ok(())
            });
            inner.push("end of read");
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "end of read", "read_complete", "end of first", "second"]);
    assert_eq!(channel.timers(), 0);
}

#[test]
fn a_task_cannot_cancel_itself_but_can_cancel_another() {
    let log = Log::new();
    let inner = log.clone();
    let keys: Rc<RefCell<Vec<TaskKey>>> = Rc::default();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            let (log, own) = (inner.clone(), keys.clone());
            let task = ctx.schedule(SECOND, move |_, ctx| {
                let keys = own.borrow();
                log.push(format!("itself {}", ctx.cancel(keys[0])));
                log.push(format!("other {}", ctx.cancel(keys[1])));
                log.push(format!("again {}", ctx.cancel(keys[1])));
                Ok(())
            });
            let log = inner.clone();
            let other = ctx.schedule(2 * SECOND, move |_, _| {
                log.push("never");
                Ok(())
            });
            keys.borrow_mut().extend([task, other]);
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    channel.advance(10 * SECOND);
    let log = log.take();
    assert_eq!(log[3..], ["itself false", "other true", "again false"]);
    assert_eq!(channel.timers(), 0);
}

#[test]
fn a_task_and_its_captures_are_dropped_when_the_channel_closes() {
    let held = Rc::new(());
    let captured = held.clone();
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            let (captured, log) = (captured.clone(), inner.clone());
            ctx.schedule(SECOND, move |_, _| {
                let _captured = captured;
                log.push("never");
                Ok(())
            });
            ctx.close();
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    assert_eq!(Rc::strong_count(&held), 1, "the one in the test");
    channel.advance(10 * SECOND);
    assert_eq!(log.take(), ["active", "read a", "inactive", "drop"]);
}

#[test]
fn a_task_scheduled_in_inactive_never_runs() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if *call == Event::Inactive {
            let log = inner.clone();
            ctx.schedule(Duration::ZERO, move |_, _| {
                log.push("never");
                Ok(())
            });
        }
        Ok(())
    }));
    channel.close();
    channel.advance(SECOND);
    assert_eq!(log.take(), ["active", "inactive", "drop"]);
    assert_eq!(channel.timers(), 0);
}

#[test]
fn set_idle_in_idle_takes_effect_from_the_current_event() {
    let log = Log::new();
    let mut channel =
        EmbeddedChannel::new(Pipeline::codec(Line::new()).idle(IdleTimeouts::new().reader(SECOND)).handler(
            Recorder::with(&log, |ctx, call| {
                if let Event::Idle(_) = call {
                    let longer =
                        if ctx.idle_timeouts() == IdleTimeouts::new().reader(SECOND) { 3 } else { 0 };
                    ctx.set_idle_timeouts(IdleTimeouts::new().reader(longer * SECOND));
                }
                Ok(())
            }),
        ));
    channel.advance(SECOND);
    assert_eq!(log.take(), ["active", "idle Reader idle, first"]);
    assert_eq!(channel.timers(), 1);
    channel.advance(3 * SECOND - Duration::from_nanos(1));
    assert_eq!(log.take(), [""; 0]);
    channel.advance(Duration::from_nanos(1));
    assert_eq!(log.take(), ["idle Reader idle"]);
    assert_eq!(channel.timers(), 0, "turned off by the second event");
}

/// C-50.
#[test]
fn write_in_inactive_fails_with_closed() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if *call == Event::Inactive {
            let own = ctx.write("late".into());
            let handle = ctx.channel().write("late".into());
            inner.push(format!("{} {}", matches!(own, Err(Error::Closed)), handle.is_err()));
            ctx.flush();
        }
        Ok(())
    }));
    channel.close();
    assert_eq!(log.take(), ["active", "inactive", "true true", "drop"]);
    assert_eq!(channel.read_outbound(), "");
}

#[test]
fn channel_write_from_its_own_handler_follows_writes_of_the_callback() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if let Event::Read(_) = call {
            ctx.channel().write("mail".into())?;
            ctx.write("own".into())?;
        }
        Ok(())
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(channel.read_outbound(), "own\nown\nmail\nmail\n");
    assert_eq!(log.take(), ["active", "read a", "read b", "read_complete"]);
}

#[test]
fn channel_execute_from_its_own_handler_runs_after_the_callback() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            let log = inner.clone();
            ctx.channel().execute(move |_| {
                log.push("executed");
                Ok(())
            })?;
            inner.push("end of read");
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "end of read", "read_complete", "executed"]);
}

fn close_in_a_closed_callback_does_not_recurse() {
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let inner = handler_log.clone();
            Pipeline::codec(Line::new()).handler(Recorder::with(&handler_log, move |ctx, call| {
                if let Event::Read(_) = call {
                    let (channel, log) = (ctx.channel(), inner.clone());
                    ctx.channel().closed().on_complete(move |_| {
                        channel.close();
                        channel.close_now();
                        let nested = log.clone();
                        // The channel is already closed, so this callback runs immediately.
                        channel.closed().on_complete(move |_| nested.push("closed again"));
                        log.push("closed");
                    });
                    ctx.close();
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    peer.write_all(b"a\n").unwrap();
    read_to_end(&mut peer);
    log.wait_for("drop");
    assert_eq!(log.take(), ["active", "read a", "closed again", "closed", "inactive", "drop"]);
    end(&group);
}

#[test]
fn waiting_for_the_own_channel_is_an_error_instead_of_a_deadlock() {
    let log = Log::new();
    let inner = log.clone();
    let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
        if let Event::Read(_) = call {
            ctx.close();
            let waited = ctx.channel().closed().wait();
            inner.push(format!("{:?}", waited.unwrap_err()));
        }
        Ok(())
    }));
    channel.write_inbound(b"a\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "WouldDeadlock", "inactive", "drop"]);
}

#[test]
fn auto_read_off_in_read_defers_the_next_message() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| {
        if let Event::Read(_) = call {
            ctx.set_auto_read(false);
            ctx.schedule(SECOND, |_, ctx| {
                ctx.set_auto_read(true);
                Ok(())
            });
        }
        Ok(())
    }));
    channel.write_inbound(b"a\nb\n").unwrap();
    assert_eq!(log.take(), ["active", "read a", "read_complete"]);
    channel.advance(SECOND);
    assert_eq!(log.take(), ["read b", "read_complete"]);
}

#[test]
fn read_in_read_complete_requests_the_next_burst() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false).read_size(2);
    let mut channel = embedded_with(
        &options,
        Recorder::with(&log, |ctx, call| {
            if matches!(call, Event::Active(_) | Event::ReadComplete) {
                ctx.read();
            }
            Ok(())
        }),
    );
    channel.write_inbound(b"a\nb\nc\n").unwrap();
    assert_eq!(
        log.take(),
        ["active", "read a", "read_complete", "read b", "read_complete", "read c", "read_complete"]
    );
}

/// Two handlers on the same loop exchange 10,000 messages through handles without growing the
/// stack.
#[test]
fn two_channels_that_write_to_each_other_do_not_nest() {
    let first: Rc<RefCell<Option<Channel<Bytes>>>> = Rc::default();
    let rounds = Rc::new(Cell::new(0));
    let (to, count) = (first.clone(), rounds.clone());
    let mut channel = embedded(Recorder::with(&Log::new(), move |_, call| {
        if let Event::Read(_) = call
            && count.replace(count.get() + 1) < 10_000
            && let Some(channel) = &*to.borrow()
        {
            let again = channel.clone();
            channel.execute(move |ctx| {
                ctx.write("x".into())?;
                drop(again);
                Ok(())
            })?;
        }
        Ok(())
    }));
    *first.borrow_mut() = Some(channel.channel());
    channel.write_inbound(b"go\n").unwrap();
    loop {
        let out = channel.read_outbound();
        if out.is_empty() {
            break;
        }
        channel.write_inbound(&out).unwrap();
    }
    assert_eq!(rounds.get(), 10_001);
}

over_each_transport! {
    over_tcp_flush_in_read_sends_before_the_next_message_and_loses_none,
    close_in_a_closed_callback_does_not_recurse,
}
