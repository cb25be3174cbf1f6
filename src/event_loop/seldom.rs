//! A line in the log that may have a thousand causes a second.
//!
//! Always holds: of what is noted, at most one in every ten seconds is to be said, and no cause is lost: each line
//! knows how many came before it unsaid. A pure structure: time is given to it in nanoseconds. Runs on the loop's
//! thread.

use std::fmt;

/// Seven lines in a minute at most.
const INTERVAL: u64 = 10 * 1_000_000_000;

/// When something was last said, and how often it happened since.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    said: Option<u64>,
    unsaid: u64,
}

/// How often it happened since the line before; shown as the end of the line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unsaid(u64);

impl Seldom {
    /// It happened. What to say with it if it is to be said now.
    pub(crate) fn note(&mut self, now: u64) -> Option<Unsaid> {
        if self.said.is_some_and(|said| now.saturating_sub(said) < INTERVAL) {
            self.unsaid += 1;
            return None;
        }
        self.said = Some(now);
        Some(Unsaid(std::mem::take(&mut self.unsaid)))
    }
}

impl fmt::Display for Unsaid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => Ok(()),
            n => write!(f, " ({n} more since it was last said)"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_in_ten_seconds_and_none_is_forgotten() {
        let mut seldom = Seldom::default();
        let said: Vec<_> = (0..60_000).filter_map(|ms| seldom.note(ms * 1_000_000)).collect();
        assert_eq!(said.len(), 6);
        assert_eq!((&said[0], &said[1]), (&Unsaid(0), &Unsaid(9_999)));
        assert_eq!(seldom.note(INTERVAL * 1000), Some(Unsaid(9_999)));
    }

    #[test]
    fn it_says_how_many_were_left_out() {
        assert_eq!(Unsaid(0).to_string(), "");
        assert_eq!(Unsaid(7).to_string(), " (7 more since it was last said)");
    }
}
