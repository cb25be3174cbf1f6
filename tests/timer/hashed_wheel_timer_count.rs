//! The number of stand-alone timers in a process. The count is global, so this test runs alone in
//! its process.

use crate::own_process;
use crate::support::logs;
use netwheel::timer::HashedWheelTimer;

#[test]
fn w_40_more_than_64_timers_are_logged_as_an_error_once() {
    own_process!();
    logs::collect();
    let build = || HashedWheelTimer::builder().build().unwrap();
    let told = || logs::lines_with("HashedWheelTimers in this process");
    let mut timers: Vec<_> = (0..64).map(|_| build()).collect();
    // Stopped timers do not count, nor do dropped ones, started or not.
    for timer in &timers[..3] {
        timer.start().unwrap();
    }
    timers[0].stop().unwrap();
    timers[4].stop().unwrap();
    let another: Vec<_> = (0..2).map(|_| build()).collect();
    drop(timers.drain(..5));
    timers.extend((0..3).map(|_| build()));
    assert_eq!((timers.len() + another.len(), told()), (64, vec![]));

    timers.push(build());
    assert!(matches!(&told()[..], [line] if line.starts_with("ERROR 65 ")), "{:?}", told());
    timers.extend((0..10).map(|_| build()));
    assert_eq!(told().len(), 1);
}
