//! The watchdog says which loop is stuck, where and in what, once; and nothing of loops that sleep or turn (user-asks
//! 7.1, 7.7). A process that is stopped as a whole is in `system/sigstop.rs`.
//!
//! A stuck loop here is one that a test holds in a callback until it has heard what it waits for.

use crate::support::{
    logs,
    loops::{Gate, end, flood, on, settle},
    tcp::{assert_echoes, connect},
    wait::{PATIENCE, done, ms},
};
use bytes::Bytes;
use netwheel::{
    ChannelId, Context, Error, EventLoop, EventLoopGroup, Handler, Phase, Pipeline, Result, Server,
    ServerBootstrap, Stall, Watchdog, codec::RawBytes, testing::ManualClock,
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

/// Long enough for a loop that a busy machine keeps from running not to look like one that is stuck.
const LIMIT: Duration = ms(200);

/// What the watchdog tells, in order.
#[derive(Debug)]
enum Told {
    Stuck(Stall),
    Over(Stall),
}

/// What there is to hear from a watchdog.
struct Ear(Receiver<Told>);

impl Ear {
    #[track_caller]
    fn next(&self) -> Told {
        self.0.recv_timeout(PATIENCE).expect("the watchdog tells something")
    }

    #[track_caller]
    fn stuck(&self) -> Stall {
        match self.next() {
            Told::Stuck(stall) => stall,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn over(&self) -> Stall {
        match self.next() {
            Told::Over(stall) => stall,
            other => panic!("{other:?}"),
        }
    }

    /// Waits until the callbacks are dropped, and with them the watchdog's thread is gone; nothing is told before.
    #[track_caller]
    fn quiet_to_the_end(self) {
        match self.0.recv_timeout(PATIENCE) {
            Err(mpsc::RecvTimeoutError::Disconnected) => {}
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the watchdog does not end"),
            Ok(told) => panic!("{told:?}"),
        }
    }
}

/// A watchdog that tells the test.
fn watchdog(limit: Duration) -> (Watchdog, Ear) {
    let (tell, told) = mpsc::channel();
    let tell_over = tell.clone();
    let watchdog = Watchdog::new(limit)
        .on_stall(move |stall| drop(tell.send(Told::Stuck(stall.clone()))))
        .on_recovery(move |stall| drop(tell_over.send(Told::Over(stall.clone()))));
    (watchdog, Ear(told))
}

/// A group of so many loops whose time stands still: the watchdog has a time of its own.
fn watched(threads: usize, limit: Duration) -> (EventLoopGroup, Ear) {
    let (watchdog, ear) = watchdog(limit);
    let builder = EventLoopGroup::builder().threads(threads).name("watched").clock(ManualClock::new());
    (builder.watchdog(watchdog).build().unwrap(), ear)
}

// ---- what it says ----------------------------------------------------------------------------------------

/// What a client can have a [`Sleepyhead`] do: block in this place until the other end of the queue is dropped.
#[derive(Clone)]
struct Bed {
    ids: Sender<ChannelId>,
    hold: Arc<Mutex<Receiver<()>>>,
}

impl Bed {
    fn made() -> (Self, Receiver<ChannelId>, Sender<()>) {
        let (ids, told) = mpsc::channel();
        let (wake, hold) = mpsc::channel();
        (Bed { ids, hold: Arc::new(Mutex::new(hold)) }, told, wake)
    }

    fn lie_down(&self, id: ChannelId) {
        self.ids.send(id).unwrap();
        let _ = self.hold.lock().unwrap().recv_timeout(PATIENCE);
    }
}

/// More bytes than the buffers of a connection hold, and fewer than a channel may have waiting.
const TOO_MUCH: usize = 15 * 1024 * 1024;

/// Blocks where the first byte of a message says.
struct Sleepyhead(Bed);

impl Handler for Sleepyhead {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
        match message[0] {
            b'r' => self.0.lie_down(ctx.id()),
            b't' => {
                ctx.schedule(Duration::ZERO, |me, ctx| {
                    me.0.lie_down(ctx.id());
                    Ok(())
                });
            }
            b'e' => ctx.close(),
            b'c' => {
                // What a handle brings runs among the tasks.
                let (channel, bed) = (ctx.channel(), self.0.clone());
                channel.execute(move |ctx| {
                    bed.lie_down(ctx.id());
                    Ok(())
                })?;
            }
            b'w' => return ctx.write(Bytes::from_static(&[0; TOO_MUCH])),
            _ => return ctx.write(message),
        }
        Ok(())
    }

    fn inactive(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        self.0.lie_down(ctx.id());
        Ok(())
    }
}

fn sleepy_server(group: &EventLoopGroup) -> (Server, Receiver<ChannelId>, Sender<()>) {
    let (bed, ids, wake) = Bed::made();
    let server = ServerBootstrap::new(group)
        .pipeline(move |_| Pipeline::codec(RawBytes).handler(Sleepyhead(bed.clone())))
        .bind("127.0.0.1:0")
        .unwrap();
    (server, ids, wake)
}

fn a_stalled_callback_is_told_with_its_phase(order: u8, phase: Phase) {
    let (group, ear) = watched(1, LIMIT);
    let (server, ids, wake) = sleepy_server(&group);
    let mut client = connect(server.local_address());
    client.write_all(&[order]).unwrap();
    let id = ids.recv_timeout(PATIENCE).unwrap();

    let stall = ear.stuck();
    assert_eq!((stall.phase, stall.channel), (phase, Some(id)), "{stall:?}");
    assert!(stall.handler.is_some_and(|name| name.ends_with("::Sleepyhead")), "{stall:?}");
    assert_eq!(stall.task, None);
    assert_eq!(stall.event_loop, "watched-0");
    assert!(stall.elapsed > LIMIT, "{stall:?}");
    assert!(stall.in_call <= stall.elapsed, "{stall:?}");
    assert_eq!(stall.turn, group.next().metrics().turns, "it is in this turn still");
    let line = stall.to_string();
    assert!(
        line.starts_with("watched-0 has been stuck for ") && line.contains(stall.handler.unwrap()),
        "{line}"
    );
    assert!(line.contains(&format!("in {phase}: channel {id}, ")), "{line}");

    wake.send(()).unwrap();
    let over = ear.over();
    assert!(over.elapsed >= stall.elapsed);
    let mut again = over;
    again.elapsed = stall.elapsed;
    assert_eq!(again, stall, "the rest is what was told before");
    // Nobody is to lie down when the channel closes.
    drop(wake);
    end(&group);
    ear.quiet_to_the_end();
}

#[test]
fn watchdog_a_handler_that_blocks_in_read() {
    a_stalled_callback_is_told_with_its_phase(b'r', Phase::Io);
}

#[test]
fn watchdog_a_handler_that_blocks_in_a_timer() {
    a_stalled_callback_is_told_with_its_phase(b't', Phase::Timers);
}

#[test]
fn watchdog_a_channel_that_blocks_in_a_task() {
    a_stalled_callback_is_told_with_its_phase(b'c', Phase::Tasks);
}

#[test]
fn watchdog_a_handler_that_blocks_at_the_end_of_the_turn() {
    a_stalled_callback_is_told_with_its_phase(b'e', Phase::Flush);
}

/// Blocks in a task that `submit` gives to the loop; it answers in which line of this file.
#[track_caller]
fn a_stalled_task_is_told_with_its_origin(
    phase: Phase,
    submit: impl FnOnce(&EventLoop, Box<dyn FnOnce() + Send>) -> u32,
) {
    let (group, ear) = watched(1, LIMIT);
    let (go_on, hold) = mpsc::channel::<()>();
    let line = submit(group.next(), Box::new(move || _ = hold.recv_timeout(PATIENCE)));

    let stall = ear.stuck();
    let origin = stall.task.expect("a task");
    assert_eq!((stall.phase, origin.file(), origin.line()), (phase, file!(), line));
    assert_eq!((stall.channel, stall.handler), (None, None));
    assert!(stall.to_string().contains(&format!("in {phase}: the task submitted at {origin}")), "{stall}");
    drop(go_on);
    assert_eq!(ear.over().task, Some(origin));
    end(&group);
    ear.quiet_to_the_end();
}

#[test]
fn watchdog_a_task_that_blocks() {
    a_stalled_task_is_told_with_its_origin(Phase::Tasks, |event_loop, task| {
        event_loop.execute(task).unwrap();
        line!() - 1
    });
}

#[test]
fn watchdog_a_scheduled_task_that_blocks() {
    a_stalled_task_is_told_with_its_origin(Phase::Timers, |event_loop, task| {
        drop(event_loop.schedule(Duration::ZERO, task).unwrap());
        line!() - 1
    });
}

#[test]
fn watchdog_a_handler_that_blocks_in_the_last_turn() {
    let (group, ear) = watched(1, LIMIT);
    let (server, ids, wake) = sleepy_server(&group);
    let mut client = connect(server.local_address());
    // So much is written to a client that does not read that the channel cannot close before the loop ends.
    client.write_all(b"w").unwrap();
    client.read_exact(&mut [0]).unwrap();
    let ended = group.shutdown_gracefully(Duration::ZERO, Duration::ZERO);
    let id = ids.recv_timeout(PATIENCE).unwrap();

    let stall = ear.stuck();
    assert_eq!((stall.phase, stall.channel), (Phase::Shutdown, Some(id)), "{stall:?}");
    drop(wake);
    ear.over();
    done(ended).unwrap();
    ear.quiet_to_the_end();
}

#[test]
fn watchdog_does_not_blame_who_is_done() {
    let (group, ear) = watched(1, LIMIT);
    let (bed, ids, _wake) = Bed::made();
    let (go_on, hold) = mpsc::channel::<()>();
    let hold = Mutex::new(hold);
    let server = ServerBootstrap::new(&group)
        .pipeline(move |peer| {
            // The second connection's factory blocks, after the first one's handler was called.
            let _ = (peer, hold.lock().unwrap().recv_timeout(PATIENCE));
            Pipeline::codec(RawBytes).handler(Sleepyhead(bed.clone()))
        })
        .bind("127.0.0.1:0")
        .unwrap();
    go_on.send(()).unwrap();
    let mut first = connect(server.local_address());
    assert_echoes(&mut first);
    let _second = connect(server.local_address());

    let stall = ear.stuck();
    assert_eq!((stall.phase, stall.channel, stall.handler, stall.task), (Phase::Io, None, None, None));
    drop((go_on, ids));
    ear.over();
    end(&group);
}

// ---- when, and how often ---------------------------------------------------------------------------------

#[test]
fn watchdog_two_stalls_are_told_one_by_one() {
    let (group, ear) = watched(1, LIMIT);
    let mut turn = 0;
    for _ in 0..2 {
        let gate = Gate::shut(group.next());
        let stall = ear.stuck();
        assert!(stall.turn > turn);
        turn = stall.turn;
        drop(gate);
        assert_eq!(ear.over().turn, turn);
    }
    end(&group);
    ear.quiet_to_the_end();
}

#[test]
fn watchdog_a_long_stall_is_told_once() {
    let (group, ear) = watched(2, LIMIT);
    let [long, short] = group.event_loops() else { panic!("two loops") };
    let long_gate = Gate::shut(long);
    assert_eq!(ear.stuck().event_loop, "watched-0");
    for _ in 0..2 {
        // The first loop is seen to be stuck all the while.
        let gate = Gate::shut(short);
        assert_eq!(ear.stuck().event_loop, "watched-1");
        drop(gate);
        assert_eq!(ear.over().event_loop, "watched-1");
    }
    drop(long_gate);
    assert_eq!(ear.over().event_loop, "watched-0");
    end(&group);
    ear.quiet_to_the_end();
}

/// Two stalls of the first loop, while `meanwhile` has the second one do something that is no stall; whether nothing is told of that.
fn is_quiet(meanwhile: impl FnOnce(&EventLoop) -> Arc<()>) -> bool {
    // A loop that is busy all the time is kept from running in the middle of a turn sooner or later.
    let (group, ear) = watched(2, 5 * LIMIT);
    let [stuck, other] = group.event_loops() else { panic!("two loops") };
    on(other, || ());
    let at_it = meanwhile(other);
    let mut is_quiet = true;
    let mut next_of_the_first = || loop {
        match ear.next() {
            Told::Stuck(stall) | Told::Over(stall) if stall.event_loop == "watched-1" => is_quiet = false,
            told => return told,
        }
    };
    for _ in 0..2 {
        // Longer than the limit, and looked at just as often.
        let gate = Gate::shut(stuck);
        assert!(matches!(next_of_the_first(), Told::Stuck(_)));
        drop(gate);
        assert!(matches!(next_of_the_first(), Told::Over(_)));
    }
    drop(at_it);
    end(&group);
    loop {
        match ear.0.recv_timeout(PATIENCE) {
            Ok(Told::Stuck(stall) | Told::Over(stall)) => {
                assert_eq!(stall.event_loop, "watched-1", "{stall:?}");
                is_quiet = false;
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => return is_quiet,
            Err(mpsc::RecvTimeoutError::Timeout) => panic!("the watchdog does not end"),
        }
    }
}

/// Where others use the cpu, a loop may be kept from running for longer than the limit, which is a stall, and told rightly: then
/// it is tried again. What is told because a loop sleeps, or is busy, would be told each time.
fn the_other_loop_is_quiet(meanwhile: impl Fn(&EventLoop) -> Arc<()>) {
    assert!((0..10).any(|_| is_quiet(&meanwhile)), "it is told of a loop that is not stuck");
}

#[test]
fn watchdog_quiet_in_poll() {
    the_other_loop_is_quiet(|_| Arc::default());
}

#[test]
fn watchdog_quiet_while_a_loop_is_busy_and_turns() {
    the_other_loop_is_quiet(flood);
}

#[test]
fn watchdog_a_stall_that_ends_with_the_loop_is_over() {
    let (group, ear) = watched(1, LIMIT);
    let gate = Gate::shut(group.next());
    let ended = group.shutdown_gracefully(Duration::ZERO, Duration::ZERO);
    ear.stuck();
    drop(gate);
    done(ended).unwrap();
    ear.over();
    ear.quiet_to_the_end();
}

// ---- its thread ------------------------------------------------------------------------------------------

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
fn watchdog_a_callback_holds_up_no_loop() {
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
    // One begins, both end.
    on(second, || ());
    drop(gate);
    end(&group);
    drop(go_on);
    assert_eq!(entered.recv_timeout(PATIENCE), Err(mpsc::RecvTimeoutError::Disconnected));
}

#[test]
fn watchdog_ends_with_the_last_loop() {
    let (group, ear) = watched(2, Duration::from_secs(3600));
    let [first, second] = group.event_loops() else { panic!("two loops") };
    on(first, || ());
    on(second, || ());
    done(first.shutdown_gracefully(Duration::ZERO, Duration::ZERO)).unwrap();
    assert!(matches!(ear.0.try_recv(), Err(mpsc::TryRecvError::Empty)), "there is a loop to be watched");
    done(second.shutdown_gracefully(Duration::ZERO, Duration::ZERO)).unwrap();
    ear.quiet_to_the_end();
}

#[test]
fn watchdog_one_thread_looks_at_all_loops() {
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
fn watchdog_a_group_that_never_starts_has_none() {
    // The kernel keeps fifteen bytes of a name.
    let is_there = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let name = |task: std::io::Result<std::fs::DirEntry>| {
            std::fs::read_to_string(task.ok()?.path().join("comm")).ok()
        };
        tasks.filter_map(name).any(|name| name.trim() == "lazy-watchdog")
    };
    let (watchdog, ear) = watchdog(LIMIT);
    let group = EventLoopGroup::builder().threads(3).name("lazy").watchdog(watchdog).build().unwrap();
    assert!(!is_there());
    on(&group.event_loops()[1], || ());
    // The thread gives itself its name.
    while !is_there() {
        thread::yield_now();
    }
    end(&group);
    ear.quiet_to_the_end();
}

// ---- settings --------------------------------------------------------------------------------------------

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
fn watchdog_writes_to_the_log_if_nobody_else_is_told() {
    logs::collect();
    let builder = EventLoopGroup::builder().threads(1).name("logged").watchdog(Watchdog::new(LIMIT));
    let group = builder.build().unwrap();
    let lines = |part: &str| {
        let lines = logs::lines_with("logged-0 ");
        lines.into_iter().filter(|line| line.contains(part)).collect::<Vec<_>>()
    };
    let gate = Gate::shut(group.next());
    // The log tells nobody that a line was written.
    while lines("has been stuck for").is_empty() {
        thread::yield_now();
    }
    drop(gate);
    while lines("continues after being stuck for").is_empty() {
        thread::yield_now();
    }
    end(&group);
    for line in [lines("has been stuck for"), lines("continues after being stuck for")].concat() {
        assert!(
            line.starts_with("WARN ")
                && line.contains(concat!(" in tasks: the task submitted at ", file!(), ":")),
            "{line}"
        );
    }
}
