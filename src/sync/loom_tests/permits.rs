//! Permits that are taken concurrently.

use super::model;
use crate::sync::permits::Permits;
use loom::{
    sync::atomic::{AtomicUsize, Ordering},
    thread,
};
use std::sync::Arc;

#[test]
fn h_08_one_of_two_racing_threads_gets_the_last_permit() {
    model(|| {
        let places = Arc::new(Permits::new(1));
        let theirs = places.clone();
        let theirs = thread::spawn(move || theirs.take());
        let mine = places.take();
        assert_ne!(mine, theirs.join().unwrap(), "exactly one of the two gets the permit");
        places.give_back();
        assert_eq!(places.taken(), 0);
    });
}

#[test]
fn h_08_holders_never_exceed_the_limit_while_permits_change_hands() {
    model(|| {
        let places = Arc::new(Permits::new(1));
        let inside = Arc::new(AtomicUsize::new(0));
        let come_and_go = |places: Arc<Permits>, inside: Arc<AtomicUsize>| {
            move || {
                for _ in 0..2 {
                    if places.take() {
                        assert_eq!(inside.fetch_add(1, Ordering::AcqRel), 0, "both hold the permit");
                        inside.fetch_sub(1, Ordering::AcqRel);
                        places.give_back();
                    }
                }
            }
        };
        let other = thread::spawn(come_and_go(places.clone(), inside.clone()));
        come_and_go(places.clone(), inside)();
        other.join().unwrap();
        assert_eq!(places.taken(), 0);
        assert!(places.take());
    });
}
