//! Waiting for room in a loop's queue (E-29), and the end of the loop while threads wait (E-59).

use crate::support::{
    journal::Journal,
    loops::{Gate, on, single},
    wait::{PATIENCE, done, ms, wait_until},
};
use netwheel::{Error, EventLoop, EventLoopGroup, SendError, shutdown::ShutdownOptions};
use std::{
    path::PathBuf,
    sync::{
        Arc,
        mpsc::{Receiver, channel},
    },
    thread::yield_now,
    time::{Duration, Instant},
};

type Task = Box<dyn FnOnce() + Send>;
type Submitted = Result<(), SendError<Task>>;

/// The smallest queue limit.
const LIMIT: usize = 16;

fn small() -> EventLoop {
    single(EventLoopGroup::builder().max_pending_tasks(LIMIT)).1
}

/// Fills the queue of a loop that is blocked.
fn fill(event_loop: &EventLoop) {
    while event_loop.execute(|| ()).is_ok() {}
}

/// Returns a task and a receiver. The receiver gets a message when the task runs, and is
/// disconnected if the task never runs.
fn reporting_task() -> (Task, Receiver<()>) {
    let (sender, receiver) = channel();
    (Box::new(move || sender.send(()).unwrap()), receiver)
}

/// Returns the directory of the calling thread in `/proc`, or an empty path on systems without one.
fn this_thread() -> PathBuf {
    std::fs::read_link("/proc/thread-self").unwrap_or_default()
}

/// Returns when the thread whose directory arrives through `of` sleeps. Returns at once on systems
/// without `/proc`.
fn until_asleep(of: &Receiver<PathBuf>) {
    let thread = of.recv_timeout(PATIENCE).unwrap();
    let stat = || std::fs::read_to_string(PathBuf::from("/proc").join(&thread).join("stat"));
    // "tid (name) S ..."
    wait_until("the thread sleeps", || {
        !stat().is_ok_and(|stat| stat.rsplit(") ").next().is_some_and(|rest| !rest.starts_with('S')))
    });
}

/// Submits `task` on another thread, which waits for room without a limit. Returns when that thread
/// sleeps.
fn wait_for_room(event_loop: &EventLoop, task: Task) -> Receiver<Submitted> {
    let ((tell, told), (done, submitted)) = (channel(), channel());
    let event_loop = event_loop.clone();
    std::thread::spawn(move || {
        tell.send(this_thread()).unwrap();
        let _ = done.send(event_loop.execute_timeout(Duration::MAX, task));
    });
    until_asleep(&told);
    submitted
}

/// Submits a task as soon as there is room. Fails if that takes longer than [`PATIENCE`].
#[track_caller]
fn submit(event_loop: &EventLoop, task: Task) {
    let begun = Instant::now();
    event_loop.execute_timeout(PATIENCE, task).unwrap();
    // The check before giving up would also find room that the thread was not notified of.
    assert!(begun.elapsed() < PATIENCE, "the thread was not notified of the room");
}

/// Returns when all tasks submitted before have run. The queue may be full until then.
fn until_run(event_loop: &EventLoop) {
    let (task, ran) = reporting_task();
    submit(event_loop, task);
    ran.recv_timeout(PATIENCE).unwrap();
}

#[test]
fn e_29_a_submission_waits_for_room_and_is_accepted() {
    let event_loop = small();
    let gate = Gate::shut(&event_loop);
    fill(&event_loop);
    let refused = event_loop.metrics().tasks_refused;
    let (task, ran) = reporting_task();
    let waiter = wait_for_room(&event_loop, task);
    assert!(waiter.try_recv().is_err(), "the queue is full");
    assert_eq!(event_loop.metrics().tasks_pending, LIMIT as u64);
    drop(gate);
    waiter.recv_timeout(PATIENCE).expect("the submission returns").expect("it is accepted");
    ran.recv_timeout(PATIENCE).expect("the task did not run");
    assert_eq!(event_loop.metrics().tasks_refused, refused, "an accepted task does not count as refused");
}

#[test]
fn e_29_submission_does_not_wait_if_there_is_room() {
    let event_loop = small();
    let (task, ran) = reporting_task();
    // The first submission starts the loop's thread.
    event_loop.execute_timeout(Duration::ZERO, task).unwrap();
    ran.recv_timeout(PATIENCE).unwrap();
    let gate = Gate::shut(&event_loop);
    for _ in 0..LIMIT {
        event_loop.execute_timeout(Duration::MAX, Box::new(|| ())).unwrap();
    }
    drop(gate);
}

#[test]
fn e_29_a_task_is_handed_back_at_the_timeout() {
    let event_loop = small();
    let gate = Gate::shut(&event_loop);
    fill(&event_loop);
    let refused_before = event_loop.metrics().tasks_refused;
    for timeout in [Duration::ZERO, ms(1), ms(20)] {
        let (task, ran) = reporting_task();
        let begun = Instant::now();
        let refused = event_loop.execute_timeout(timeout, task).unwrap_err();
        assert!(begun.elapsed() >= timeout);
        assert!(matches!(refused.error(), Error::Full { limit: LIMIT, .. }), "{}", refused.error());
        (refused.into_inner())();
        ran.try_recv().expect("the task is intact");
    }
    assert_eq!(event_loop.metrics().tasks_refused, refused_before + 3);
    assert_eq!(event_loop.metrics().tasks_pending, LIMIT as u64);
    drop(gate);
}

#[test]
fn e_29_submission_on_the_loop_itself_is_refused_at_once() {
    let event_loop = small();
    let me = event_loop.clone();
    on(&event_loop, move || {
        let refused = |what: &str| {
            let (task, ran) = reporting_task();
            let refused = me.execute_timeout(PATIENCE, task).unwrap_err();
            assert!(matches!(refused.error(), Error::WouldDeadlock), "{what}: {}", refused.error());
            (refused.into_inner())();
            ran.try_recv().expect("the task is intact");
        };
        refused("with room");
        fill(&me);
        refused("without room");
    });
}

#[test]
fn e_29_another_loop_may_wait() {
    let (slow, other) = (small(), small());
    let gate = Gate::shut(&slow);
    fill(&slow);
    let (task, ran) = reporting_task();
    let (tell, told) = channel();
    let to = slow.clone();
    let (done, submitted) = channel();
    let wait = move || {
        tell.send(this_thread()).unwrap();
        done.send(to.execute_timeout(Duration::MAX, task)).unwrap();
    };
    other.execute(wait).unwrap();
    until_asleep(&told);
    drop(gate);
    submitted.recv_timeout(PATIENCE).unwrap().expect("the task is accepted");
    ran.recv_timeout(PATIENCE).expect("the task did not run");
}

// The tasks that fill the queue did not wake the loop.
#[test]
fn e_29_room_is_announced_in_a_queue_that_was_filled_lazily() {
    let event_loop = small();
    let ran = Journal::new();
    let note = |n: usize| {
        let ran = ran.clone();
        move || ran.push(n)
    };
    let mut given = Vec::new();
    for round in 0..300 {
        // Now the queue is empty, and the loop is asleep or about to sleep.
        until_run(&event_loop);
        for n in (round * 100..).take(2 * LIMIT) {
            if event_loop.execute_lazily(note(n)).is_ok() {
                given.push(n);
            }
        }
        let last = round * 100 + 99;
        submit(&event_loop, Box::new(note(last)));
        given.push(last);
    }
    until_run(&event_loop);
    assert_eq!(ran.all(), given);
}

#[test]
fn e_29_many_waiters_on_a_slow_loop_lose_nothing_and_keep_their_order() {
    const WAITERS: usize = 8;
    const TASKS: usize = 400;
    let event_loop = small();
    let ran = Journal::new();
    let gate = Gate::shut(&event_loop);
    std::thread::scope(|scope| {
        for waiter in 0..WAITERS {
            let (event_loop, ran) = (&event_loop, ran.clone());
            scope.spawn(move || {
                for n in 0..TASKS {
                    let ran = ran.clone();
                    let task = move || {
                        yield_now();
                        ran.push((waiter, n));
                    };
                    submit(event_loop, Box::new(task));
                }
            });
        }
        drop(gate);
    });
    until_run(&event_loop);
    let ran = ran.all();
    assert_eq!(ran.len(), WAITERS * TASKS);
    for waiter in 0..WAITERS {
        let of_one = ran.iter().filter(|(by, _)| *by == waiter).map(|(_, n)| *n);
        assert!(of_one.eq(0..TASKS), "the tasks of waiter {waiter} ran once each, in order");
    }
}

/// Fills the queue with tasks that call this function again, so there is never room when the loop
/// announces it.
fn keep_full(event_loop: &EventLoop) {
    loop {
        let me = event_loop.clone();
        if event_loop.execute(move || keep_full(&me)).is_err() {
            break;
        }
    }
}

#[test]
fn e_59_the_end_of_the_loop_releases_all_waiters() {
    const WAITERS: usize = 6;
    for _ in 0..20 {
        let event_loop = small();
        let gate = Gate::shut(&event_loop);
        let end = event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(ms(5)));
        keep_full(&event_loop);
        let waiters: Vec<_> = (0..WAITERS)
            .map(|_| {
                let (task, ran) = reporting_task();
                (wait_for_room(&event_loop, task), ran)
            })
            .collect();
        drop(gate);
        for (waiter, ran) in waiters {
            match waiter.recv_timeout(PATIENCE).expect("a waiter was not released") {
                Ok(()) => ran.recv_timeout(PATIENCE).expect("an accepted task runs"),
                Err(refused) => {
                    assert!(matches!(refused.error(), Error::ShutDown), "{}", refused.error());
                    (refused.into_inner())();
                    ran.try_recv().expect("the task is intact");
                }
            }
        }
        done(end).unwrap();
    }
}

#[test]
fn e_59_submission_to_a_terminated_loop_does_not_wait() {
    let event_loop = small();
    let kept = Arc::new(());
    for started in [false, true] {
        let event_loop = if started { event_loop.clone() } else { small() };
        if started {
            on(&event_loop, || ());
        }
        done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(PATIENCE)))
            .unwrap();
        let mine = kept.clone();
        let refused = event_loop.execute_timeout(PATIENCE, Box::new(move || drop(mine))).unwrap_err();
        assert!(matches!(refused.error(), Error::ShutDown), "{}", refused.error());
        assert_eq!(Arc::strong_count(&kept), 2, "the task is handed back intact");
    }
}
