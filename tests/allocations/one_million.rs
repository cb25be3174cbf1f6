//! One million idle entries on one wheel: none is early, none is lost, and none allocates.

use crate::{heap, own_process};
use netwheel::timer::Wheel;
use std::time::Duration;

const MANY: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const TICK: u64 = SECOND / 10;
/// Expiries per turn of a loop, which then polls its sockets again.
const PER_TURN: usize = 1024;

#[test]
fn idle_one_million_no_alloc() {
    own_process!();
    let mut wheel = Wheel::<u32>::builder().tick(Duration::from_nanos(TICK)).build().unwrap();
    // Connections accepted over ten seconds, each with a timeout of sixty seconds. The keys are
    // those of the channels.
    let deadline = |n: u64| 60 * SECOND + n * 10 * SECOND / MANY;
    let mut keys: Vec<_> = (0..MANY).map(|n| wheel.insert(deadline(n), n as u32)).collect();
    assert_eq!(wheel.len(), MANY as usize);
    let before = heap::total_blocks();
    // Half of them are touched, which is a single store. Some thousands of these are closed.
    for n in (0..MANY).step_by(2) {
        assert!(wheel.rearm(keys[n as usize], deadline(n) + 60 * SECOND));
    }
    for n in (0..MANY).step_by(200) {
        assert_eq!(wheel.cancel(keys[n as usize]), Some(n as u32));
    }
    let mut fired = 0;
    while let Some(next) = wheel.next_expiry().filter(|next| *next <= 71 * SECOND) {
        let mut taken = 0;
        while taken < PER_TURN
            && let Some(n) = wheel.expire(next)
        {
            let (n, due) = (u64::from(n), deadline(u64::from(n)));
            assert!(
                n % 2 == 1 && due <= next && next < due + 2 * TICK,
                "{n} was due at {due}, but fired at {next}"
            );
            // The channel stays idle.
            keys[n as usize] = wheel.insert(due + 3600 * SECOND, n as u32);
            (taken, fired) = (taken + 1, fired + 1);
        }
    }
    assert_eq!(fired, MANY / 2);
    assert_eq!(wheel.len() as u64, MANY - MANY / 200);
    let blocks = heap::total_blocks() - before;
    // An upper level is allocated once, when the first deadline lies there.
    assert!(blocks <= 8, "{blocks} blocks for {MANY} entries");
}
