//! `give_back` against `add`. A pause that is never ended shows as a channel that stops reading.

use super::model;
use crate::{buffer::WaterMark, sync::held_input::HeldInput};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

fn mark() -> WaterMark {
    WaterMark::new(2, 2).expect("a mark")
}

/// Gives back on another thread, which returns whether it must notify the loop.
fn give_back(holding: &Arc<HeldInput>, bytes: usize) -> JoinHandle<bool> {
    let holding = holding.clone();
    thread::spawn(move || holding.give_back(bytes, mark()))
}

/// Two bytes are held and are given back while one more is added. That byte alone must not pause.
fn each_pause_is_ended_once(others: &'static [usize]) {
    model(move || {
        let holding = Arc::new(HeldInput::default());
        assert!(!holding.add(2, mark()), "at the mark");
        let others: Vec<_> = others.iter().map(|bytes| give_back(&holding, *bytes)).collect();
        let paused = holding.add(1, mark());
        let notified =
            others.into_iter().map(|other| other.join().unwrap()).filter(|notified| *notified).count();
        assert_eq!(notified, usize::from(paused), "each pause is ended once");
        assert!(!holding.is_paused(), "one is below the low mark");
        assert!(!holding.give_back(1, mark()), "nothing is paused");
        assert_eq!(holding.bytes(), 0);
    });
}

#[test]
fn a_pause_that_races_with_one_give_back_is_ended_once() {
    each_pause_is_ended_once(&[2]);
}

#[test]
fn a_pause_that_races_with_two_give_backs_is_ended_once() {
    each_pause_is_ended_once(&[1, 1]);
}

/// Two threads give back the bytes above the mark. The later one must notify the loop.
#[test]
fn a_lasting_pause_is_ended_by_the_last_give_back() {
    model(|| {
        let holding = Arc::new(HeldInput::default());
        assert!(holding.add(3, mark()));
        let others = [1, 2].map(|bytes| give_back(&holding, bytes));
        let notified = others.map(|other| other.join().unwrap());
        assert_eq!(notified.into_iter().filter(|notified| *notified).count(), 1);
        assert!(!holding.is_paused());
    });
}
