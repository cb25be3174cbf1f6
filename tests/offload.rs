//! Work that blocks: where it runs, who gets the answer, what is refused, what becomes of it when nobody wants it any more.

#[path = "support/loops.rs"]
mod loops;

use bytes::Bytes;
use loops::*;
use netwheel::{
    ChannelOptions, ChannelPipeline, ClientBootstrap, Refused, TaskKey, WorkerMetrics, WorkerPool,
    codec::Line,
    prelude::*,
    testing::{EmbeddedChannel, ManualClock},
};
use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    rc::Rc,
    sync::{
        Arc, Mutex,
        mpsc::{Receiver, Sender, channel},
    },
    thread,
    time::{Duration, Instant},
};

type Log = Journal<String>;

/// Does as the test says with each line; everything that happens to it is in the journal.
struct Session {
    log: Log,
    act: Box<Act>,
    /// Makes it as little `Send` as handlers are.
    mine: Rc<str>,
}

type Act = dyn FnMut(&mut Context<'_, Session>, &str, &Log) -> Result + Send;

impl Handler for Session {
    type In = Bytes;
    type Out = Bytes;

    fn read(&mut self, ctx: &mut Context<'_, Self>, line: Bytes) -> Result {
        (self.act)(ctx, std::str::from_utf8(&line).unwrap(), &self.log)
    }

    fn error(&mut self, ctx: &mut Context<'_, Self>, error: Error) -> Result {
        self.log.push(format!("error: {error}"));
        ctx.close();
        Ok(())
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.log.push("inactive".to_owned());
        Ok(())
    }
}

fn session(log: &Log, act: Box<Act>) -> ChannelPipeline<Bytes> {
    Pipeline::new().codec(Line::new()).handler(Session { log: log.clone(), act, mine: "mine".into() })
}

fn embedded(
    options: ChannelOptions,
    act: impl FnMut(&mut Context<'_, Session>, &str, &Log) -> Result + Send + 'static,
) -> (EmbeddedChannel<Bytes>, Log) {
    let log = Log::new();
    let pipeline = session(&log, Box::new(act));
    (EmbeddedChannel::with(pipeline, &options, ManualClock::new(), ms(1)).unwrap(), log)
}

/// A channel over loopback whose handler lives on `group`, and the peer.
fn open(
    group: &EventLoopGroup,
    log: &Log,
    act: impl FnMut(&mut Context<'_, Session>, &str, &Log) -> Result + Send + 'static,
) -> (Channel<Bytes>, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (log, act): (_, Box<Act>) = (log.clone(), Box::new(act));
    let act = Mutex::new(Some(act));
    let client = ClientBootstrap::new(group)
        .pipeline(move |_| session(&log, act.lock().unwrap().take().expect("one connection")));
    let channel = result(client.connect(listener.local_addr().unwrap())).unwrap();
    (channel, listener.accept().unwrap().0)
}

/// Waits until so much has happened.
#[track_caller]
fn wait_for(log: &Log, entries: usize) {
    let end = Instant::now() + PATIENCE;
    while log.len() < entries {
        assert!(Instant::now() < end, "waited in vain: {:?}", log.all());
        thread::yield_now();
    }
}

#[track_caller]
fn end(group: &EventLoopGroup) {
    result(group.shutdown_gracefully(Duration::ZERO, PATIENCE)).unwrap();
}

/// Says when it is dropped.
struct Token(Sender<()>);

impl Drop for Token {
    fn drop(&mut self) {
        let _ = self.0.send(());
    }
}

fn token() -> (Token, Receiver<()>) {
    let (dropped, drops) = channel();
    (Token(dropped), drops)
}

#[track_caller]
fn receive<T>(receiver: &Receiver<T>) -> T {
    receiver.recv_timeout(PATIENCE).expect("it comes")
}

/// Looks at a pool until it is as it has to become.
#[track_caller]
fn until(pool: &WorkerPool, is_so: impl Fn(&WorkerMetrics) -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_so(&pool.metrics()) {
        assert!(Instant::now() < end, "waited in vain: {:?}", pool.metrics());
        thread::yield_now();
    }
}

/// A pool of one thread, which stands until the answer is dropped.
fn held_up(max_pending: usize) -> (WorkerPool, Sender<()>) {
    let pool = WorkerPool::builder().threads(1).max_pending(max_pending).keep_alive(Duration::MAX);
    let pool = pool.build().unwrap();
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    let hold = move || {
        begun.send(()).unwrap();
        let _ = released.recv_timeout(PATIENCE);
    };
    pool.execute(hold).unwrap();
    receive(&begins);
    (pool, release)
}

// ---- the answer ------------------------------------------------------------------------------------------

#[test]
fn the_work_runs_on_a_worker_and_its_answer_on_the_loop_with_the_handler() {
    let group = EventLoopGroup::builder().threads(1).name("serving").build().unwrap();
    let log = Log::new();
    let (_channel, mut peer) = open(&group, &log, |ctx, line, _| {
        let line = line.to_owned();
        let asked_on = thread::current().id();
        // What is not `Send` may stay behind and wait.
        let stays = Rc::new("stays");
        ctx.offload(
            move || (line, thread::current().name().unwrap().to_owned(), thread::current().id()),
            move |me, ctx, answer| {
                let (line, name, worker) = answer?;
                assert_eq!(thread::current().id(), asked_on);
                assert_ne!(worker, asked_on);
                me.log.push(name);
                ctx.write(format!("{line} {stays} {}", me.mine).into())
            },
        )?;
        Ok(())
    });
    peer.write_all(b"it\n").unwrap();
    let mut answer = [0; 14];
    peer.read_exact(&mut answer).unwrap();
    assert_eq!(&answer, b"it stays mine\n");
    assert_eq!(log.all(), ["netwheel-worker-0"]);
    until(group.workers(), |metrics| metrics.finished == 1);
    end(&group);
}

#[test]
fn it_never_runs_within_a_callback_and_may_offload_again() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, log| {
        ctx.offload(
            || 1,
            |me, ctx, one| {
                me.log.push(format!("first {}", one?));
                let again = ctx.offload(
                    || 2,
                    |me, _, two| {
                        me.log.push(format!("second {}", two?));
                        Ok(())
                    },
                );
                me.log.push("asked again".to_owned());
                again.map(drop).map_err(Error::from)
            },
        )?;
        log.push("asked".to_owned());
        Ok(())
    });
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.all(), ["asked"], "an embedded channel runs it when it is told to");
    assert!(channel.has_pending());
    assert_eq!(channel.run_pending(), 4, "two works and two answers");
    assert_eq!(log.all(), ["asked", "first 1", "asked again", "second 2"]);
    assert!(!channel.has_pending());
    assert_eq!(channel.run_pending(), 0);
}

#[test]
fn a_panic_in_the_work_is_told_to_who_waits_for_it_and_to_nobody_else() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, line, _| {
        let line = line.to_owned();
        ctx.offload(
            move || assert_eq!(line, "good", "not that"),
            |me, _, answer| {
                me.log.push(match answer {
                    Err(Error::Panicked(message)) => format!("panicked: {}", message.lines().next().unwrap()),
                    answer => format!("{answer:?}"),
                });
                Ok(())
            },
        )?;
        Ok(())
    });
    channel.write_inbound(b"bad\ngood\n").unwrap();
    channel.run_pending();
    let told = log.all();
    assert!(told[0].starts_with("panicked: assertion"), "{told:?}");
    assert_eq!(told[1..], ["Ok(())"]);
    assert!(channel.is_open());
}

#[test]
fn a_panic_in_the_work_does_not_end_the_thread() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    pool.execute(|| panic!("on purpose")).unwrap();
    let (done, is_done) = channel();
    pool.execute(move || done.send(())).unwrap();
    receive(&is_done);
    until(&pool, |metrics| metrics.finished == 2);
    assert_eq!((pool.metrics().panicked, pool.metrics().threads), (1, 1), "the thread lives on");
}

#[test]
fn an_error_of_the_answer_goes_to_the_handler() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, _| {
        ctx.offload(|| std::io::Error::other("no such user"), |_, _, e| Err(Error::other(e?)))?;
        Ok(())
    });
    channel.write_inbound(b"go\n").unwrap();
    channel.run_pending();
    assert_eq!(log.all(), ["error: no such user", "inactive"]);
}

// ---- refusals --------------------------------------------------------------------------------------------

#[test]
fn a_full_pool_hands_the_work_back() {
    let (pool, release) = held_up(2);
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let (handed_back, backs) = channel();
    let (_channel, mut peer) = open(&group, &log, move |ctx, line, log| {
        let (line, sent) = (line.to_owned(), log.clone());
        let work = move || {
            sent.push(format!("work {line}"));
            line
        };
        let then = |me: &mut Session, _: &mut Context<'_, Session>, line: Result<String>| {
            me.log.push(format!("then {}", line?));
            Ok(())
        };
        if let Err(Refused { value, reason }) = ctx.offload(work, then) {
            handed_back.send((value(), reason.to_string())).unwrap();
        }
        Ok(())
    });
    peer.write_all(b"a\nb\nc\n").unwrap();
    let (line, reason) = receive(&backs);
    assert_eq!((&*line, &*reason), ("c", "full: at most 2 works that wait for a worker"));
    assert_eq!(log.all(), ["work c"], "by whom it was handed back to");
    let metrics = pool.metrics();
    assert_eq!((metrics.pending, metrics.running, metrics.refused), (2, 1, 1));
    let refused = pool.execute(|| "handed back").unwrap_err();
    assert_eq!((refused.value)(), "handed back");
    drop(release);
    wait_for(&log, 5);
    assert_eq!(log.all().iter().filter(|line| line.starts_with("then")).count(), 2);
    end(&group);
}

#[test]
fn works_that_are_under_way_count_as_tasks_of_the_channel() {
    let options = ChannelOptions::new().max_scheduled_tasks(2);
    let (mut channel, log) = embedded(options, |ctx, line, log| {
        let refused = match line {
            "timer" => {
                ctx.schedule(Duration::from_secs(1), |_, _| Ok(()));
                None
            }
            _ => ctx.offload(|| (), |_, _, done| done).err().map(|refused| refused.reason),
        };
        log.push(format!("{line} {}", refused.map_or("taken".to_owned(), |e| e.to_string())));
        Ok(())
    });
    channel.write_inbound(b"timer\nwork\nwork\n").unwrap();
    const FULL: &str = "work full: at most 2 scheduled tasks of a channel";
    assert_eq!(log.all(), ["timer taken", "work taken", FULL]);
    channel.run_pending();
    channel.write_inbound(b"work\n").unwrap();
    assert_eq!(log.all()[3..], ["work taken"]);
}

#[test]
fn a_closing_channel_takes_no_work() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, log| {
        ctx.close();
        let refused = ctx.offload(|| (), |_, _, done| done).unwrap_err();
        log.push(refused.reason.to_string());
        Ok(())
    });
    channel.write_inbound(b"go\n").unwrap();
    assert_eq!(log.all(), ["the channel is closed", "inactive"]);
}

#[test]
fn settings_out_of_range_are_refused_when_built() {
    let builder = WorkerPool::builder;
    for (builder, setting) in [
        (builder().threads(0), "threads"),
        (builder().threads(1025), "threads"),
        (builder().max_pending(0), "max_pending"),
        (builder().keep_alive(Duration::ZERO), "keep_alive"),
        (builder().name("a\0b"), "name"),
    ] {
        let refused = builder.build().unwrap_err();
        assert!(matches!(&refused, Error::Setting(e) if e.setting == setting), "{refused}");
    }
}

// ---- nobody wants it any more ----------------------------------------------------------------------------

#[test]
fn the_work_and_the_answer_of_a_channel_that_is_gone_are_dropped() {
    let (pool, release) = held_up(10);
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let ((work, works), (then, thens)) = (token(), token());
    let mut tokens = Some((work, then));
    let (channel, mut peer) = open(&group, &log, move |ctx, _, log| {
        let (work, then) = tokens.take().unwrap();
        let ran = log.clone();
        ctx.offload(
            move || {
                ran.push("ran".to_owned());
                drop(work);
            },
            move |me, _, _| {
                me.log.push("answered".to_owned());
                drop(then);
                Ok(())
            },
        )?;
        log.push("offloaded".to_owned());
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    wait_for(&log, 1);
    channel.close();
    result(channel.closed()).unwrap();
    receive(&thens);
    assert_eq!(works.try_recv().ok(), None, "it lies in the pool's queue");
    drop(release);
    receive(&works);
    until(&pool, |metrics| metrics.skipped == 1);
    wait_for(&log, 2);
    assert_eq!(log.all(), ["offloaded", "inactive"], "neither ran");
    end(&group);
}

#[test]
fn an_answer_that_comes_after_the_close_is_dropped() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let (release, released) = channel::<()>();
    let (begun, begins) = channel();
    let (answer, answers) = token();
    let mut parts = Some((begun, released, answer));
    let (channel, mut peer) = open(&group, &log, move |ctx, _, _| {
        let (begun, released, answer) = parts.take().unwrap();
        let work = move || {
            begun.send(()).unwrap();
            let _ = released.recv_timeout(PATIENCE);
            answer
        };
        ctx.offload(work, |me, _, _| {
            me.log.push("answered".to_owned());
            Ok(())
        })?;
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    receive(&begins);
    channel.close();
    result(channel.closed()).unwrap();
    drop(release);
    receive(&answers);
    until(&pool, |metrics| metrics.finished == 1);
    wait_for(&log, 1);
    settle(group.next());
    assert_eq!(log.all(), ["inactive"]);
    end(&group);
}

#[test]
fn an_answer_that_comes_while_the_channel_closes_is_dropped() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, _| {
        ctx.offload(
            || (),
            |me, _, done| {
                me.log.push("answered".to_owned());
                done
            },
        )?;
        ctx.write("last words".into())?;
        ctx.close();
        Ok(())
    });
    channel.set_outbound_room(Some(0));
    channel.write_inbound(b"go\n").unwrap();
    channel.run_pending();
    assert_eq!((log.all(), channel.is_closed()), (vec![], false), "the peer has not taken the last words");
    channel.set_outbound_room(None);
    assert_eq!(log.all(), ["inactive"]);
}

#[test]
fn the_works_of_a_pipeline_end_with_it() {
    let (mut channel, log) = embedded(ChannelOptions::new(), |ctx, _, log| {
        let ran = log.clone();
        let work = move || ran.push("ran".to_owned());
        ctx.offload(work, |_, _, _| unreachable!("its handler is gone"))?;
        let next = session(log, Box::new(|ctx, line, _| ctx.write(format!("new {line}").into())));
        ctx.replace_pipeline(next)?;
        Ok(())
    });
    channel.write_inbound(b"go\non\n").unwrap();
    channel.run_pending();
    assert_eq!((channel.read_outbound(), channel.is_open()), ("new on\n".into(), true));
    assert_eq!(log.all(), [""; 0]);
}

#[test]
fn a_cancelled_work_is_not_run_and_its_answer_not_told() {
    let mut keys: Vec<TaskKey> = Vec::new();
    let (mut channel, log) = embedded(ChannelOptions::new(), move |ctx, line, log| {
        match line {
            "cancel" => {
                let cancelled: Vec<_> = keys.drain(..).map(|key| ctx.cancel(key)).collect();
                log.push(format!("{cancelled:?}"));
            }
            line => {
                let (line, ran) = (line.to_owned(), log.clone());
                keys.push(ctx.offload(
                    move || ran.push(format!("ran {line}")),
                    |me, _, done| {
                        me.log.push("answered".to_owned());
                        done
                    },
                )?);
            }
        }
        Ok(())
    });
    channel.write_inbound(b"one\n").unwrap();
    channel.run_pending();
    channel.write_inbound(b"two\ncancel\nthree\n").unwrap();
    channel.run_pending();
    assert_eq!(log.all(), ["ran one", "answered", "[false, true]", "ran three", "answered"]);
}

#[test]
fn what_nobody_wants_makes_room_for_what_somebody_does() {
    let (pool, release) = held_up(1);
    let group = EventLoopGroup::builder().threads(1).workers(&pool).build().unwrap();
    let log = Log::new();
    let mut kept = None;
    let (_channel, mut peer) = open(&group, &log, move |ctx, line, log| {
        if line == "cancel" {
            assert!(ctx.cancel(kept.take().unwrap()));
            return Ok(());
        }
        match ctx.offload(
            || (),
            |me, _, done| {
                me.log.push("answered".to_owned());
                done
            },
        ) {
            Ok(key) => {
                kept = Some(key);
                log.push("taken".to_owned());
            }
            Err(refused) => log.push(refused.to_string()),
        }
        Ok(())
    });
    peer.write_all(b"work\nwork\ncancel\nwork\n").unwrap();
    wait_for(&log, 3);
    const FULL: &str = "refused: full: at most 1 works that wait for a worker";
    assert_eq!(log.all(), ["taken", FULL, "taken"]);
    assert_eq!(pool.metrics().skipped, 1);
    drop(release);
    wait_for(&log, 4);
    assert_eq!(log.all()[3..], ["answered"]);
    end(&group);
}

// ---- the loop --------------------------------------------------------------------------------------------

#[test]
fn an_answer_reaches_the_channel_although_the_queue_of_its_loop_is_full() {
    let pool = WorkerPool::builder().threads(1).build().unwrap();
    let builder = EventLoopGroup::builder().max_pending_tasks(16).workers(&pool);
    let (group, event_loop) = single(builder);
    let log = Log::new();
    let (release, released) = channel::<()>();
    let mut released = Some(released);
    let (_channel, mut peer) = open(&group, &log, move |ctx, _, log| {
        let released = released.take().unwrap();
        let work = move || {
            let _ = released.recv_timeout(PATIENCE);
        };
        ctx.offload(work, |me, _, done| {
            me.log.push("answered".to_owned());
            done
        })?;
        log.push("offloaded".to_owned());
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    wait_for(&log, 1);
    let gate = Gate::shut(&event_loop);
    while event_loop.execute(|| ()).is_ok() {}
    drop(release);
    until(&pool, |metrics| metrics.finished == 1);
    drop(gate);
    wait_for(&log, 2);
    assert_eq!(log.all(), ["offloaded", "answered"]);
    end(&group);
}

/// Stays open when the loop shuts down, until the answer is there.
struct Patient {
    begun: Sender<()>,
    released: Option<Receiver<()>>,
    told: Sender<&'static str>,
}

impl Handler for Patient {
    type In = Bytes;
    type Out = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> Result {
        let (begun, released) = (self.begun.clone(), self.released.take().unwrap());
        let work = move || {
            begun.send(()).unwrap();
            let _ = released.recv_timeout(PATIENCE);
        };
        ctx.schedule(Duration::from_secs(3600), |_, _| Ok(()));
        ctx.offload(work, |me, ctx, done| {
            me.told.send("answer").unwrap();
            ctx.close();
            done
        })?;
        Ok(())
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn shutdown(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.told.send("shutdown").map_err(Error::other)
    }

    fn inactive(&mut self, _: &mut Context<'_, Self>) -> Result {
        self.told.send("inactive").map_err(Error::other)
    }
}

#[test]
fn a_graceful_shutdown_waits_for_an_answer_if_the_handler_does() {
    let group = EventLoopGroup::builder().threads(1).build().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (release, released) = channel();
    let ((begun, begins), (told, tells)) = (channel(), channel());
    let handler = Mutex::new(Some(Patient { begun, released: Some(released), told }));
    let client = ClientBootstrap::new(&group).pipeline(move |_| {
        Pipeline::new().codec(Line::new()).handler(handler.lock().unwrap().take().unwrap())
    });
    result(client.connect(listener.local_addr().unwrap())).unwrap();
    receive(&begins);
    let end = group.shutdown_gracefully(Duration::ZERO, PATIENCE);
    assert_eq!(receive(&tells), "shutdown");
    drop(release);
    assert_eq!([receive(&tells), receive(&tells)], ["answer", "inactive"]);
    result(end).unwrap();
}

// ---- threads ---------------------------------------------------------------------------------------------

#[test]
fn threads_start_when_they_are_needed_and_end_when_they_are_not() {
    let pool = WorkerPool::builder().threads(3).keep_alive(ms(1)).name("brief").build().unwrap();
    assert_eq!(pool.metrics().threads, 0);
    let meet = Arc::new(std::sync::Barrier::new(4));
    let (name, names) = channel();
    for _ in 0..3 {
        let (meet, name) = (meet.clone(), name.clone());
        pool.execute(move || {
            name.send(thread::current().name().unwrap().to_owned()).unwrap();
            meet.wait();
        })
        .unwrap();
    }
    let mut all: Vec<_> = (0..3).map(|_| receive(&names)).collect();
    all.sort();
    assert_eq!(all, ["brief-0", "brief-1", "brief-2"], "three at the same time");
    assert_eq!((pool.metrics().threads, pool.metrics().running), (3, 3));
    meet.wait();
    until(&pool, |metrics| metrics.threads == 0);
    let (done, is_done) = channel();
    pool.execute(move || done.send(())).unwrap();
    receive(&is_done);
    until(&pool, |metrics| metrics.finished == 4);
}

#[test]
fn what_waits_is_run_when_the_last_handle_is_gone_and_then_the_threads_end() {
    let (pool, release) = held_up(10);
    let (token, drops) = token();
    let (ran, runs) = channel();
    pool.execute(move || {
        ran.send(thread::current().id()).unwrap();
        // Dropped by the thread's own end.
        thread_local!(static KEPT: std::cell::RefCell<Option<Token>> = const { std::cell::RefCell::new(None) });
        KEPT.with(|kept| *kept.borrow_mut() = Some(token));
    })
    .unwrap();
    drop(pool);
    drop(release);
    receive(&runs);
    receive(&drops);
}

#[cfg(target_os = "linux")]
#[test]
fn workers_may_run_on_all_cores_although_the_loop_is_pinned_to_one() {
    fn cores() -> String {
        let status = std::fs::read_to_string("/proc/thread-self/status").unwrap();
        status.lines().find(|line| line.starts_with("Cpus_allowed_list")).unwrap().to_owned()
    }
    let here = cores();
    let core = here.split_whitespace().nth(1).unwrap();
    let core: usize = core.split(['-', ',']).next().unwrap().parse().unwrap();
    let group = EventLoopGroup::builder().threads(1).pin_to([core]).build().unwrap();
    let log = Log::new();
    let (_channel, mut peer) = open(&group, &log, |ctx, _, _| {
        ctx.offload(cores, |me, _, theirs| {
            me.log.push(theirs?);
            me.log.push(cores());
            Ok(())
        })?;
        Ok(())
    });
    peer.write_all(b"go\n").unwrap();
    wait_for(&log, 2);
    assert_eq!(log.all(), [here, format!("Cpus_allowed_list:\t{core}")]);
    end(&group);
}
