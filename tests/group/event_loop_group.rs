//! A group of loops: round robin, size, end (E-62). `system/descriptors.rs` tests groups that
//! cannot be built.

use crate::support::{
    loops::{on, settle},
    wait::{HOUR, done},
};
use netwheel::{EventLoopGroup, shutdown::ShutdownOptions, testing::ManualClock};
use std::{collections::HashSet, time::Duration};

#[test]
fn e_62_next_is_round_robin_for_any_size() {
    // `next` counts modulo the size, so the counter never overflows.
    for size in [1, 2, 3, 5, 8, 13] {
        let group = EventLoopGroup::builder().threads(size).build().unwrap();
        assert_eq!(group.event_loops().len(), size);
        for n in 0..4 * size + 1 {
            assert_eq!(group.next().name(), format!("netwheel-{}", n % size));
        }
    }
}

/// The system's name of a thread ends with a NUL.
#[test]
fn a_name_that_no_thread_can_have_is_refused() {
    let builder = || EventLoopGroup::builder().name("a\0b");
    for refused in [builder().build().map(drop), builder().build_manual().map(drop)] {
        let text = refused.unwrap_err().to_string();
        assert_eq!(text, r#"name is "a\0b"; it must be text without a NUL"#);
    }
}

#[test]
fn e_62_next_is_fair_to_many_threads() {
    const ROUNDS: usize = 300;
    let group = EventLoopGroup::builder().threads(3).build().unwrap();
    let counts = std::thread::scope(|scope| {
        let count = || {
            let mut counts = [0; 3];
            for _ in 0..ROUNDS {
                let name = group.next().name();
                counts[name.rsplit('-').next().unwrap().parse::<usize>().unwrap()] += 1;
            }
            counts
        };
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(count)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).fold([0; 3], |mut sum, counts| {
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
            sum
        })
    });
    assert_eq!(counts, [4 * ROUNDS / 3; 3]);
}

#[test]
fn e_62_the_default_size_is_two_loops_for_each_processor() {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    assert_eq!(EventLoopGroup::new().unwrap().event_loops().len(), 2 * processors);
    assert_eq!(EventLoopGroup::builder().threads(0).build().unwrap().event_loops().len(), 2 * processors);
}

#[test]
fn e_62_each_loop_has_its_own_thread() {
    let group = EventLoopGroup::builder().threads(4).build().unwrap();
    let id = |event_loop| on(event_loop, || std::thread::current().id());
    let threads: HashSet<_> = group.event_loops().iter().map(id).collect();
    assert_eq!(threads.len(), 4);
}

#[test]
fn e_62_a_group_has_ended_when_all_of_its_loops_have() {
    let clock = ManualClock::new();
    let group = EventLoopGroup::builder().threads(3).clock(clock).build().unwrap();
    let [a, b, c] = group.event_loops() else { panic!("three loops") };
    settle(a);
    settle(b);
    let end = group.terminated();
    for event_loop in [a, c] {
        done(event_loop.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    }
    // The group is notified of both ends before the test is.
    assert!(!end.is_done() && !group.terminated().is_done());
    assert_eq!(on(b, || "alive"), "alive");
    done(group.shutdown(ShutdownOptions::new().quiet_period(Duration::ZERO).timeout(HOUR))).unwrap();
    done(end).unwrap();
    assert!(group.event_loops().iter().all(|event_loop| event_loop.is_terminated()));
    done(group.terminated()).unwrap();
}
