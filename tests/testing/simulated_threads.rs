//! Threads of simulated nodes that are killed, wait in destructors, are stuck, or are left behind.

use crate::support::servers::Quiet;
use bytes::Bytes;
use netwheel::{
    Completion,
    codec::RawBytes,
    prelude::*,
    testing::{
        EmbeddedChannel,
        simulation::{Exploration, Faults, Journal, NodeId, Simulation, chance, sleep, sometimes},
    },
    timer::HashedWheelTimer,
    worker_pool::WorkerPool,
};
use std::{
    fs,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, OnceLock, mpsc},
    time::{Duration, Instant},
};

const SECOND: Duration = Duration::from_secs(1);

/// Calls a closure when it is dropped.
struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn running_timer() -> Result<HashedWheelTimer> {
    let timer = HashedWheelTimer::builder().build()?;
    timer.new_timeout(3600 * SECOND, |_| Ok(()))?;
    Ok(timer)
}

/// Ends the node in three ways: by a kill, by a loss of power, and with the simulation.
fn end_in_each_way(main: impl Fn() -> Result + Clone + Send + Sync + 'static, ended: impl Fn(usize)) {
    type End = fn(&mut Simulation, NodeId);
    let ends: [End; 3] = [|all, node| all.kill(node), |all, node| all.power_off(node), |_, _| ()];
    for (n, end) in ends.into_iter().enumerate() {
        let mut simulation = Simulation::new(1);
        let node = simulation.node("one", "10.0.0.1", main.clone());
        simulation.run_for(SECOND).unwrap();
        end(&mut simulation, node);
        simulation.run_for(SECOND).unwrap();
        drop(simulation);
        ended(n + 1);
    }
}

#[test]
fn a_killed_thread_does_not_wait_in_its_destructors() {
    let ended = Journal::new();
    let journal = ended.clone();
    let main = move || {
        let timer = running_timer()?;
        let group = EventLoopGroup::builder().threads(1).build()?;
        let journal = journal.clone();
        let _joins = OnDrop(|| journal.push(timer.stop().is_err()));
        let _waits = OnDrop(|| journal.push(group.next().call(|| ()).wait().is_err()));
        let _sleeps = OnDrop(|| {
            sleep(3600 * SECOND);
            journal.push(true);
        });
        sleep(3600 * SECOND);
        Ok(())
    };
    end_in_each_way(main, |n| ended.with(|ended| assert_eq!(*ended, vec![true; 3 * n])));
}

#[test]
fn a_killed_thread_that_catches_its_panic_is_stopped_by_its_next_call() {
    let steps = Journal::new();
    let journal = steps.clone();
    let main = move || {
        let caught = catch_unwind(|| sleep(3600 * SECOND));
        journal.push("caught");
        assert!(caught.is_err());
        sometimes("a call that does not wait");
        journal.push("beyond");
        Ok(())
    };
    end_in_each_way(main, |n| steps.with(|steps| assert_eq!(*steps, vec!["caught"; n])));
}

/// A thread that is killed before it takes a lock of the crate runs on to its next wait. It must
/// not unwind while it records something, because the records belong to several nodes.
#[test]
fn a_killed_thread_records_its_last_step_without_poisoning_the_records() {
    let mut kills_at_locks = 0;
    for seed in 0..50 {
        let faults = Faults::none().rate("thread-preempted", 500_000);
        let mut simulation = Simulation::with_faults(seed, &faults);
        let records = Arc::new(Mutex::new((0, 0)));
        let shared = records.clone();
        let node = simulation.node("one", "10.0.0.1", move || {
            let mut channel = EmbeddedChannel::new(Pipeline::codec(RawBytes).handler(Quiet));
            loop {
                shared.lock().unwrap().0 += 1;
                channel.run_pending();
                let mut records = shared.lock().unwrap();
                sometimes("a step");
                chance("a step", 500_000);
                records.1 += 1;
                drop(records);
                sleep(Duration::from_micros(1));
            }
        });
        simulation.run_for(SECOND / 100).unwrap();
        let before = records.lock().unwrap().1;
        simulation.kill(node);
        let (begun, ended) = *records.lock().unwrap();
        assert_eq!(begun, ended);
        kills_at_locks += usize::from(ended > before);
    }
    assert!(kills_at_locks > 0);
}

/// The loops of a killed node are dropped, so its completions fail. No program sees that.
#[test]
fn a_killed_thread_does_not_see_the_failures_of_its_own_end() {
    let seen = Journal::new();
    for seed in 0..50 {
        let faults = Faults::none().rate("thread-preempted", 500_000);
        let mut simulation = Simulation::with_faults(seed, &faults);
        let journal = seen.clone();
        let node = simulation.node("one", "10.0.0.1", move || {
            let group = EventLoopGroup::builder().threads(1).build()?;
            let mut completion = group.next().schedule(3600 * SECOND, || ())?.completion();
            loop {
                match completion.wait_timeout(Duration::from_micros(1)) {
                    Ok(result) => {
                        journal.push(result.is_ok());
                        return Ok(());
                    }
                    Err(pending) => completion = pending,
                }
            }
        });
        simulation.run_for(SECOND / 100).unwrap();
        simulation.kill(node);
    }
    seen.with(|seen| assert!(seen.is_empty(), "{seen:?}"));
}

#[test]
fn threads_of_a_killed_node_do_not_run_while_its_loops_are_dropped() {
    let steps = Journal::new();
    let journal = steps.clone();
    let mut simulation = Simulation::with_faults(1, &Faults::none().rate("loop-preempted", 1_000_000));
    let node = simulation.node("one", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(2).build()?;
        let (first, second) = (group.next().clone(), group.next().clone());
        // Each loop submits mail to the other one when it is dropped.
        for (from, to) in [(first.clone(), second.clone()), (second, first)] {
            let submits = OnDrop(move || drop(to.execute(|| ())));
            drop(from.schedule(3600 * SECOND, move || drop(submits))?);
        }
        // Is due at any time.
        loop {
            sleep(Duration::from_micros(1));
            journal.push(());
        }
    });
    simulation.run_for(Duration::from_millis(1)).unwrap();
    let before = steps.len();
    assert!(before > 100, "{before}");
    simulation.kill(node);
    assert_eq!(steps.len(), before);
}

#[test]
fn a_thread_that_panics_waits_in_its_destructors() {
    let waited = Journal::new();
    let journal = waited.clone();
    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", move || {
        let timer = running_timer()?;
        let caught = catch_unwind(AssertUnwindSafe(|| {
            let _joins = OnDrop(|| journal.push(timer.stop().unwrap().len()));
            let _sleeps = OnDrop(|| sleep(5 * SECOND));
            panic!("a panic of the program");
        }));
        assert!(caught.is_err());
        Ok(())
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    waited.with(|waited| assert_eq!(*waited, [1]));
    assert!(simulation.elapsed() >= 5 * SECOND);
}

#[test]
fn a_thread_that_is_killed_in_a_destructor_ends() {
    let ended = Journal::new();
    let journal = ended.clone();
    let main = move || -> Result {
        let timer = running_timer()?;
        let journal = journal.clone();
        let _last = OnDrop(|| journal.push(timer.stop().is_err()));
        let _first = OnDrop(|| sleep(3600 * SECOND));
        panic!("a panic of the program");
    };
    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", main);
    simulation.run_for(SECOND).unwrap();
    simulation.kill(node);
    ended.with(|ended| assert_eq!(*ended, [true]));
    simulation.run_for(SECOND).unwrap();
}

/// Adds a node, and kills it. A destructor of its thread waits again and again.
fn kill_a_patient_node(simulation: &mut Simulation) {
    let node = simulation.node("patient", "10.0.0.1", || {
        let _polls = OnDrop(|| {
            loop {
                sleep(SECOND);
            }
        });
        sleep(3600 * SECOND);
        Ok(())
    });
    simulation.run_for(SECOND).unwrap();
    simulation.kill(node);
}

const PATIENT: &str = "node patient: the thread \"patient\" does not end";

#[test]
fn a_destructor_that_waits_again_and_again_after_a_kill_is_reported() {
    let mut simulation = Simulation::new(1);
    kill_a_patient_node(&mut simulation);
    let failure = simulation.run_until("a condition that holds", SECOND, || true).unwrap_err();
    assert!(failure.message.contains(PATIENT), "{failure}");
    let failure = simulation.run_for(SECOND).unwrap_err();
    assert!(failure.message.contains(PATIENT), "{failure}");
}

#[test]
fn a_stuck_thread_that_the_last_kill_finds_is_reported() {
    let explored = Exploration::new(1).run(|simulation| {
        kill_a_patient_node(simulation);
        Ok(())
    });
    let failure = explored.unwrap_err();
    assert!(failure.message.contains(PATIENT), "{failure}");

    let ended = catch_unwind(|| {
        let mut simulation = Simulation::new(1);
        kill_a_patient_node(&mut simulation);
    });
    let panic = ended.unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains(PATIENT));
}

#[test]
fn a_handler_may_join_a_thread_of_its_node() {
    let stopped = Journal::new();
    let journal = stopped.clone();
    let mut simulation = Simulation::new(1);
    let node = simulation.node("one", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let timer = running_timer()?;
        // The timer's thread has to run, so that it can end.
        sleep(SECOND);
        journal.push(group.next().call(move || timer.stop()).wait()??.len());
        Ok(())
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    stopped.with(|stopped| assert_eq!(*stopped, [1]));
}

#[test]
fn a_handler_that_joins_a_thread_which_does_not_end_is_reported() {
    let mut simulation = Simulation::new(1);
    let node = simulation.node("knot", "10.0.0.1", || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let timer = HashedWheelTimer::builder().build()?;
        timer.new_timeout(SECOND, |_| {
            sleep(3600 * SECOND);
            Ok(())
        })?;
        // The task is running.
        sleep(2 * SECOND);
        group.next().call(move || timer.stop().map(drop)).detach();
        sleep(600 * SECOND);
        Ok(())
    });
    let failure = simulation.run_until_ended(node, 3600 * SECOND).unwrap_err();
    assert!(failure.message.contains("node knot: a loop waits for something"), "{failure}");
    assert!(failure.at < 100 * SECOND, "{failure}");
}

#[test]
fn the_thread_of_a_simulation_does_not_wait_for_its_programs() {
    let pending: Arc<Mutex<Option<Completion<()>>>> = Arc::default();
    let place = pending.clone();
    let mut simulation = Simulation::new(1);
    simulation.node("one", "10.0.0.1", move || {
        let group = EventLoopGroup::builder().threads(1).build()?;
        let task = group.next().schedule(3600 * SECOND, || ())?;
        *place.lock().unwrap() = Some(task.completion());
        sleep(3600 * SECOND);
        Ok(())
    });
    simulation.run_for(SECOND).unwrap();
    let completion = pending.lock().unwrap().take().unwrap();
    assert!(matches!(completion.wait(), Err(Error::WouldDeadlock)));
}

/// Returns the number of threads of this process with a name that begins with `name`.
fn threads_named(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

#[test]
fn a_thread_that_is_stuck_is_reported_with_its_name() {
    let (lock, runs) = (Arc::new(Mutex::new(())), Journal::new());
    let held = lock.lock().unwrap();
    let begun = Instant::now();
    let failure = Exploration::new(5).run(|simulation| {
        runs.push(());
        simulation.turn_timeout(SECOND);
        simulation.node("waits-well", "10.0.0.1", || {
            sleep(3600 * SECOND);
            Ok(())
        });
        let lock = lock.clone();
        let stuck = simulation.node("waits-badly", "10.0.0.2", move || {
            sleep(SECOND);
            drop(lock.lock());
            sleep(3600 * SECOND);
            Ok(())
        });
        simulation.run_until_ended(stuck, 60 * SECOND)
    });
    let failure = failure.unwrap_err();
    assert!(failure.message.starts_with("node waits-badly: the thread \"waits-badly\" has not"), "{failure}");
    // It is not run again, neither to find a smaller set of faults nor to end its threads.
    assert_eq!(runs.len(), 1);
    assert!(begun.elapsed() < 10 * SECOND);
    if cfg!(target_os = "linux") {
        assert_eq!(threads_named("waits-badly"), 1);
        drop(held);
        // The thread unwinds at its next wait, and the others have done so.
        let left = || threads_named("waits-badly") + threads_named("waits-well");
        while left() > 0 {
            assert!(begun.elapsed() < 60 * SECOND, "{} threads are left", left());
            std::thread::yield_now();
        }
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_simulation_that_ends_leaves_no_thread() {
    for panics in [false, true] {
        let ended = catch_unwind(|| {
            let mut simulation = Simulation::new(1);
            simulation.node("left-behind", "10.0.0.1", || {
                let pool = WorkerPool::builder().threads(4).name("left-behind-pool").build()?;
                (0..4).try_for_each(|_| pool.execute(|| sleep(3600 * SECOND))).map_err(Error::from)?;
                let _timer = running_timer()?;
                sleep(3600 * SECOND);
                Ok(())
            });
            simulation.run_for(SECOND).unwrap();
            assert_eq!(threads_named("left-behind"), 5);
            assert!(!panics, "the test fails");
        });
        assert_eq!(ended.is_err(), panics);
        let begun = Instant::now();
        while threads_named("left-behind") > 0 {
            assert!(begun.elapsed() < 60 * SECOND, "{} threads are left", threads_named("left-behind"));
            std::thread::yield_now();
        }
    }
}

#[test]
fn loops_that_a_program_leaks_end_with_their_simulation() {
    static GROUP: OnceLock<EventLoopGroup> = OnceLock::new();
    /// A group whose loop is not started, because nothing was submitted to it.
    static UNUSED: OnceLock<EventLoopGroup> = OnceLock::new();

    let group = || EventLoopGroup::builder().threads(1).build().unwrap();
    let connected = Journal::new();
    let mut simulation = Simulation::new(1);
    let journal = connected.clone();
    let node = simulation.node("one", "10.0.0.1", move || {
        let leaked = group();
        std::mem::forget(leaked.next().schedule_periodic(SECOND, || Ok(()))?);
        std::mem::forget(leaked);
        UNUSED.get_or_init(group);
        let listening = ServerBootstrap::new(GROUP.get_or_init(group))
            .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(())))
            .bind("10.0.0.1:7000")?;
        std::mem::forget(listening);
        let client = ClientBootstrap::new(GROUP.get_or_init(group))
            .pipeline(|_peer| Pipeline::codec(RawBytes).on_read(|_ctx, _bytes: Bytes| Ok(())));
        let channel = client.connect("10.0.0.1:7000").wait()?;
        journal.push(channel.clone());
        std::mem::forget(channel);
        // A loop that is started and not made when the simulation ends.
        group().next().execute(|| ())?;
        Ok(())
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    drop(simulation);
    connected.with(|channels| {
        assert!(!channels[0].is_open());
        assert!(channels[0].write(Bytes::from_static(b"late")).is_err());
    });

    // The next simulation is not disturbed, and the loops of the last one are refused.
    let mut simulation = Simulation::new(2);
    let node = simulation.node("one", "10.0.0.1", move || {
        for left in [&GROUP, &UNUSED] {
            let left = left.get().unwrap();
            assert!(left.next().call(|| ()).wait_timeout(SECOND).unwrap().is_err());
        }
        group().next().call(|| ()).wait()
    });
    simulation.run_until_ended(node, 60 * SECOND).unwrap();
    assert_eq!(simulation.open_sockets(node), 0);
}

#[test]
fn a_timer_that_outlives_its_simulation_can_be_stopped() {
    let (sender, receiver) = mpsc::channel();
    let sender = Mutex::new(sender);
    let mut simulation = Simulation::new(1);
    simulation.node("one", "10.0.0.1", move || {
        sender.lock().unwrap().send(running_timer()?).unwrap();
        sleep(3600 * SECOND);
        Ok(())
    });
    simulation.run_for(SECOND).unwrap();
    drop(simulation);
    assert!(receiver.recv().unwrap().stop().is_err());
}
