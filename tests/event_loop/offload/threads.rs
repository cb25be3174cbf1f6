//! The threads of a worker pool: when they start, when they end, and on which cores they run.

use crate::offload::{Token, held_up, token, until};
use crate::support::wait::{ms, receive};
use netwheel::worker_pool::WorkerPool;
use std::{
    sync::{Arc, mpsc::channel},
    thread,
};

#[test]
fn threads_start_on_demand_and_end_when_idle() {
    let pool = WorkerPool::builder().threads(3).idle_timeout(ms(1)).name("brief").build().unwrap();
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
fn queued_work_runs_after_the_last_handle_is_dropped_and_then_the_threads_end() {
    let (pool, release) = held_up(10);
    let (token, drops) = token();
    let (ran, runs) = channel();
    pool.execute(move || {
        ran.send(thread::current().id()).unwrap();
        // Dropped when the thread ends.
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
    use crate::offload::open;
    use crate::support::{journal::Log, loops::end};
    use netwheel::prelude::*;
    use std::io::Write;

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
    log.wait_len(2);
    assert_eq!(log.all(), [here, format!("Cpus_allowed_list:\t{core}")]);
    end(&group);
}

/// Every process may set the lowest priority, regardless of its own priority.
#[cfg(target_os = "linux")]
#[test]
fn threads_have_the_niceness_of_the_settings_and_other_threads_keep_theirs() {
    let niceness = || rustix::process::getpriority_process(None).unwrap();
    let own = niceness();
    for (pool, expected) in [(WorkerPool::builder(), own), (WorkerPool::builder().niceness(19), 19)] {
        let pool = pool.build().unwrap();
        let (told, tells) = channel();
        pool.execute(move || told.send(niceness()).unwrap()).unwrap();
        assert_eq!(receive(&tells), expected);
    }
    assert_eq!(niceness(), own);
}

#[test]
fn a_niceness_out_of_range_is_refused() {
    let error = WorkerPool::builder().niceness(20).build().unwrap_err();
    assert_eq!(error.to_string(), "niceness is 20; it must be 0 to 19");
}
