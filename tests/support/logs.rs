//! What is logged while a test runs; one logger for the whole test program.

#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::{Mutex, Once, PoisonError};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());
static INSTALLED: Once = Once::new();

struct Collect;

impl log::Log for Collect {
    fn enabled(&self, _: &log::Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &log::Record<'_>) {
        let line = format!("{} {}", record.level(), record.args());
        LINES.lock().unwrap_or_else(PoisonError::into_inner).push(line);
    }

    fn flush(&self) {}
}

/// Collects from now on.
pub(crate) fn collect() {
    INSTALLED.call_once(|| {
        log::set_logger(&Collect).expect("no other logger");
        log::set_max_level(log::LevelFilter::Info);
    });
}

/// All lines so far in which `part` occurs, with their level in front.
pub(crate) fn lines_with(part: &str) -> Vec<String> {
    let lines = LINES.lock().unwrap_or_else(PoisonError::into_inner);
    lines.iter().filter(|line| line.contains(part)).cloned().collect()
}
