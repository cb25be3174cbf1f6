//! Giving back against adding: a pause that nobody ends shows as a channel that never reads again.

use super::model;
use crate::{buffer::WaterMark, sync::HeldInput};
use loom::thread::{self, JoinHandle};
use std::sync::Arc;

fn mark() -> WaterMark {
    WaterMark::new(2, 2).expect("a mark")
}

/// Another thread that gives back; whether it has to tell the loop.
fn give_back(holding: &Arc<HeldInput>, bytes: usize) -> JoinHandle<bool> {
    let holding = holding.clone();
    thread::spawn(move || holding.give_back(bytes, mark()))
}

/// Two are held already, and are given back while one more is added: that one alone must not pause.
fn each_pause_is_ended_once(others: &'static [usize]) {
    model(move || {
        let holding = Arc::new(HeldInput::default());
        assert!(!holding.add(2, mark()), "at the mark");
        let others: Vec<_> = others.iter().map(|bytes| give_back(&holding, *bytes)).collect();
        let paused = holding.add(1, mark());
        let told = others.into_iter().map(|other| other.join().unwrap()).filter(|told| *told).count();
        assert_eq!(told, usize::from(paused), "each pause is ended once");
        assert!(!holding.is_paused(), "one is below the low mark");
        assert!(!holding.give_back(1, mark()), "there is nothing to tell");
        assert_eq!(holding.bytes(), 0);
    });
}

#[test]
fn a_pause_that_races_with_one_who_gives_back_is_ended_once() {
    each_pause_is_ended_once(&[2]);
}

#[test]
fn a_pause_that_races_with_two_who_give_back_is_ended_once() {
    each_pause_is_ended_once(&[1, 1]);
}

/// What is over the mark is given back by others: who comes last tells.
#[test]
fn a_pause_that_stays_is_ended_by_who_gives_back_last() {
    model(|| {
        let holding = Arc::new(HeldInput::default());
        assert!(holding.add(3, mark()));
        let others = [1, 2].map(|bytes| give_back(&holding, bytes));
        let told = others.map(|other| other.join().unwrap());
        assert_eq!(told.into_iter().filter(|told| *told).count(), 1);
        assert!(!holding.is_paused());
    });
}
