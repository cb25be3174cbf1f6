//! A million idle entries on one wheel: none early, none lost, and nothing allocated (user-asks 1.5, 1.6).

use crate::{heap, own_process};
use netwheel::timer::Wheel;
use std::time::Duration;

const MANY: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;
const TICK: u64 = SECOND / 10;
/// Expiries in one turn of a loop, which then looks at its sockets again.
const PER_TURN: usize = 1024;

#[test]
fn idle_one_million_no_alloc() {
    own_process!();
    let mut wheel = Wheel::<u32>::builder().tick(Duration::from_nanos(TICK)).build().unwrap();
    // Connections that came over ten seconds, each with a timeout of sixty; the keys are the channels'.
    let deadline = |n: u64| 60 * SECOND + n * 10 * SECOND / MANY;
    let mut keys: Vec<_> = (0..MANY).map(|n| wheel.insert(deadline(n), n as u32)).collect();
    assert_eq!(wheel.len(), MANY as usize);
    let before = heap::total_blocks();
    // Half of them are touched: a store. Of these some thousand go away.
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
                "{n} was due at {due}, came at {next}"
            );
            // The quiet goes on.
            keys[n as usize] = wheel.insert(due + 3600 * SECOND, n as u32);
            (taken, fired) = (taken + 1, fired + 1);
        }
    }
    assert_eq!(fired, MANY / 2);
    assert_eq!(wheel.len() as u64, MANY - MANY / 200);
    let blocks = heap::total_blocks() - before;
    // An upper level is made once, when the first deadline lies there.
    assert!(blocks <= 8, "{blocks} blocks for {MANY} entries");
}
