//! A pool shared by threads and loops, and its settings.

use crate::pool::Trial;
use crate::support::{
    loops::{end, on_loop, one_loop, some_turns, turn_until},
    recorder::silent,
    servers::{Settings, client},
    tcp::ANY_PORT,
    wait::done,
};
use netwheel::prelude::*;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

#[test]
fn many_threads_share_few_channels_exclusively() {
    const SIZE: usize = 3;
    let trial = Trial::new(|pool| pool.size(SIZE));
    let (out, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for n in 0..8 {
            let (pool, out, most) = (&trial.pool, &out, &most);
            scope.spawn(move || {
                for round in 0..200 {
                    let acquire = pool.acquire();
                    if (n + round) % 7 == 0 {
                        acquire.cancel();
                        continue;
                    }
                    let channel = done(acquire).unwrap();
                    most.fetch_max(out.fetch_add(1, SeqCst) + 1, SeqCst);
                    assert!(channel.is_open());
                    if (n + round) % 13 == 0 {
                        out.fetch_sub(1, SeqCst);
                        channel.discard();
                        continue;
                    }
                    out.fetch_sub(1, SeqCst);
                    drop(channel);
                }
            });
        }
    });
    some_turns(&trial.group);
    assert!(most.load(SeqCst) <= SIZE);
    turn_until(&trial.group, |_| trial.pool.acquired() == 0);
    assert_eq!(trial.pool.waiters(), 0);
    trial.connections(trial.pool.free() as u64);
    end(&trial.group);
}

#[test]
fn waiting_for_an_acquire_on_its_loop_is_an_error() {
    let trial = Trial::new(|pool| pool.size(1));
    let pool = trial.pool.clone();
    let result = on_loop(&trial.group, move || pool.acquire().wait().map(drop));
    assert!(matches!(result, Err(Error::WouldDeadlock)));
    end(&trial.group);
}

#[test]
fn settings_out_of_range_are_refused_by_name() {
    let group = one_loop();
    let (bootstrap, _events) = client(&group, Settings::new(), silent);
    match bootstrap.pool().size(0).build(ANY_PORT) {
        Err(Error::Setting(refused)) => assert_eq!(refused.setting(), "size"),
        other => panic!("{other:?}"),
    }
    end(&group);
}
