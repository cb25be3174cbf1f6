//! The life of a channel from connect to `inactive`: which callbacks run, in which order, how
//! often.

use crate::over_each_transport;
use crate::support::{
    channels::{embedded, embedded_with},
    journal::Log,
    logs,
    loops::{end, one_loop},
    recorder::{Event, Recorder, hand_over, read_once},
    streams::{anywhere, connect},
    tcp::{ask, read_to_end},
    wait::{done, wait_until},
};
use bytes::Bytes;
use netwheel::{Error, channel::ChannelOptions, codec::Line, prelude::*, testing::EmbeddedLoop};
use std::{
    io::Write,
    net::TcpListener,
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::Duration,
};

fn lines(handler: Recorder) -> netwheel::Pipeline<Bytes> {
    Pipeline::codec(Line::new().max_len(2_000_000)).handler(handler)
}

#[test]
fn c_01_connected_then_active_then_the_first_read() {
    let group = one_loop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    // Block the loop until the callback is registered. Otherwise the callback might run on this
    // thread.
    let gate = Arc::new(Barrier::new(2));
    let inside = gate.clone();
    group
        .next()
        .execute(move || {
            inside.wait();
        })
        .unwrap();
    let client = ClientBootstrap::new(&group).pipeline(move |_| {
        handler_log.push("factory");
        lines(Recorder::new(&handler_log))
    });
    let connected_log = log.clone();
    client.connect(listener.local_addr().unwrap()).on_complete(move |channel| {
        assert!(channel.unwrap().is_open());
        connected_log.push("connected");
    });
    // The bytes arrive before the loop polls for the first time.
    let (mut peer, _) = listener.accept().unwrap();
    peer.write_all(b"hello\n").unwrap();
    gate.wait();
    drop(peer);
    log.wait_for("drop");
    let expected = ["factory", "connected", "active", "read hello"];
    assert_eq!(&log.all()[..4], expected);
    assert_eq!(&log.all()[log.all().len() - 2..], ["inactive", "drop"]);
    end(&group);
}

#[test]
fn c_04_close_now_drops_pending_bytes_and_then_runs_closed_before_inactive() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    channel.set_outbound_room(Some(3));
    let handle = channel.channel();
    let closed_log = log.clone();
    handle.closed().on_complete(move |result| {
        result.unwrap();
        closed_log.push("closed");
    });
    handle.write("hello".into()).unwrap();
    channel.run_pending();
    assert_eq!(channel.pending_bytes(), 3);
    handle.close_now();
    assert!(
        log.all().iter().all(|entry| entry == "active"),
        "nothing happens within close_now: {log:?}",
        log = log.all()
    );
    channel.run_pending();
    drop(channel.read_outbound());
    channel.set_outbound_room(None);
    assert_eq!(channel.read_outbound(), "", "pending bytes are dropped");
    drop(channel);
    assert_eq!(log.take(), ["active", "closed", "inactive", "drop"]);
}

#[test]
fn c_04_a_graceful_close_flushes_earlier_writes_first() {
    let log = Log::new();
    let mut channel = embedded(Recorder::with(&log, |ctx, call| match call {
        Event::Read(_) => {
            ctx.write("one".into())?;
            ctx.close();
            // After a graceful close, a late write returns an error.
            assert!(matches!(ctx.write("late".into()), Err(Error::Closed)));
            Ok(())
        }
        _ => Ok(()),
    }));
    channel.set_outbound_room(Some(1));
    channel.write_inbound(b"go\nmore\n").unwrap();
    assert!(!channel.is_open() && !channel.is_closed());
    assert_eq!(log.take(), ["active", "read go"], "closing: no more messages, not yet inactive");
    channel.set_outbound_room(Some(2));
    assert_eq!(channel.read_outbound(), "one");
    assert!(!channel.is_closed());
    channel.set_outbound_room(Some(1));
    assert!(channel.is_closed());
    assert_eq!(channel.read_outbound(), "\n");
    assert_eq!(log.take(), ["inactive", "drop"]);
}

#[test]
fn c_04_the_close_timeout_limits_the_wait_for_a_peer_that_does_not_read() {
    let log = Log::new();
    let options = ChannelOptions::new().close_timeout(Duration::from_secs(3));
    let mut channel = embedded_with(&options, Recorder::new(&log));
    channel.set_outbound_room(Some(0));
    channel.channel().write("never taken".into()).unwrap();
    channel.channel().close();
    channel.run_pending();
    channel.advance(Duration::from_millis(2_999));
    assert!(!channel.is_closed());
    channel.advance(Duration::from_millis(1));
    assert!(channel.is_closed());
    assert_eq!(log.take(), ["active", "inactive", "drop"]);
    assert_eq!(channel.timers(), 0);
}

#[test]
fn c_04_a_completed_close_leaves_no_timer() {
    let mut channel = embedded(Recorder::new(&Log::new()));
    channel.set_outbound_room(Some(0));
    channel.channel().write("taken soon".into()).unwrap();
    channel.channel().close();
    channel.run_pending();
    assert_eq!(channel.timers(), 1, "the close timeout");
    channel.set_outbound_room(None);
    assert!(channel.is_closed());
    assert_eq!(channel.timers(), 0);
}

/// C-06: the handler is dropped after its last call.
fn c_04_over_tcp_closed_precedes_inactive_and_the_peer_receives_every_byte() {
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let big = "x".repeat(1_000_000);
    let sent = big.clone();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let (log, sent) = (handler_log.clone(), sent.clone());
            lines(Recorder::with(&handler_log, move |ctx, call| {
                if let Event::Read(_) = call {
                    let log = log.clone();
                    ctx.channel().closed().on_complete(move |_| log.push("closed"));
                    ctx.write(sent.clone().into())?;
                    ctx.close();
                }
                Ok(())
            }))
        })
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    peer.write_all(b"go\nand bytes that are never read").unwrap();
    let got = read_to_end(&mut peer);
    assert_eq!(got.len(), big.len() + 1);
    log.wait_for("drop");
    let log = log.all();
    let at = |entry: &str| log.iter().position(|e| e == entry).unwrap();
    assert!(at("closed") < at("inactive") && at("inactive") < at("drop"), "{log:?}");
    assert_eq!(log.iter().filter(|e| *e == "closed" || *e == "inactive").count(), 2);
    end(&group);
}

#[test]
fn c_05_a_refused_connection_has_no_handler_and_no_events() {
    let group = one_loop();
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    let client = ClientBootstrap::new(&group).pipeline(move |_| {
        handler_log.push("factory");
        lines(Recorder::new(&handler_log))
    });
    let refused = done(client.connect(free)).unwrap_err();
    assert_eq!(refused.io_kind(), Some(std::io::ErrorKind::ConnectionRefused), "{refused}");
    end(&group);
    assert_eq!(log.take(), [""; 0], "neither active nor inactive, not even a pipeline");
}

#[test]
fn c_07_inactive_is_never_called_within_a_read() {
    for now in [false, true] {
        let log = Log::new();
        let inner = log.clone();
        let mut channel = embedded(Recorder::with(&log, move |ctx, call| {
            if let Event::Read(_) = call {
                if now {
                    ctx.close_now();
                } else {
                    ctx.close();
                }
                inner.push("end of read");
            }
            Ok(())
        }));
        channel.write_inbound(b"one\ntwo\n").unwrap();
        assert_eq!(log.take(), ["active", "read one", "end of read", "inactive", "drop"]);
        assert!(channel.is_closed());
    }
}

fn c_07_over_tcp_inactive_is_never_called_within_a_read() {
    let group = one_loop();
    for now in [false, true] {
        let log = Log::new();
        let handler_log = log.clone();
        let server = ServerBootstrap::new(&group)
            .pipeline(move |_| {
                let inner = handler_log.clone();
                lines(Recorder::with(&handler_log, move |ctx, call| {
                    if let Event::Read(_) = call {
                        if now {
                            ctx.close_now();
                        } else {
                            ctx.close();
                        }
                        inner.push("end of read");
                    }
                    Ok(())
                }))
            })
            .bind(anywhere())
            .unwrap();
        let mut peer = connect(&server);
        peer.write_all(b"one\ntwo\n").unwrap();
        read_to_end(&mut peer);
        log.wait_for("drop");
        assert_eq!(log.take(), ["active", "read one", "end of read", "inactive", "drop"]);
        done(server.close()).unwrap();
    }
    end(&group);
}

#[test]
fn c_08_closing_repeatedly_runs_each_callback_once() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    let handle = channel.channel();
    for n in 0..2 {
        let (again, closed_log) = (handle.clone(), log.clone());
        handle.closed().on_complete(move |result| {
            result.unwrap();
            again.close();
            again.close_now();
            closed_log.push(format!("closed {n}"));
        });
    }
    handle.close();
    handle.close();
    handle.close_now();
    channel.run_pending();
    channel.close();
    handle.close();
    channel.run_pending();
    assert_eq!(log.take(), ["active", "closed 0", "closed 1", "inactive", "drop"]);
    assert!(handle.closed().is_done(), "a completion requested later is done at once");
    done(handle.closed()).unwrap();
    assert!(!handle.is_open() && !handle.is_writable());
}

#[test]
fn c_08_a_close_during_a_close_completes_with_it() {
    let log = Log::new();
    let mut channel = embedded(Recorder::new(&log));
    let handle = channel.channel();
    channel.set_outbound_room(Some(0));
    handle.write("waits".into()).unwrap();
    handle.close();
    channel.run_pending();
    let first = handle.closed();
    handle.close();
    channel.run_pending();
    let second = handle.closed();
    assert!(!first.is_done() && !second.is_done());
    assert!(!handle.is_open(), "is_open is false as soon as the channel is closing");
    channel.set_outbound_room(None);
    assert!(first.is_done() && second.is_done());
    assert_eq!(log.take(), ["active", "inactive", "drop"]);
}

/// One thread registers the callbacks and requests the close, the thread of the loop closes. The
/// third callback registers a fourth while it runs.
#[test]
fn c_33_close_callbacks_run_on_the_loop_in_order_of_registration() {
    const BATCHES: usize = 40;
    const BATCH: usize = 1000;

    struct Announced(mpsc::Sender<Channel<Bytes>>);
    impl Handler for Announced {
        type Read = Bytes;
        type Write = Bytes;
        fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
            self.0.send(ctx.channel()).map_err(|_| "the test has ended".into())
        }
        fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
            Ok(())
        }
    }

    let (opened, channels) = mpsc::channel();
    thread::scope(|scope| {
        let owner = scope.spawn(move || {
            let mut event_loop = EmbeddedLoop::new();
            for _ in 0..BATCHES {
                let pipeline = || Pipeline::codec(Line::new()).handler(Announced(opened.clone()));
                let ids: Vec<_> = (0..BATCH).map(|_| event_loop.open(pipeline())).collect();
                wait_until("the closes", || {
                    event_loop.run_pending();
                    ids.iter().rev().all(|id| event_loop.is_closed(*id))
                });
                ids.into_iter().for_each(|id| event_loop.remove(id));
            }
        });
        let (called, calls) = mpsc::channel();
        for (round, channel) in channels.iter().enumerate() {
            let note = |n| {
                let called = called.clone();
                move |_| called.send((round, n, thread::current().id())).unwrap()
            };
            channel.closed().on_complete(note(1));
            channel.closed().on_complete(note(2));
            let (third, fourth, again) = (note(3), note(4), channel.clone());
            channel.closed().on_complete(move |result| {
                third(result);
                again.closed().on_complete(fourth);
            });
            channel.close();
        }
        let owner_thread = owner.thread().id();
        owner.join().unwrap();
        drop(called);
        let mut called = vec![0; BATCHES * BATCH];
        for (round, n, thread) in calls {
            called[round] += 1;
            assert_eq!((n, thread), (called[round], owner_thread), "round {round}");
        }
        assert!(called.iter().all(|calls| *calls == 4));
    });
}

fn c_08_over_tcp_closing_repeatedly_runs_each_callback_once() {
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let (hand_over, channels) = hand_over();
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| lines(Recorder::with(&handler_log, hand_over.clone())))
        .bind(anywhere())
        .unwrap();
    let mut peer = connect(&server);
    let channel = channels.recv().unwrap();
    let (first, second) = (channel.closed(), channel.closed());
    channel.close();
    channel.close();
    channel.close_now();
    assert!(read_to_end(&mut peer).is_empty());
    done(first).unwrap();
    done(second).unwrap();
    channel.close();
    end(&group);
    assert_eq!(log.take(), ["active", "inactive", "drop"]);
}

fn c_24_a_failing_factory_affects_only_its_own_connection() {
    logs::quiet_panics();
    let group = one_loop();
    let log = Log::new();
    let handler_log = log.clone();
    let count = Mutex::new(0);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |_| {
            let n = {
                let mut count = count.lock().unwrap();
                *count += 1;
                *count
            };
            match n {
                2 => Err(Error::from("no pipeline for you")),
                3 => panic!("factory on purpose"),
                _ => Ok(lines(Recorder::with(&handler_log, |ctx, call| match call {
                    Event::Read(message) => ctx.write(message.clone()),
                    _ => Ok(()),
                }))),
            }
        })
        .bind(anywhere())
        .unwrap();
    let mut first = connect(&server);
    ask(&mut first, "one\n", "one\n");
    for _ in 0..2 {
        assert!(read_to_end(&mut connect(&server)).is_empty());
    }
    ask(&mut first, "two\n", "two\n");
    let mut fourth = connect(&server);
    ask(&mut fourth, "three\n", "three\n");
    assert_eq!(log.count("active"), 2);
    end(&group);
}

/// C-71: the socket is closed as well.
#[test]
fn c_24_a_failing_client_factory_fails_the_connect() {
    logs::quiet_panics();
    let group = one_loop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| -> Result<netwheel::Pipeline<Bytes>> { Err("no pipeline for you".into()) });
    let failed = done(client.connect(address)).unwrap_err();
    assert_eq!(failed.to_string(), "no pipeline for you");
    assert!(read_to_end(&mut listener.accept().unwrap().0).is_empty(), "the socket is closed");
    let client = ClientBootstrap::new(&group)
        .pipeline(|_| -> netwheel::Pipeline<Bytes> { panic!("factory on purpose") });
    let failed = done(client.connect(address)).unwrap_err();
    assert!(matches!(&failed, Error::Panicked(text) if &**text == "factory on purpose"), "{failed}");
    assert!(read_to_end(&mut listener.accept().unwrap().0).is_empty(), "the socket is closed");
    end(&group);
}

// There is no handler before the connection, so the earliest possible read request is in `active`.
#[test]
fn c_65_a_read_requested_before_data_arrives_waits_for_it() {
    let log = Log::new();
    let options = ChannelOptions::new().auto_read(false);
    let mut channel = embedded_with(&options, Recorder::with(&log, read_once));
    channel.run_pending();
    assert_eq!(log.take(), ["active"], "nothing was read or closed early");
    channel.write_inbound(b"one\n").unwrap();
    assert_eq!(log.take(), ["read one", "read_complete"]);
    channel.write_inbound(b"two\n").unwrap();
    assert_eq!(log.take(), [""; 0], "one request allows one read");
    assert!(channel.is_open());
}

#[test]
fn c_65_over_tcp_a_read_requested_before_data_arrives_waits_for_it() {
    let group = one_loop();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let log = Log::new();
    let handler_log = log.clone();
    let client = ClientBootstrap::new(&group)
        .channel_options(ChannelOptions::new().auto_read(false))
        .pipeline(move |_| {
            lines(Recorder::with(&handler_log, |ctx, call| {
                if call.is_active() {
                    ctx.read();
                }
                Ok(())
            }))
        });
    let channel = done(client.connect(listener.local_addr().unwrap())).unwrap();
    let (mut peer, _) = listener.accept().unwrap();
    log.wait_for("active");
    // This task runs after the loop has polled the new socket, and nothing has been read by then.
    done(group.next().schedule(Duration::from_millis(1), || ()).unwrap().completion()).unwrap();
    assert_eq!(log.all(), ["active"]);
    assert!(channel.is_open());
    peer.write_all(b"one\n").unwrap();
    log.wait_for("read one");
    end(&group);
}

over_each_transport! {
    c_04_over_tcp_closed_precedes_inactive_and_the_peer_receives_every_byte,
    c_07_over_tcp_inactive_is_never_called_within_a_read,
    c_08_over_tcp_closing_repeatedly_runs_each_callback_once,
    c_24_a_failing_factory_affects_only_its_own_connection,
}
