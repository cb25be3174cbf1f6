//! The watchdog reports once which loop is stuck and in which callback, and does not report loops
//! that sleep or turn. `system/sigstop.rs` tests a process that is stopped as a whole.
//!
//! A stuck loop is a loop that a test blocks in a callback until the expected report has arrived.

use crate::support::{
    logs,
    loops::{Gate, end, flood, on, settle},
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms, wait_until},
};
use bytes::Bytes;
use netwheel::{
    ChannelId, Context, Error, EventLoop, EventLoopGroup, Handler, Pipeline, Result, Server, ServerBootstrap,
    codec::RawBytes,
    diagnostics::{LoopPhase, Stall, Watchdog},
    shutdown::ShutdownOptions,
    testing::ManualClock,
};
use std::{
    collections::HashSet,
    io::{Read, Write},
    sync::{
        Arc, Mutex,
        mpsc::{self, Receiver, Sender},
    },
    thread,
    time::Duration,
};

/// Long enough that a loop that does not get the CPU of a busy machine does not look stuck.
const LIMIT: Duration = ms(600);

/// Calls of the watchdog's callbacks, in order.
#[derive(Debug)]
enum Report {
    Stuck(Stall),
    Over(Stall),
}

/// The receiving end of the watchdog's callbacks.
struct Reports(Receiver<Report>);

impl Reports {
    #[track_caller]
    fn next(&self) -> Report {
        self.0.recv_timeout(PATIENCE).expect("the watchdog reported nothing")
    }

    #[track_caller]
    fn stuck(&self) -> Stall {
        match self.next() {
            Report::Stuck(stall) => stall,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn over(&self) -> Stall {
        match self.next() {
            Report::Over(stall) => stall,
            other => panic!("{other:?}"),
        }
    }

    /// Checks that no further report arrives until the callbacks are dropped. The watchdog's thread
    /// has ended by then.
    #[track_caller]
    fn assert_no_more(self) {
        match self.0.recv_timeout(PATIENCE) {
            Err(mpsc::RecvTimeoutError::Disconnected) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the watchdog does not end"),
            Ok(told) => panic!("{told:?}"),
        }
    }
}

/// Returns a watchdog that sends its reports to the test.
fn watchdog(limit: Duration) -> (Watchdog, Reports) {
    let (tell, told) = mpsc::channel();
    let tell_over = tell.clone();
    let watchdog = Watchdog::new(limit)
        .on_stall(move |stall| drop(tell.send(Report::Stuck(stall.clone()))))
        .on_recovery(move |stall| drop(tell_over.send(Report::Over(stall.clone()))));
    (watchdog, Reports(told))
}

/// Returns a group of `threads` loops whose clock stands still. The watchdog has its own clock.
fn watched(threads: usize, limit: Duration) -> (EventLoopGroup, Reports) {
    let (watchdog, reports) = watchdog(limit);
    let builder = EventLoopGroup::builder().threads(threads).name("watched").clock(ManualClock::new());
    (builder.watchdog(watchdog).build().unwrap(), reports)
}

// ---- reports -----------------------------------------------------------------------------------

/// Blocks a callback of [`Blocks`] until the other end of the queue is dropped.
#[derive(Clone)]
struct Blocker {
    ids: Sender<ChannelId>,
    hold: Arc<Mutex<Receiver<()>>>,
}

impl Blocker {
    fn new() -> (Self, Receiver<ChannelId>, Sender<()>) {
        let (ids, told) = mpsc::channel();
        let (wake, hold) = mpsc::channel();
        (Blocker { ids, hold: Arc::new(Mutex::new(hold)) }, told, wake)
    }

    fn block(&self, id: ChannelId) {
        self.ids.send(id).unwrap();
        let _ = self.hold.lock().unwrap().recv_timeout(PATIENCE);
    }
}

/// More bytes than the buffers of a connection hold, and fewer than a channel may queue.
const TOO_MUCH: usize = 15 * 1024 * 1024;

/// A handler that blocks in the callback that the first byte of a message selects.
struct Blocks(Blocker);

impl Handler for Blocks {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match message[0] {
            b'r' => self.0.block(ctx.id()),
            b't' => {
                ctx.schedule(Duration::ZERO, |me, ctx| {
                    me.0.block(ctx.id());
                    Ok(())
                });
            }
            b'e' => ctx.close(),
            b'c' => {
                // Closures from a handle run in the task phase.
                let (channel, blocker) = (ctx.channel(), self.0.clone());
                channel.execute(move |ctx| {
                    blocker.block(ctx.id());
                    Ok(())
                })?;
            }
            b'w' => return ctx.write(Bytes::from_static(&[0; TOO_MUCH])),
            _ => return ctx.write(message),
        }
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.block(ctx.id());
        Ok(())
    }
}

fn blocking_server(group: &EventLoopGroup) -> (Server, Receiver<ChannelId>, Sender<()>) {
    let (blocker, ids, wake) = Blocker::new();
    let server = ServerBootstrap::new(group)
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Blocks(blocker.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    (server, ids, wake)
}

fn assert_stall_names_channel_and_phase(order: u8, phase: LoopPhase) {
    let (group, reports) = watched(1, LIMIT);
    let (server, ids, wake) = blocking_server(&group);
    let mut client = connect(server.local_address());
    client.write_all(&[order]).unwrap();
    let id = ids.recv_timeout(PATIENCE).unwrap();

    let stall = reports.stuck();
    assert_eq!((stall.phase, stall.channel), (phase, Some(id)), "{stall:?}");
    assert!(stall.handler.is_some_and(|name| name.ends_with("::Blocks")), "{stall:?}");
    assert_eq!(stall.task, None);
    assert_eq!(stall.event_loop, "watched-0");
    assert!(stall.elapsed > LIMIT, "{stall:?}");
    assert!(stall.in_call <= stall.elapsed, "{stall:?}");
    assert_eq!(stall.turn, group.next().metrics().turns, "the turn is still running");
    let line = stall.to_string();
    assert!(
        line.starts_with("watched-0 has been stuck for ") && line.contains(stall.handler.unwrap()),
        "{line}"
    );
    assert!(line.contains(&format!("in {phase}: channel {id}, ")), "{line}");

    wake.send(()).unwrap();
    let over = reports.over();
    assert!(over.elapsed >= stall.elapsed);
    let mut again = over;
    again.elapsed = stall.elapsed;
    assert_eq!(again, stall, "only the duration differs from the first report");
    // The handler must not block when the channel closes.
    drop(wake);
    end(&group);
    reports.assert_no_more();
}

#[test]
fn watchdog_reports_a_handler_that_blocks_in_read() {
    assert_stall_names_channel_and_phase(b'r', LoopPhase::Io);
}

#[test]
fn watchdog_reports_a_handler_that_blocks_in_a_timer() {
    assert_stall_names_channel_and_phase(b't', LoopPhase::Timers);
}

#[test]
fn watchdog_reports_a_channel_that_blocks_in_a_task() {
    assert_stall_names_channel_and_phase(b'c', LoopPhase::Tasks);
}

#[test]
fn watchdog_reports_a_handler_that_blocks_at_the_end_of_the_turn() {
    assert_stall_names_channel_and_phase(b'e', LoopPhase::Flush);
}

/// Blocks in a task that `submit` submits to the loop. `submit` returns its line in this file.
#[track_caller]
fn assert_stall_names_the_origin_of_the_task(
    phase: LoopPhase,
    submit: impl FnOnce(&EventLoop, Box<dyn FnOnce() + Send>) -> u32,
) {
    let (group, reports) = watched(1, LIMIT);
    let (go_on, hold) = mpsc::channel::<()>();
    let line = submit(group.next(), Box::new(move || _ = hold.recv_timeout(PATIENCE)));

    let stall = reports.stuck();
    let origin = stall.task.expect("a task");
    assert_eq!((stall.phase, origin.file(), origin.line()), (phase, file!(), line));
    assert_eq!((stall.channel, stall.handler), (None, None));
    assert!(stall.to_string().contains(&format!("in {phase}: the task submitted at {origin}")), "{stall}");
    drop(go_on);
    assert_eq!(reports.over().task, Some(origin));
    end(&group);
    reports.assert_no_more();
}

#[test]
fn watchdog_reports_a_task_that_blocks() {
    assert_stall_names_the_origin_of_the_task(LoopPhase::Tasks, |event_loop, task| {
        event_loop.execute(task).unwrap();
        line!() - 1
    });
}

#[test]
fn watchdog_reports_a_scheduled_task_that_blocks() {
    assert_stall_names_the_origin_of_the_task(LoopPhase::Timers, |event_loop, task| {
        drop(event_loop.schedule(Duration::ZERO, task).unwrap());
        line!() - 1
    });
}

#[test]
fn watchdog_reports_a_handler_that_blocks_in_the_last_turn() {
    let (group, reports) = watched(1, LIMIT);
    let (server, ids, wake) = blocking_server(&group);
    let mut client = connect(server.local_address());
    // The server writes more than the client reads, so the channel cannot close before the loop
    // ends.
    client.write_all(b"w").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO));
    let id = ids.recv_timeout(PATIENCE).unwrap();

    let stall = reports.stuck();
    assert_eq!((stall.phase, stall.channel), (LoopPhase::Shutdown, Some(id)), "{stall:?}");
    drop(wake);
    reports.over();
    done(ended).unwrap();
    reports.assert_no_more();
}

#[test]
fn watchdog_does_not_blame_a_callback_that_has_returned() {
    let (group, reports) = watched(1, LIMIT);
    let (blocker, ids, _wake) = Blocker::new();
    let (go_on, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |peer| {
            // The second connection's factory blocks, after the first connection's handler was
            // called.
            let _ = (peer, hold.lock().unwrap().recv_timeout(PATIENCE));
            Pipeline::codec(RawBytes).handler(Blocks(blocker.clone()))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    go_on.send(()).unwrap();
    let mut first = connect(server.local_address());
    assert_echoes(&mut first);
    let _second = connect(server.local_address());

    let stall = reports.stuck();
    assert_eq!((stall.phase, stall.channel, stall.handler, stall.task), (LoopPhase::Io, None, None, None));
    drop((go_on, ids));
    reports.over();
    end(&group);
}

// ---- times of reports --------------------------------------------------------------------------

#[test]
fn watchdog_reports_two_stalls_separately() {
    let (group, reports) = watched(1, LIMIT);
    let mut turn = 0;
    for _ in 0..2 {
        let gate = Gate::shut(group.next());
        let stall = reports.stuck();
        assert!(stall.turn > turn);
        turn = stall.turn;
        drop(gate);
        assert_eq!(reports.over().turn, turn);
    }
    end(&group);
    reports.assert_no_more();
}

#[test]
fn watchdog_reports_a_long_stall_once() {
    let (group, reports) = watched(2, LIMIT);
    let [long, short] = group.event_loops() else { panic!("two loops") };
    let long_gate = Gate::shut(long);
    assert_eq!(reports.stuck().event_loop, "watched-0");
    for _ in 0..2 {
        // The first loop is stuck all the time.
        let gate = Gate::shut(short);
        assert_eq!(reports.stuck().event_loop, "watched-1");
        drop(gate);
        assert_eq!(reports.over().event_loop, "watched-1");
    }
    drop(long_gate);
    assert_eq!(reports.over().event_loop, "watched-0");
    end(&group);
    reports.assert_no_more();
}

/// Stalls the first loop twice while `load` keeps the second loop in a state that is not a stall.
/// Returns whether the watchdog reported nothing about the second loop.
fn is_quiet(load: impl FnOnce(&EventLoop) -> Arc<()>) -> bool {
    // Sooner or later a busy loop loses the CPU in the middle of a turn. So the limit is longer
    // here.
    let (group, reports) = watched(2, 5 * LIMIT);
    let [stuck, other] = group.event_loops() else { panic!("two loops") };
    on(other, || ());
    let busy = load(other);
    let mut is_quiet = true;
    let mut next_of_first = || loop {
        match reports.next() {
            Report::Stuck(stall) | Report::Over(stall) if stall.event_loop == "watched-1" => is_quiet = false,
            told => return told,
        }
    };
    for _ in 0..2 {
        // Longer than the limit, so the watchdog has checked both loops several times.
        let gate = Gate::shut(stuck);
        assert!(matches!(next_of_first(), Report::Stuck(_)));
        drop(gate);
        assert!(matches!(next_of_first(), Report::Over(_)));
    }
    drop(busy);
    end(&group);
    loop {
        match reports.0.recv_timeout(PATIENCE) {
            Ok(Report::Stuck(stall) | Report::Over(stall)) => {
                assert_eq!(stall.event_loop, "watched-1", "{stall:?}");
                is_quiet = false;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return is_quiet,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the watchdog does not end"),
        }
    }
}

/// On a busy machine a loop may not get the CPU for longer than the limit. That is a stall, and it
/// is reported correctly, so the test tries again. A false report because a loop sleeps or is busy
/// would occur in every attempt.
fn the_other_loop_is_quiet(load: impl Fn(&EventLoop) -> Arc<()>) {
    assert!((0..10).any(|_| is_quiet(&load)), "a loop that is not stuck is reported in every attempt");
}

#[test]
fn watchdog_does_not_report_a_sleeping_loop() {
    the_other_loop_is_quiet(|_| Arc::default());
}

#[test]
fn watchdog_does_not_report_a_busy_loop_that_turns() {
    the_other_loop_is_quiet(flood);
}

#[test]
fn watchdog_reports_the_end_of_a_stall_when_the_loop_ends() {
    let (group, reports) = watched(1, LIMIT);
    let gate = Gate::shut(group.next());
    let ended = group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO));
    reports.stuck();
    drop(gate);
    done(ended).unwrap();
    reports.over();
    reports.assert_no_more();
}

// ---- the watchdog's thread ---------------------------------------------------------------------

#[test]
fn watchdog_callbacks_run_on_its_thread_and_may_panic() {
    logs::collect();
    let (names, told) = mpsc::channel();
    let watchdog = Watchdog::new(LIMIT).on_stall(move |_| {
        names.send(thread::current().name().map(str::to_owned)).unwrap();
        panic!("on purpose, in on_stall");
    });
    let group = EventLoopGroup::builder().threads(1).name("panicky").watchdog(watchdog).build().unwrap();
    for _ in 0..2 {
        let gate = Gate::shut(group.next());
        assert_eq!(told.recv_timeout(PATIENCE).unwrap().as_deref(), Some("panicky-watchdog"));
        drop(gate);
        settle(group.next());
    }
    end(&group);
    assert_eq!(told.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
    let lines = logs::lines_with("on purpose, in on_stall");
    assert_eq!(lines, vec!["ERROR panicky-watchdog: a callback panicked: on purpose, in on_stall"; 2]);
}

#[test]
fn watchdog_a_slow_callback_does_not_delay_a_loop() {
    let (in_callback, entered) = mpsc::channel();
    let (go_on, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let watchdog = Watchdog::new(LIMIT).on_stall(move |_| {
        in_callback.send(()).unwrap();
        let _ = hold.lock().unwrap().recv_timeout(PATIENCE);
    });
    let group = EventLoopGroup::builder().threads(2).watchdog(watchdog).build().unwrap();
    let [first, second] = group.event_loops() else { panic!("two loops") };
    let gate = Gate::shut(first);
    entered.recv_timeout(PATIENCE).unwrap();
    // One stall is reported, and the ends of both.
    on(second, || ());
    drop(gate);
    end(&group);
    drop(go_on);
    assert_eq!(entered.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn watchdog_ends_with_the_last_loop() {
    let (group, reports) = watched(2, Duration::from_secs(3600));
    let [first, second] = group.event_loops() else { panic!("two loops") };
    on(first, || ());
    on(second, || ());
    done(first.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    assert!(matches!(reports.0.try_recv(), Err(mpsc::TryRecvError::Empty)), "a loop still runs");
    done(second.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    reports.assert_no_more();
}

#[test]
fn watchdog_watches_all_loops_with_one_thread() {
    let (ids, told) = mpsc::channel();
    let watchdog = Watchdog::new(LIMIT).on_stall(move |stall| {
        ids.send((thread::current().id(), stall.event_loop.clone())).unwrap();
    });
    let group = EventLoopGroup::builder().threads(3).watchdog(watchdog).build().unwrap();
    let gates: Vec<_> = group.event_loops().iter().map(Gate::shut).collect();
    let mut names = HashSet::new();
    let mut threads = HashSet::new();
    for _ in 0..3 {
        let (thread, name) = told.recv_timeout(PATIENCE).unwrap();
        threads.insert(thread);
        names.insert(name);
    }
    assert_eq!((threads.len(), names.len()), (1, 3));
    drop(gates);
    end(&group);
}

#[test]
#[cfg(target_os = "linux")]
fn watchdog_has_no_thread_if_the_group_never_starts() {
    // The kernel truncates thread names to 15 bytes.
    let is_there = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).any(|name| name.trim() == "lazy-watchdog")
    };
    let (watchdog, reports) = watchdog(LIMIT);
    let group = EventLoopGroup::builder().threads(3).name("lazy").watchdog(watchdog).build().unwrap();
    assert!(!is_there());
    on(&group.event_loops()[1], || ());
    // The thread sets its own name.
    wait_until("the thread of the watchdog", is_there);
    end(&group);
    reports.assert_no_more();
}

// ---- settings ----------------------------------------------------------------------------------

#[test]
fn watchdog_a_limit_below_10_ms_is_refused() {
    for limit in [Duration::ZERO, Duration::from_micros(9_999)] {
        let refused = EventLoopGroup::builder().watchdog(Watchdog::new(limit)).build();
        match refused {
            Err(Error::Setting(refused)) => {
                assert_eq!((refused.setting(), refused.value()), ("watchdog", &*format!("{limit:?}")));
            }
            other => panic!("{other:?}"),
        }
    }
    for limit in [ms(10), Duration::MAX] {
        let group = EventLoopGroup::builder().threads(1).watchdog(Watchdog::new(limit)).build().unwrap();
        on(group.next(), || ());
        end(&group);
    }
}

#[test]
fn watchdog_logs_stalls_without_callbacks() {
    logs::collect();
    let builder = EventLoopGroup::builder().threads(1).name("logged").watchdog(Watchdog::new(LIMIT));
    let group = builder.build().unwrap();
    let lines = |part: &str| {
        let lines = logs::lines_with("logged-0 ");
        lines.into_iter().filter(|line| line.contains(part)).collect::<Vec<_>>()
    };
    let gate = Gate::shut(group.next());
    // The test cannot be notified of a log line.
    wait_until("the warning", || !lines("has been stuck for").is_empty());
    drop(gate);
    wait_until("the end of the warning", || !lines("continues after being stuck for").is_empty());
    end(&group);
    for line in [lines("has been stuck for"), lines("continues after being stuck for")].concat() {
        assert!(
            line.starts_with("WARN ")
                && line.contains(concat!(" in tasks: the task submitted at ", file!(), ":")),
            "{line}"
        );
    }
}
