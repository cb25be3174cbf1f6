//! Producers against the loop. A lost notification shows as a producer that waits forever.

use super::model;
use crate::{buffer::WaterMark, sync::WriteGauge};
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use std::sync::Arc;

fn mark() -> WaterMark {
    WaterMark::new(2, 2).expect("a mark")
}

/// Acts like the loop: takes queued messages until none is left, and notifies of each change.
fn drain(gauge: &WriteGauge, queued: &AtomicUsize, was: &mut bool, notified: &mut usize) {
    let taken = queued.swap(0, Ordering::AcqRel);
    let mut delta = -(taken as isize);
    loop {
        let is = gauge.settle(delta, mark(), *was);
        delta = 0;
        if is == *was {
            return;
        }
        *was = is;
        *notified += usize::from(is);
    }
}

/// A producer queues a message that is above the mark, adds its weight, and asks whether it may
/// continue. The loop takes the message at any moment. If the producer saw a pause, the loop
/// notifies afterwards.
#[test]
fn a_producer_that_saw_the_pause_is_notified() {
    model(|| {
        let (gauge, queued) = (Arc::new(WriteGauge::default()), Arc::new(AtomicUsize::new(0)));
        let producer = {
            let (gauge, queued) = (gauge.clone(), queued.clone());
            thread::spawn(move || {
                queued.fetch_add(3, Ordering::AcqRel);
                gauge.add(3, mark().high());
                gauge.is_writable()
            })
        };
        let (mut was, mut notified) = (true, 0);
        drain(&gauge, &queued, &mut was, &mut notified);
        let was_writable = producer.join().unwrap();
        // The message is still queued, so the loop runs again.
        drain(&gauge, &queued, &mut was, &mut notified);
        assert!(was && gauge.is_writable());
        assert!(was_writable || notified == 1, "the producer waits forever");
        assert_eq!(gauge.weight(), 0);
    });
}

/// Two producers, neither of which exceeds the mark alone.
#[test]
fn a_pause_that_two_producers_make_ends() {
    model(|| {
        let (gauge, queued) = (Arc::new(WriteGauge::default()), Arc::new(AtomicUsize::new(0)));
        let producers = [2, 2].map(|weight| {
            let (gauge, queued) = (gauge.clone(), queued.clone());
            thread::spawn(move || {
                queued.fetch_add(weight, Ordering::AcqRel);
                gauge.add(weight, mark().high());
                gauge.is_writable()
            })
        });
        let (mut was, mut notified) = (true, 0);
        drain(&gauge, &queued, &mut was, &mut notified);
        let paused = producers.map(|producer| !producer.join().unwrap()).iter().any(|paused| *paused);
        drain(&gauge, &queued, &mut was, &mut notified);
        assert!(was && gauge.is_writable());
        assert!(!paused || notified > 0, "one of the producers waits forever");
    });
}
