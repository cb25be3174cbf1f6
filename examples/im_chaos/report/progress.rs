//! Progress on standard error.

use crate::output;
use std::{
    io::{IsTerminal, Write},
    time::{Duration, Instant},
};

/// On a terminal, one line that is updated in place; elsewhere, a line every few seconds.
pub(crate) struct Progress {
    is_terminal: bool,
    next: Instant,
    width: usize,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Progress { is_terminal: std::io::stderr().is_terminal(), next: Instant::now(), width: 0 }
    }

    /// Shows a line, at most once per period.
    pub(crate) fn show(&mut self, line: impl FnOnce() -> String) {
        let now = Instant::now();
        if now >= self.next {
            let period = if self.is_terminal { Duration::from_millis(200) } else { Duration::from_secs(5) };
            self.next = now + period;
            self.write(&line(), false);
        }
    }

    /// Shows the result of a fault.
    pub(crate) fn end(&mut self, line: &str) {
        self.write(line, true);
    }

    fn write(&mut self, line: &str, is_last: bool) {
        let mut err = output::stderr();
        // A failure to show progress does not end the run.
        let _ = if self.is_terminal {
            // Blanks overwrite a longer line.
            let end = if is_last { "\n" } else { "" };
            err.write_all(format!("\r{line:<width$}{end}", width = self.width).as_bytes())
        } else {
            err.write_all(format!("{line}\n").as_bytes())
        };
        self.width = if is_last { 0 } else { line.chars().count() };
    }
}
