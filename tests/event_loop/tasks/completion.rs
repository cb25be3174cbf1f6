//! Completions: waiting, callbacks and futures return the same result, and either a cancel or the
//! expiry wins (W-32).

use crate::support::{
    logs,
    loops::{Gate, manual, on, settle},
    wait::{PATIENCE, done, ms},
};
use netwheel::{Completion, Error, EventLoop, shutdown::ShutdownOptions};
use std::{
    future::{Future, IntoFuture},
    pin::pin,
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc::{Sender, channel},
    },
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
    time::{Duration, Instant},
};

/// A minimal executor that polls again when woken.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    let begun = Instant::now();
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        assert!(begun.elapsed() < PATIENCE, "the future does not complete");
        thread::park_timeout(PATIENCE);
    }
}

#[test]
fn w_32_either_a_cancel_or_the_expiry_wins() {
    const ROUNDS: usize = 3000;
    let (event_loop, clock) = manual();
    let barrier = Barrier::new(2);
    let (to_cancel, cancels) = channel::<netwheel::time::ScheduledTask<usize>>();
    let (answer, answers) = channel();
    let ran = Arc::new(AtomicUsize::new(0));
    let mut won = 0;
    thread::scope(|scope| {
        let barrier = &barrier;
        scope.spawn(move || {
            for task in cancels {
                barrier.wait();
                let cancelled = task.cancel();
                answer.send((cancelled, done(task.completion()))).unwrap();
            }
        });
        for round in 0..ROUNDS {
            let mine = ran.clone();
            let body = move || mine.fetch_add(1, Ordering::Relaxed);
            let before = ran.load(Ordering::Relaxed);
            to_cancel.send(event_loop.schedule(ms(1), body).unwrap()).unwrap();
            barrier.wait();
            clock.advance(ms(1));
            let (cancelled, outcome) = answers.recv_timeout(PATIENCE).unwrap();
            settle(&event_loop);
            let runs = ran.load(Ordering::Relaxed) - before;
            match outcome {
                Ok(_) => assert_eq!((cancelled, runs), (false, 1), "round {round}"),
                Err(Error::Cancelled) => assert_eq!((cancelled, runs), (true, 0), "round {round}"),
                Err(other) => panic!("{other}"),
            }
            won += usize::from(cancelled);
        }
        drop(to_cancel);
    });
    assert_eq!(ran.load(Ordering::Relaxed) + won, ROUNDS);
    settle(&event_loop);
    assert_eq!(event_loop.metrics().timers_pending, 0);
}

#[test]
fn w_32_exactly_one_of_many_cancels_wins() {
    let (event_loop, _clock) = manual();
    for _ in 0..300 {
        let task = event_loop.schedule(ms(1), || ()).unwrap();
        let winners = thread::scope(|scope| {
            let cancels: Vec<_> = (0..4).map(|_| scope.spawn(|| task.cancel())).collect();
            cancels.into_iter().map(|cancel| usize::from(cancel.join().unwrap())).sum::<usize>()
        });
        assert_eq!(winners, 1);
    }
}

#[test]
fn waiting_returns_the_value() {
    let (event_loop, clock) = manual();
    let task = event_loop.schedule(ms(1), || 42).unwrap();
    clock.advance(ms(1));
    assert_eq!(task.completion().wait().unwrap(), 42);
}

#[test]
fn wait_timeout_hands_the_completion_back() {
    let (event_loop, clock) = manual();
    let task = event_loop.schedule(ms(1), || 42).unwrap();
    let completion = task.completion().wait_timeout(ms(1)).expect_err("time stands still");
    let completion = completion.wait_timeout(Duration::ZERO).expect_err("time stands still");
    assert!(!completion.is_done());
    clock.advance(ms(1));
    assert_eq!(completion.wait_timeout(Duration::MAX).unwrap().unwrap(), 42);
}

#[test]
fn a_callback_runs_on_the_loop() {
    let (event_loop, clock) = manual();
    let (told, news) = channel();
    let me = event_loop.clone();
    let task = event_loop.schedule(ms(1), || 42).unwrap();
    task.completion().on_complete(move |result| told.send((result.unwrap(), me.in_event_loop())).unwrap());
    assert!(news.try_recv().is_err());
    clock.advance(ms(1));
    assert_eq!(news.recv_timeout(PATIENCE).unwrap(), (42, true));
}

/// C-34: a late callback is called too.
#[test]
fn a_callback_on_a_completed_operation_runs_at_once_on_the_calling_thread() {
    let (event_loop, _clock) = manual();
    let task = event_loop.schedule(Duration::ZERO, || 42).unwrap();
    while !task.is_done() {
        settle(&event_loop);
    }
    let here = thread::current().id();
    let (told, news) = channel();
    task.completion().on_complete(move |result| {
        told.send((result.unwrap(), thread::current().id())).unwrap();
    });
    assert_eq!(news.try_recv().unwrap(), (42, here));
}

#[test]
fn a_callback_runs_on_the_thread_that_cancels() {
    let (event_loop, _clock) = manual();
    let (told, news) = channel();
    // The handle was exchanged for the completion, so only the shutdown can cancel the task.
    let task = event_loop.schedule(ms(1), || ()).unwrap();
    task.completion().on_complete(move |result| told.send(result).unwrap());
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    assert!(matches!(news.recv_timeout(PATIENCE).unwrap(), Err(Error::ShutDown)));
}

/// C-36: a callback is user code, so a panic in it never ends the loop, whichever operation
/// completes.
#[test]
fn a_callback_that_panics_does_not_end_the_loop() {
    fn panics<T: 'static>(completion: Completion<T>) {
        completion.on_complete(|_| panic!("on purpose"));
    }
    let (event_loop, clock) = manual();
    panics(event_loop.schedule(ms(1), || ()).unwrap().completion());
    panics(event_loop.schedule(ms(1), || panic!("on purpose as well")).unwrap().completion());
    panics(event_loop.schedule_periodic(ms(1), || Err(Error::Cancelled)).unwrap().completion());
    // If the rebuild had finished already, the callback would run and panic on this thread.
    let gate = Gate::shut(&event_loop);
    panics(event_loop.rebuild_poll().unwrap());
    drop(gate);
    let next = event_loop.schedule(ms(1), || "next").unwrap();
    clock.advance(ms(1));
    assert_eq!(done(next.completion()).unwrap(), "next");
    panics(event_loop.schedule(ms(1), || ()).unwrap().completion());
    panics(event_loop.terminated());
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
}

/// C-36: a panic in a callback is logged.
///
/// All completions of a process share one rate limit. If other tests have used it up, the line is
/// counted instead, and the end of the loop reports the count.
#[test]
fn a_callback_that_panics_is_logged() {
    logs::collect();
    let reports = || logs::lines_with("netwheel: panics: ").len();
    let before = reports();
    let (event_loop, _clock) = manual();
    let task = event_loop.schedule(ms(1), || ()).unwrap();
    task.completion().on_complete(|_| panic!("a callback of a test about logging"));
    done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    let begun = Instant::now();
    loop {
        let lines = logs::lines_with("a callback of a test about logging");
        if let [line] = &lines[..] {
            assert_eq!(line, "ERROR a completion's callback panicked: a callback of a test about logging");
            return;
        }
        assert!(lines.is_empty(), "logged once: {lines:?}");
        if reports() > before {
            return;
        }
        assert!(begun.elapsed() < PATIENCE, "the panic is neither logged nor counted");
        thread::yield_now();
    }
}

/// A callback may submit tasks, cancel, and add callbacks.
#[test]
fn a_callback_may_use_the_loop() {
    let (event_loop, clock) = manual();
    let (told, news) = channel();
    let victim = event_loop.schedule(ms(1000), || ()).unwrap();
    let me = event_loop.clone();
    event_loop.schedule(ms(1), || ()).unwrap().completion().on_complete(move |_| {
        assert!(victim.cancel());
        let inner = me.schedule(Duration::ZERO, || 42).unwrap();
        inner.completion().on_complete(move |result| {
            me.execute(move || told.send(result.unwrap()).unwrap()).unwrap();
        });
    });
    clock.advance(ms(1));
    assert_eq!(news.recv_timeout(PATIENCE).unwrap(), 42);
}

#[test]
fn a_future_is_woken_when_its_operation_completes() {
    let (event_loop, clock) = manual();
    let value = event_loop.schedule(ms(1), || 42).unwrap().completion();
    let failed = event_loop.schedule(ms(1), || -> u8 { panic!("on purpose") }).unwrap().completion();
    thread::scope(|scope| {
        let both = async { (value.into_future().await, failed.await) };
        let waiting = scope.spawn(|| block_on(both));
        clock.advance(ms(1));
        let (value, failed) = waiting.join().unwrap();
        assert_eq!(value.unwrap(), 42);
        assert!(matches!(failed, Err(Error::Panicked(_))));
    });
}

#[test]
fn a_future_may_be_polled_by_another_task_before_it_completes() {
    let (event_loop, clock) = manual();
    let mut completion = event_loop.schedule(ms(1), || 42).unwrap().completion();
    // Polled once with a waker that does nothing. The last waker is woken.
    let pending = std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()));
    assert!(pending.is_pending());
    thread::scope(|scope| {
        let waiting = scope.spawn(|| block_on(completion));
        clock.advance(ms(1));
        assert_eq!(waiting.join().unwrap().unwrap(), 42);
    });
}

#[test]
fn a_future_may_be_awaited_on_its_own_loop() {
    let (event_loop, clock) = manual();
    let mut completion = event_loop.schedule(ms(1), || 42).unwrap().completion();
    // Polling does not block, so this is not a deadlock.
    let (mut completion, pending) = on(&event_loop, move || {
        let poll = std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()));
        (completion, poll.is_pending())
    });
    assert!(pending);
    clock.advance(ms(1));
    settle(&event_loop);
    let poll = on(&event_loop, move || {
        std::pin::Pin::new(&mut completion).poll(&mut Context::from_waker(Waker::noop()))
    });
    assert!(matches!(poll, Poll::Ready(Ok(42))));
}

/// A chain of callbacks, each of which calls `on_complete` on a completed operation.
fn ask_again(of: EventLoop, left: usize, last: Sender<()>) {
    let next = of.clone();
    of.terminated().on_complete(move |result| {
        result.unwrap();
        match left {
            0 => last.send(()).unwrap(),
            _ => ask_again(next, left - 1, last),
        }
    });
}

const CHAIN: usize = 1_000_000;

#[test]
fn a_long_chain_of_callbacks_does_not_overflow_a_small_stack() {
    let (ended, _clock) = manual();
    done(ended.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    let (last, end) = channel();
    let small = thread::Builder::new().stack_size(128 * 1024);
    small.spawn(move || ask_again(ended, CHAIN, last)).unwrap().join().unwrap();
    end.try_recv().expect("the whole chain has run before the first call returned");
}

#[test]
fn a_long_chain_of_callbacks_does_not_overflow_a_loops_stack() {
    let ((ended, _), (event_loop, clock)) = (manual(), manual());
    done(ended.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(Duration::ZERO)))
        .unwrap();
    let (last, end) = channel();
    // The loop calls the first callback when it completes the task.
    let first = event_loop.schedule(ms(1), || ()).unwrap();
    first.completion().on_complete(move |_| ask_again(ended, CHAIN, last));
    clock.advance(ms(1));
    end.recv_timeout(PATIENCE).expect("the whole chain has run");
}

#[test]
fn dropping_a_completion_does_not_cancel() {
    let (event_loop, clock) = manual();
    let (told, news) = channel();
    let (one, other) = (told.clone(), told);
    drop(event_loop.schedule(ms(1), move || one.send("dropped").unwrap()).unwrap());
    event_loop.schedule(ms(1), move || other.send("detached").unwrap()).unwrap().completion().detach();
    clock.advance(ms(1));
    assert_eq!(news.recv_timeout(PATIENCE).unwrap(), "dropped");
    assert_eq!(news.recv_timeout(PATIENCE).unwrap(), "detached");
}
