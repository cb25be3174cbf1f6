//! Tasks of channels on real loops.

use crate::support::{
    journal::Log,
    loops::{Gate, end, manual_group, metrics, one_loop, settle, the_loop},
    recorder::Event,
    servers::{Settings, dial, serve},
    tcp::{ANY_PORT, connect},
    wait::{HOUR, done, ms, receive, wait_until},
};
use bytes::Bytes;
use netwheel::{
    Channel, Context, Error, EventLoopGroup, Handler, Peer, Pipeline, Server, ServerBootstrap,
    channel::ChannelOptions,
    codec::RawBytes,
    shutdown::ShutdownOptions,
    time::{MissedRuns, Periodic, ScheduledTask},
};
use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

/// Connects two channels of the group. Returns the server, which must be kept, and the client.
fn connected(group: &EventLoopGroup, options: ChannelOptions) -> (Server, Channel<Bytes>) {
    let (server, _) = serve(group, Settings::new(), |_, _| Ok(()));
    let (client, _) = dial(group, server.local_address(), Settings::channel(options), |_, _| Ok(()));
    (server, client)
}

/// E-65.
#[test]
fn a_task_runs_on_the_loop_of_its_channel_when_its_time_has_come() {
    let group = one_loop();
    let (_server, client) = connected(&group, ChannelOptions::new());
    let (begun, handle) = (Instant::now(), client.clone());
    let task = client.schedule(ms(20), move |_| Ok((handle.in_event_loop(), begun.elapsed()))).unwrap();
    let (on_loop, elapsed) = done(task.completion()).unwrap();
    assert!(on_loop && elapsed >= ms(20), "{elapsed:?}");

    let runs = Arc::new(AtomicUsize::new(0));
    let (sender, ticks) = mpsc::channel();
    let count = runs.clone();
    let tick = client.schedule_periodic(ms(1), move |_| {
        let _ = sender.send(count.fetch_add(1, SeqCst));
        Ok(())
    });
    assert_eq!((0..3).map(|_| receive(&ticks)).collect::<Vec<_>>(), [0, 1, 2]);
    let tick = tick.unwrap();
    assert!(tick.cancel());
    let ran = runs.load(SeqCst);
    assert!(matches!(done(tick.completion()), Err(Error::Cancelled)));
    // Ends when the closure is dropped.
    let ticks = 3 + ticks.iter().count();
    assert!(ticks <= ran + 1, "{ticks} runs, {ran} of them before the cancel; one may run during it");
    end(&group);
}

/// E-70.
#[test]
fn a_full_limit_refuses_tasks_of_any_thread_and_the_channel_stays_open() {
    const LIMIT: usize = 100;
    let group = one_loop();
    let (_server, client) = connected(&group, ChannelOptions::new().max_scheduled_tasks(LIMIT));
    let gate = Gate::shut(the_loop(&group));
    let schedule = || (0..LIMIT).filter_map(|_| client.schedule(HOUR, |_| Ok(())).ok()).collect::<Vec<_>>();
    let tasks: Vec<ScheduledTask> = thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(schedule)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(tasks.len(), LIMIT);
    assert!(matches!(client.schedule(HOUR, |_| Ok(())), Err(Error::Full { limit: LIMIT, .. })));
    drop(gate);
    done(client.stats()).unwrap();
    assert!(client.is_open() && tasks.iter().all(|task| !task.is_done()));
    assert!(tasks.iter().all(ScheduledTask::cancel));
    drop(client.schedule(HOUR, |_| Ok(())).unwrap());
    end(&group);
}

/// E-67.
#[test]
fn a_cancel_on_another_thread_does_not_wake_the_loop() {
    let group = one_loop();
    let (_server, client) = connected(&group, ChannelOptions::new());
    let task = client.schedule(HOUR, |_| Ok(())).unwrap();
    done(client.stats()).unwrap();
    let asleep = || metrics(&group).wakes_written;
    let mut before = asleep();
    wait_until("the loop sleeps", || {
        let now = asleep();
        std::mem::replace(&mut before, now) == now
    });
    assert!(task.cancel());
    assert_eq!(asleep(), before);
    done(client.stats()).unwrap();
    wait_until("the next mail takes the cancel along", || metrics(&group).timers_pending == 0);
    end(&group);
}

/// E-67.
#[test]
fn a_cancel_races_with_the_run_and_exactly_one_of_them_wins() {
    let group = one_loop();
    let (_server, client) = connected(&group, ChannelOptions::new());
    let mut won = [0; 2];
    for n in 0..500 {
        let ran = Arc::new(AtomicUsize::new(0));
        let count = ran.clone();
        let task = client.schedule(Duration::from_micros(n % 50), move |_| Ok(count.fetch_add(1, SeqCst)));
        let task = task.unwrap();
        if n % 3 == 0 {
            thread::yield_now();
        }
        let cancelled = task.cancel();
        let result = done(task.completion());
        assert_eq!(cancelled, matches!(result, Err(Error::Cancelled)), "{result:?}");
        assert_eq!((ran.load(SeqCst), Arc::strong_count(&ran)), (usize::from(!cancelled), 1));
        won[usize::from(cancelled)] += 1;
    }
    assert_eq!(won.iter().sum::<u32>(), 500);
    done(client.stats()).unwrap();
    assert!(client.is_open());
    end(&group);
}

/// E-72.
#[test]
fn other_tasks_run_while_a_task_of_a_channel_catches_up() {
    const RUNS: u32 = 100;
    let (group, clock) = manual_group();
    let (_server, client) = connected(&group, ChannelOptions::new());
    let log = Log::new();
    let note = |text: &'static str| {
        let log = log.clone();
        move || log.push(text)
    };
    let (missed, of_channel, of_loop) = (note("missed"), note("channel"), note("loop"));
    let periodic = Periodic::fixed_rate(ms(1)).missed_runs(MissedRuns::CatchUp);
    let tick = client.schedule_periodic(periodic, move |_| Ok(missed())).unwrap();
    drop(client.schedule(ms(1) * RUNS, move |_| Ok(of_channel())).unwrap());
    drop(the_loop(&group).schedule(ms(1) * RUNS, of_loop).unwrap());
    settle(the_loop(&group));
    clock.advance(ms(1) * RUNS);
    while log.count("missed") < RUNS as usize {
        settle(the_loop(&group));
    }
    assert!(tick.cancel());
    assert_eq!(log.all()[..4], ["missed", "channel", "loop", "missed"]);
    end(&group);
}

/// E-73.
#[test]
fn tasks_end_when_the_loop_shuts_down() {
    let group = one_loop();
    let (_server, client) = connected(&group, ChannelOptions::new());
    let once = client.schedule(HOUR, |_| Ok(())).unwrap();
    let tick = client.schedule_periodic(ms(1), |_| Ok(())).unwrap();
    let options = ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR);
    done(group.shutdown(options)).unwrap();
    for task in [once, tick] {
        assert!(matches!(done(task.completion()), Err(Error::Closed)));
    }
    assert!(client.schedule(HOUR, |_| Ok(())).is_err());
    assert!(client.schedule_periodic(HOUR, |_| Ok(())).is_err());
}

/// A handler that needs 20 ms for a reply when the shutdown begins, and ticks until then.
struct Replying {
    ticks: Arc<AtomicUsize>,
    at_shutdown: Arc<AtomicUsize>,
    active: mpsc::Sender<()>,
}

impl Handler for Replying {
    type Read = Bytes;
    type Write = Bytes;

    fn active(&mut self, ctx: &mut Context<'_, Self>) -> netwheel::Result {
        ctx.schedule_periodic(ms(1), |me, _| {
            me.ticks.fetch_add(1, SeqCst);
            Ok(())
        })?;
        self.active.send(()).map_err(Error::other)
    }

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> netwheel::Result {
        Ok(())
    }

    fn shutdown(&mut self, ctx: &mut Context<'_, Self>) -> netwheel::Result {
        self.at_shutdown.store(self.ticks.load(SeqCst), SeqCst);
        ctx.schedule(ms(20), |_, ctx| Ok(ctx.close()));
        Ok(())
    }
}

/// E-73.
#[test]
fn a_periodic_task_runs_while_a_shutdown_waits_for_its_channel_and_does_not_delay_the_end() {
    let group = one_loop();
    let (ticks, at_shutdown) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (count, noted) = (ticks.clone(), at_shutdown.clone());
    let (active, activated) = mpsc::channel();
    let factory = move |_: &Peer| {
        let (ticks, at_shutdown, active) = (count.clone(), noted.clone(), active.clone());
        Pipeline::codec(RawBytes).handler(Replying { ticks, at_shutdown, active })
    };
    let server = ServerBootstrap::new(&group).pipeline(factory).bind(ANY_PORT).unwrap();
    let _peer = connect(server.local_address());
    receive(&activated);
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    assert!(ticks.load(SeqCst) > at_shutdown.load(SeqCst), "it ran until the channel closed");
}

#[test]
fn waiting_for_a_task_on_its_own_loop_fails() {
    let group = one_loop();
    let (report, reports) = mpsc::channel();
    let (server, _events) = serve(&group, Settings::new(), move |ctx, event| {
        if let Event::Active(channel) = event {
            let waited = channel.schedule(ms(1), |_| Ok(()))?.completion().wait();
            let _ = (ctx.id(), report.send(waited));
        }
        Ok(())
    });
    let (_client, _) = dial(&group, server.local_address(), Settings::new(), |_, _| Ok(()));
    assert!(matches!(receive(&reports), Err(Error::WouldDeadlock)));
    end(&group);
}
