//! The program's own event sources on a loop: readiness, ends, bounds, rebuilds.

#![cfg(unix)]

use crate::support::loops::end;
use crate::support::{
    logs,
    loops::{Gate, manual, on, settle, single},
    wait::{PATIENCE, done},
};
use netwheel::{
    Error, EventLoop, EventLoopGroup, Result,
    diagnostics::Watchdog,
    error::Resource,
    event_source::{Interest, Readiness, SourceAction, SourceContext, SourceHandle},
    shutdown::ShutdownOptions,
};
use std::{
    fs::File,
    io::{ErrorKind, Read, Write},
    net::UdpSocket,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::net::UnixStream,
    },
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc::{Receiver, Sender, channel},
    },
    time::Duration,
};

/// Returns a new loop.
fn one() -> (EventLoopGroup, EventLoop) {
    single(EventLoopGroup::builder())
}

/// Returns a pair of streams, the second of which is for a loop.
fn pair() -> (UnixStream, UnixStream) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    (ours, theirs)
}

/// A callback for a source of type `S`.
trait Callback<S>: FnMut(&mut SourceContext<'_>, &mut S) -> Result<SourceAction> + Send + 'static {}

impl<S, F: FnMut(&mut SourceContext<'_>, &mut S) -> Result<SourceAction> + Send + 'static> Callback<S> for F {}

#[track_caller]
fn register<S: AsFd + Send + 'static>(
    event_loop: &EventLoop,
    source: S,
    interest: Interest,
    callback: impl Callback<S>,
) -> SourceHandle<S> {
    done(event_loop.register(source, interest, callback).unwrap()).unwrap()
}

/// Sends the bytes that can be read to the test, and deregisters the source at the end of the
/// stream.
fn drain<S: Read + 'static>(sender: Sender<Vec<u8>>) -> impl Callback<S> {
    move |_: &mut SourceContext<'_>, source: &mut S| {
        let mut buffer = [0; 4096];
        loop {
            match source.read(&mut buffer) {
                Ok(0) => return Ok(SourceAction::Deregister),
                Ok(n) => sender.send(buffer[..n].to_vec()).map_err(Error::other)?,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(SourceAction::Continue),
                Err(e) => return Err(Error::io("reading", e)),
            }
        }
    }
}

/// Receives exactly these bytes, in any pieces.
#[track_caller]
fn expect(receiver: &Receiver<Vec<u8>>, bytes: &[u8]) {
    let mut got = Vec::new();
    while got.len() < bytes.len() {
        got.extend(receiver.recv_timeout(PATIENCE).expect("the source was not read"));
    }
    assert_eq!(got, bytes);
}

// ---- kinds of sources --------------------------------------------------------------------------

#[test]
fn a_foreign_stream_is_read_on_the_loop_until_its_end() {
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    // Bytes that have already arrived are reported too.
    ours.write_all(b"early").unwrap();
    let (sender, bytes) = channel();
    let on_loop = event_loop.clone();
    let mut read = drain(sender);
    let handle =
        register(&event_loop, theirs, Interest::READABLE, move |ctx: &mut SourceContext<'_>, s: &mut _| {
            assert!(on_loop.in_event_loop() && ctx.event_loop().in_event_loop());
            assert!(ctx.readiness().is_readable());
            read(ctx, s)
        });
    expect(&bytes, b"early");
    for text in [&b"one"[..], b"two", b"three"] {
        ours.write_all(text).unwrap();
        expect(&bytes, text);
    }
    assert_eq!(event_loop.metrics().event_sources, 1);
    let ended = handle.closed();
    drop(ours);
    done(ended).unwrap();
    assert!(!handle.is_registered());
    assert!(matches!(handle.deregister(), Err(Error::Closed)));
    assert!(matches!(handle.set_interest(Interest::BOTH), Err(Error::Closed)));
    done(handle.closed()).unwrap();
    settle(&event_loop);
    assert_eq!(event_loop.metrics().event_sources, 0);
    end(&group);
}

#[test]
fn a_foreign_datagram_socket_answers_from_the_loop() {
    let (group, event_loop) = one();
    let theirs = UdpSocket::bind("127.0.0.1:0").unwrap();
    theirs.set_nonblocking(true).unwrap();
    let address = theirs.local_addr().unwrap();
    register(&event_loop, theirs, Interest::READABLE, |_: &mut SourceContext<'_>, socket: &mut UdpSocket| {
        let mut buffer = [0; 64];
        while let Ok((n, from)) = socket.recv_from(&mut buffer) {
            socket.send_to(&buffer[..n], from).map_err(|e| Error::io("answering", e))?;
        }
        Ok(SourceAction::Continue)
    });
    let ours = UdpSocket::bind("127.0.0.1:0").unwrap();
    ours.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut buffer = [0; 64];
    for text in [&b"ping"[..], b"pong"] {
        ours.send_to(text, address).unwrap();
        let n = ours.recv(&mut buffer).unwrap();
        assert_eq!(&buffer[..n], text);
    }
    end(&group);
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use super::*;
    use rustix::{
        event::{EventfdFlags, eventfd},
        fs::inotify,
        pipe::{PipeFlags, pipe_with},
        time::{
            Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
            timerfd_settime,
        },
    };
    use std::os::fd::OwnedFd;

    #[test]
    fn a_pipe_reports_input_room_and_its_end() {
        let (group, event_loop) = one();
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK).unwrap();
        let (reader, mut writer) = (File::from(reader), File::from(writer));
        // Fill the pipe, so that it is not writable at first.
        let mut filled = 0;
        while let Ok(n) = writer.write(&[7; 4096]) {
            filled += n;
        }
        let (sender, rooms) = channel();
        let room = register(
            &event_loop,
            writer,
            Interest::WRITABLE,
            move |ctx: &mut SourceContext<'_>, pipe: &mut File| {
                if ctx.readiness().is_writable() {
                    pipe.write_all(b"more").map_err(|e| Error::io("writing", e))?;
                    let _ = sender.send(());
                    return Ok(SourceAction::Deregister);
                }
                Ok(SourceAction::Continue)
            },
        );
        settle(&event_loop);
        assert!(rooms.try_recv().is_err(), "a full pipe is not writable");
        let (sender, bytes) = channel();
        let source = register(&event_loop, reader, Interest::READABLE, drain(sender));
        let ended = source.closed();
        rooms.recv_timeout(PATIENCE).unwrap();
        // The callback has dropped the writing end, so the reading end reaches the end of the
        // stream.
        done(ended).unwrap();
        done(room.closed()).unwrap();
        let read: Vec<u8> = bytes.try_iter().flatten().collect();
        assert_eq!((read.len(), &read[filled..]), (filled + 4, &b"more"[..]));
        end(&group);
    }

    /// Reads an 8-byte number from an eventfd or timerfd.
    fn number(source: &mut File) -> std::io::Result<u64> {
        let mut bytes = [0; 8];
        source.read_exact(&mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn numbers(sender: Sender<u64>) -> impl Callback<File> {
        move |_: &mut SourceContext<'_>, source: &mut File| match number(source) {
            Ok(n) => {
                sender.send(n).map_err(Error::other)?;
                Ok(SourceAction::Again)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(SourceAction::Continue),
            Err(e) => Err(Error::io("reading", e)),
        }
    }

    #[test]
    fn an_eventfd_is_read_whenever_it_is_written() {
        let (group, event_loop) = one();
        let ours = File::from(eventfd(0, EventfdFlags::NONBLOCK).unwrap());
        let (sender, counts) = channel();
        register(&event_loop, ours.try_clone().unwrap(), Interest::READABLE, numbers(sender));
        for n in 1..5u64 {
            (&ours).write_all(&n.to_ne_bytes()).unwrap();
            assert_eq!(counts.recv_timeout(PATIENCE).unwrap(), n);
        }
        end(&group);
    }

    #[test]
    fn a_timerfd_expires_on_the_loop_repeatedly() {
        let (group, event_loop) = one();
        let timer = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::NONBLOCK).unwrap();
        let millisecond = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };
        let setting = Itimerspec { it_interval: millisecond, it_value: millisecond };
        timerfd_settime(&timer, TimerfdTimerFlags::empty(), &setting).unwrap();
        let (sender, expirations) = channel();
        register(&event_loop, File::from(timer), Interest::READABLE, numbers(sender));
        for _ in 0..3 {
            assert!(expirations.recv_timeout(PATIENCE).unwrap() > 0);
        }
        end(&group);
    }

    #[test]
    fn inotify_reports_files() {
        let (group, event_loop) = one();
        let directory = std::env::temp_dir().join(format!("netwheel-inotify-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let watcher = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&watcher, &directory, inotify::WatchFlags::CREATE).unwrap();
        let (sender, events) = channel();
        register(&event_loop, File::from(watcher), Interest::READABLE, drain(sender));
        std::fs::write(directory.join("made"), b"").unwrap();
        let event = events.recv_timeout(PATIENCE).unwrap();
        assert!(event.windows(4).any(|name| name == b"made"));
        std::fs::remove_dir_all(&directory).unwrap();
        end(&group);
    }

    /// Its descriptor is replaced by that of a plain file, which no poll accepts.
    #[test]
    fn a_source_that_a_rebuild_cannot_move_ends_without_affecting_others() {
        let (group, event_loop) = one();
        let (mut ours, theirs) = pair();
        let (sender, bytes) = channel();
        register(&event_loop, theirs, Interest::READABLE, drain(sender));
        let doomed = eventfd(1, EventfdFlags::NONBLOCK).unwrap();
        let (sender, called) = channel();
        let handle = register(
            &event_loop,
            doomed,
            Interest::READABLE,
            move |_: &mut SourceContext<'_>, s: &mut OwnedFd| {
                let file = File::open(std::env::current_exe().unwrap()).unwrap();
                rustix::io::dup2(&file, s).unwrap();
                sender.send(()).unwrap();
                Ok(SourceAction::Continue)
            },
        );
        called.recv_timeout(PATIENCE).unwrap();
        let report = done(event_loop.rebuild_poll().unwrap()).unwrap();
        assert_eq!((report.moved, report.closed), (1, 1));
        assert!(matches!(done(handle.closed()), Err(Error::Io { operation: "moving to a new poll", .. })));
        ours.write_all(b"x").unwrap();
        expect(&bytes, b"x");
        end(&group);
    }

    #[test]
    fn a_source_that_the_poll_refuses_is_an_error_and_leaves_its_slot() {
        let (group, event_loop) = single(EventLoopGroup::builder().max_event_sources(2));
        let ignore = |_: &mut SourceContext<'_>, _: &mut File| Ok(SourceAction::Continue);
        for _ in 0..3 {
            let file = File::open(std::env::current_exe().unwrap()).unwrap();
            let refused = done(event_loop.register(file, Interest::READABLE, ignore).unwrap());
            assert!(matches!(refused, Err(Error::Io { operation: "registering an event source", .. })));
        }
        assert_eq!(event_loop.metrics().event_sources, 0);
        end(&group);
    }
}

// ---- readiness ---------------------------------------------------------------------------------

#[test]
fn a_callback_may_stop_early_and_continue_in_the_next_turn() {
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    ours.write_all(b"abc").unwrap();
    let (sender, bytes) = channel();
    let turns = event_loop.clone();
    register(
        &event_loop,
        theirs,
        Interest::READABLE,
        move |ctx: &mut SourceContext<'_>, s: &mut UnixStream| {
            let mut byte = [0];
            match s.read(&mut byte) {
                Ok(n) => {
                    assert_eq!(n, 1);
                    assert!(ctx.readiness().is_readable(), "the source remains ready");
                    sender.send((byte[0], turns.metrics().turns)).unwrap();
                    Ok(SourceAction::Again)
                }
                Err(_) => Ok(SourceAction::Continue),
            }
        },
    );
    let got = [(); 3].map(|()| bytes.recv_timeout(PATIENCE).unwrap());
    assert_eq!(got.map(|(byte, _)| byte), *b"abc");
    assert!(got[0].1 < got[1].1 && got[1].1 < got[2].1, "one call per turn: {got:?}");
    end(&group);
}

#[test]
fn set_interest_rearms_a_source_from_another_thread_and_from_its_callback() {
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    let (sender, calls) = channel();
    let handle = register(
        &event_loop,
        theirs,
        Interest::READABLE,
        move |ctx: &mut SourceContext<'_>, s: &mut UnixStream| {
            let readiness = ctx.readiness();
            sender.send((ctx.interest(), readiness.is_readable(), readiness.is_writable())).unwrap();
            if ctx.interest() == Interest::WRITABLE {
                s.write_all(b"room").unwrap();
                // The source was not drained, and is reported nevertheless.
                ctx.set_interest(Interest::READABLE);
            }
            Ok(SourceAction::Continue)
        },
    );
    let next = || calls.recv_timeout(PATIENCE).unwrap();
    ours.write_all(b"left").unwrap();
    assert_eq!(next(), (Interest::READABLE, true, false));
    handle.set_interest(Interest::READABLE).unwrap();
    assert_eq!(next(), (Interest::READABLE, true, false), "reported again without new bytes");
    handle.set_interest(Interest::WRITABLE).unwrap();
    let (interest, _, writable) = next();
    assert_eq!((interest, writable), (Interest::WRITABLE, true));
    assert_eq!(next(), (Interest::READABLE, true, false), "re-armed by the callback");
    let mut answer = [0; 4];
    ours.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"room");
    end(&group);
}

#[test]
fn an_end_of_stream_is_readable_and_reported_as_an_end() {
    let (group, event_loop) = one();
    let (ours, theirs) = pair();
    let (sender, calls) = channel();
    // Even if the interest is only in writability.
    register(
        &event_loop,
        theirs,
        Interest::WRITABLE,
        move |ctx: &mut SourceContext<'_>, _: &mut UnixStream| {
            sender.send(ctx.readiness()).unwrap();
            Ok(SourceAction::Continue)
        },
    );
    drop(ours);
    loop {
        let readiness: Readiness = calls.recv_timeout(PATIENCE).unwrap();
        if readiness.is_read_closed() {
            assert!(readiness.is_readable() && readiness.is_write_closed());
            break;
        }
    }
    end(&group);
}

// ---- ends --------------------------------------------------------------------------------------

/// A stream that counts its drops.
struct Counted(UnixStream, Arc<AtomicUsize>);

impl AsFd for Counted {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_add(1, SeqCst);
    }
}

#[test]
fn a_deregistered_source_is_returned_and_its_callback_not_called_again() {
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handle = register(
        &event_loop,
        theirs,
        Interest::READABLE,
        move |_: &mut SourceContext<'_>, _: &mut UnixStream| {
            counted.fetch_add(1, SeqCst);
            Ok(SourceAction::Continue)
        },
    );
    let (again, ended) = (handle.clone(), handle.closed());
    let mut theirs = done(handle.deregister().unwrap()).unwrap();
    assert_eq!(Arc::strong_count(&calls), 1, "the callback is dropped");
    done(ended).unwrap();
    assert!(matches!(again.deregister(), Err(Error::Closed)));
    ours.write_all(b"late").unwrap();
    settle(&event_loop);
    assert_eq!(calls.load(SeqCst), 0);
    let mut text = [0; 4];
    theirs.read_exact(&mut text).unwrap();
    assert_eq!(&text, b"late");
    // The source may be registered again.
    let (sender, bytes) = channel();
    register(&event_loop, theirs, Interest::READABLE, drain(sender));
    ours.write_all(b"again").unwrap();
    expect(&bytes, b"again");
    end(&group);
}

#[test]
fn two_deregistrations_return_the_source_once() {
    let (group, event_loop) = one();
    let (_ours, theirs) = pair();
    let ignore = |_: &mut SourceContext<'_>, _: &mut UnixStream| Ok(SourceAction::Continue);
    let handle = register(&event_loop, theirs, Interest::READABLE, ignore);
    let gate = Gate::shut(&event_loop);
    let (first, second) = (handle.deregister().unwrap(), handle.deregister().unwrap());
    drop(gate);
    done(first).unwrap();
    assert!(matches!(done(second), Err(Error::Closed)));
    end(&group);
}

/// Events race with deregistrations and with ends from the callback. Each source ends once, and no
/// callback runs afterwards.
#[test]
fn deregistration_races_with_events_and_with_the_end_from_the_callback() {
    let (group, event_loop) = one();
    let drops = Arc::new(AtomicUsize::new(0));
    let mut back = 0;
    for n in 0..200 {
        let (mut ours, theirs) = pair();
        let source = Counted(theirs, drops.clone());
        let callback = move |_: &mut SourceContext<'_>, source: &mut Counted| {
            let _ = source.0.read(&mut [0; 16]);
            Ok(if n % 2 == 0 { SourceAction::Deregister } else { SourceAction::Again })
        };
        let handle = register(&event_loop, source, Interest::BOTH, callback);
        let writer = std::thread::spawn(move || ours.write_all(b"x"));
        match handle.deregister().map(done) {
            Ok(Ok(source)) => {
                back += 1;
                drop(source);
            }
            Ok(Err(Error::Closed)) | Err(Error::Closed) => {}
            other => panic!("{:?}", other.map(|back| back.map(|_| ()))),
        }
        done(handle.closed()).unwrap();
        let _ = writer.join().unwrap();
    }
    assert_eq!(drops.load(SeqCst), 200);
    assert!(back >= 100, "sources that do not end by themselves are returned");
    settle(&event_loop);
    assert_eq!(event_loop.metrics().event_sources, 0);
    end(&group);
}

#[test]
fn an_error_or_panic_of_a_callback_ends_only_its_source() {
    logs::collect();
    let (group, event_loop) = one();
    let drops = Arc::new(AtomicUsize::new(0));
    for panics in [false, true] {
        let (mut ours, theirs) = pair();
        let source = Counted(theirs, drops.clone());
        let handle = register(
            &event_loop,
            source,
            Interest::READABLE,
            move |_: &mut SourceContext<'_>, _: &mut Counted| {
                if panics { panic!("on purpose") } else { Err("wrong on purpose".into()) }
            },
        );
        let (first, second) = (handle.closed(), handle.closed());
        ours.write_all(b"x").unwrap();
        for ended in [first, second, handle.closed()] {
            match done(ended) {
                Err(Error::Panicked(message)) if panics => assert_eq!(&*message, "on purpose"),
                Err(Error::Other(error)) if !panics => assert_eq!(error.to_string(), "wrong on purpose"),
                other => panic!("{other:?}"),
            }
        }
    }
    assert_eq!(drops.load(SeqCst), 2);
    settle(&event_loop);
    let metrics = event_loop.metrics();
    assert_eq!((metrics.event_sources, metrics.event_source_errors), (0, 2));
    let lost = logs::lines_with(&format!("the event source registered at {}:", file!()));
    assert!(lost.iter().any(|line| line.starts_with("ERROR") && line.ends_with("on purpose")), "{lost:?}");
    assert!(
        lost.iter().any(|line| line.starts_with("WARN") && line.ends_with("wrong on purpose")),
        "{lost:?}"
    );
    end(&group);
}

#[test]
fn a_source_and_a_callback_may_panic_when_dropped() {
    struct Bomb(UnixStream);
    impl AsFd for Bomb {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.0.as_fd()
        }
    }
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("dropped on purpose");
        }
    }
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    let handle =
        register(&event_loop, Bomb(theirs), Interest::READABLE, |_: &mut SourceContext<'_>, _: &mut Bomb| {
            Ok(SourceAction::Deregister)
        });
    ours.write_all(b"x").unwrap();
    done(handle.closed()).unwrap();
    assert_eq!(on(&event_loop, || 1), 1, "the loop survives");
    end(&group);
}

/// By then the descriptor number may belong to another source of the loop.
#[test]
fn a_callback_that_replaces_the_descriptor_loses_only_its_own_source() {
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    let (_spare, replacement) = pair();
    let mut replacement = Some(replacement);
    let handle = register(
        &event_loop,
        theirs,
        Interest::READABLE,
        move |_: &mut SourceContext<'_>, s: &mut UnixStream| {
            *s = replacement.take().expect("the callback is called only once");
            Ok(SourceAction::Continue)
        },
    );
    ours.write_all(b"x").unwrap();
    assert!(matches!(done(handle.closed()), Err(Error::Other(_))));
    end(&group);
}

#[test]
fn a_loop_that_ends_drops_its_sources_without_waiting_for_them() {
    let (group, event_loop) = one();
    let drops = Arc::new(AtomicUsize::new(0));
    let (_ours, theirs) = pair();
    let ignore = |_: &mut SourceContext<'_>, _: &mut Counted| Ok(SourceAction::Continue);
    let handle = register(&event_loop, Counted(theirs, drops.clone()), Interest::READABLE, ignore);
    let ended = handle.closed();
    // The loop must end before this timeout.
    done(
        group
            .shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::from_secs(3600))),
    )
    .unwrap();
    assert!(matches!(done(ended), Err(Error::ShutDown)));
    assert_eq!(drops.load(SeqCst), 1);
    assert!(matches!(handle.deregister(), Err(Error::Closed)));
    let (_ours, theirs) = pair();
    match event_loop.register(Counted(theirs, drops.clone()), Interest::READABLE, ignore) {
        Err(refused) if matches!(refused.error(), Error::ShutDown) => drop(refused.into_inner()),
        other => panic!("{other:?}"),
    }
    assert_eq!(drops.load(SeqCst), 2);
}

#[test]
fn a_source_works_while_the_loop_shuts_down() {
    // Time stands still, so the quiet period lasts until the test advances the clock.
    let (event_loop, clock) = manual();
    let (mut ours, theirs) = pair();
    let (sender, bytes) = channel();
    register(&event_loop, theirs, Interest::READABLE, drain(sender));
    let down = event_loop.shutdown(
        ShutdownOptions::new().quiet_period(Duration::from_secs(1)).timeout(Duration::from_secs(60)),
    );
    ours.write_all(b"still there").unwrap();
    expect(&bytes, b"still there");
    let (_ours, theirs) = pair();
    let ignore = |_: &mut SourceContext<'_>, _: &mut UnixStream| Ok(SourceAction::Continue);
    match event_loop.register(theirs, Interest::READABLE, ignore) {
        Ok(completion) => assert!(matches!(done(completion), Err(Error::ShutDown))),
        Err(refused) => assert!(matches!(refused.error(), Error::ShutDown)),
    }
    clock.advance(Duration::from_secs(60));
    done(down).unwrap();
}

// ---- bounds ------------------------------------------------------------------------------------

#[test]
fn registrations_beyond_the_limit_return_the_source() {
    assert!(EventLoopGroup::builder().max_event_sources(0).build().is_err());
    let (group, event_loop) = single(EventLoopGroup::builder().max_event_sources(2));
    let ignore = |_: &mut SourceContext<'_>, _: &mut UnixStream| Ok(SourceAction::Continue);
    let kept = [(); 2].map(|()| register(&event_loop, pair().1, Interest::READABLE, ignore));
    let (_ours, theirs) = pair();
    let refused = event_loop.register(theirs, Interest::READABLE, ignore).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { resource: Resource::EventSources, limit: 2, .. }));
    // The peers' ends are closed; only the handles remain.
    drop(done(kept[0].deregister().unwrap()).unwrap());
    let again = register(&event_loop, refused.into_inner(), Interest::READABLE, ignore);
    assert!(again.is_registered());
    end(&group);
}

#[test]
fn a_full_queue_hands_the_source_back_and_accepts_a_deregistration() {
    let (group, event_loop) = single(EventLoopGroup::builder().max_pending_tasks(16));
    let ignore = |_: &mut SourceContext<'_>, _: &mut UnixStream| Ok(SourceAction::Continue);
    let handle = register(&event_loop, pair().1, Interest::READABLE, ignore);
    let gate = Gate::shut(&event_loop);
    while event_loop.execute(|| ()).is_ok() {}
    let (_ours, theirs) = pair();
    let refused = event_loop.register(theirs, Interest::READABLE, ignore).unwrap_err();
    assert!(matches!(refused.error(), Error::Full { .. }));
    assert!(matches!(handle.set_interest(Interest::BOTH), Err(Error::Full { .. })));
    let back = handle.deregister().unwrap();
    drop(gate);
    done(back).unwrap();
    end(&group);
}

/// Turn by turn: a source that is always ready gets one call per turn, and other work runs beside
/// it.
#[test]
fn a_busy_source_is_called_once_a_turn_and_others_get_their_share() {
    let mut by_hand = EventLoopGroup::builder().build_manual().unwrap();
    let event_loop = by_hand.event_loop().clone();
    let calls: [Arc<AtomicUsize>; 3] = Default::default();
    let mut streams = Vec::new();
    for counter in &calls {
        let (mut ours, theirs) = pair();
        ours.write_all(&[0; 1000]).unwrap();
        let counter = counter.clone();
        let callback = move |_: &mut SourceContext<'_>, s: &mut UnixStream| {
            let _ = s.read(&mut [0]);
            counter.fetch_add(1, SeqCst);
            Ok(SourceAction::Again)
        };
        let registered = event_loop.register(theirs, Interest::READABLE, callback).unwrap();
        by_hand.run_until(registered).unwrap();
        streams.push(ours);
    }
    by_hand.run_once(Duration::ZERO);
    let before = calls.each_ref().map(|counter| counter.load(SeqCst));
    for turn in 1..=50 {
        // A new event for a listed source does not give it a second call in the turn.
        streams[0].write_all(b"x").unwrap();
        let ran = Arc::new(AtomicUsize::new(0));
        let task = ran.clone();
        event_loop.execute(move || _ = task.fetch_add(1, SeqCst)).unwrap();
        by_hand.run_once(Duration::ZERO);
        assert_eq!(ran.load(SeqCst), 1, "tasks get their share");
        for (counter, before) in calls.iter().zip(before) {
            assert_eq!(counter.load(SeqCst), before + turn);
        }
    }
}

#[test]
fn the_watchdog_names_the_source_that_holds_up_its_loop() {
    let (stalls, stalled) = channel();
    let stalls = std::sync::Mutex::new(stalls);
    let watchdog = Watchdog::new(Duration::from_millis(20))
        .on_stall(move |stall| drop(stalls.lock().unwrap().send(stall.clone())));
    let (group, event_loop) = single(EventLoopGroup::builder().watchdog(watchdog));
    let (mut ours, theirs) = pair();
    let (release, held) = channel::<()>();
    let line = line!() + 1;
    let registered = event_loop.register(theirs, Interest::READABLE, move |_, _: &mut UnixStream| {
        let _ = held.recv_timeout(PATIENCE);
        Ok(SourceAction::Continue)
    });
    done(registered.unwrap()).unwrap();
    ours.write_all(b"x").unwrap();
    // Other turns may take long too, on a busy machine.
    loop {
        let stall = stalled.recv_timeout(PATIENCE).expect("a stall is reported");
        if stall.task.is_some_and(|task| task.file().ends_with("event_sources.rs") && task.line() == line) {
            break;
        }
    }
    drop(release);
    end(&group);
}

// ---- rebuilds ----------------------------------------------------------------------------------

#[test]
fn sources_survive_rebuilds_with_their_interest_and_lose_no_event() {
    let (group, event_loop) = one();
    let (mut ours, theirs) = pair();
    let (sender, bytes) = channel();
    register(&event_loop, theirs, Interest::READABLE, drain(sender));
    for n in 0..20u8 {
        // The bytes arrive during the rebuild, before it and after it.
        let gate = Gate::shut(&event_loop);
        ours.write_all(&[n]).unwrap();
        let rebuilt = event_loop.rebuild_poll().unwrap();
        drop(gate);
        let report = done(rebuilt).unwrap();
        assert_eq!((report.moved, report.closed), (1, 0));
        expect(&bytes, &[n]);
        ours.write_all(&[n]).unwrap();
        expect(&bytes, &[n]);
    }
    end(&group);
}
