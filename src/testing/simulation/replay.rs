//! A run as text: its seed, its faults and its operations.

use super::{Simulation, faults::Faults};
use crate::machine::simulated::Mask;
use std::{fmt, str::FromStr};

/// The seeds of an exploration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Chosen {
    /// This many seeds from the first one.
    Seeds { first: u64, count: u64 },
    /// One run, in which only these faults and operations happen.
    Run(Replay),
}

/// A seed, and the faults and operations of its run: `42:short-read=3,7-9`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Replay {
    pub(super) seed: u64,
    pub(super) mask: Mask,
}

impl Replay {
    pub(super) fn faults(&self) -> Faults {
        let mut faults = Faults::none();
        faults.plan.only = Some(self.mask.clone());
        faults
    }
}

impl fmt::Display for Replay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.seed, self.mask)
    }
}

impl FromStr for Chosen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (seed, rest) = text.split_once(':').unwrap_or((text, "1"));
        let wrong = |why: String| {
            format!("{text:?} is not a seed, a seed and a count, or a seed and a list of faults: {why}")
        };
        let seed = seed.parse().map_err(|e| wrong(format!("{e}")))?;
        if let Ok(count) = rest.parse() {
            return Ok(Chosen::Seeds { first: seed, count });
        }
        let mask = rest.parse().map_err(wrong)?;
        Ok(Chosen::Run(Replay { seed, mask }))
    }
}

impl Simulation {
    /// Returns the run until now. `None` if faults or operations were too many to be kept.
    pub(super) fn replay(&self) -> Option<Replay> {
        let world = self.shared.lock();
        if !world.faults.are_recorded() {
            return None;
        }
        let faults = world.faults.happened.iter().map(|record| (record.fault, record.opportunity)).collect();
        let operations = if world.operations.are_masked() {
            Some(world.operations.happened()?.into_iter().collect())
        } else {
            None
        };
        Some(Replay { seed: self.seed, mask: Mask { faults, operations } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_runs_are_chosen_by_text() {
        assert_eq!("7".parse(), Ok(Chosen::Seeds { first: 7, count: 1 }));
        assert_eq!("7:20".parse(), Ok(Chosen::Seeds { first: 7, count: 20 }));
        let Ok(Chosen::Run(replay)) = "7:short-read=3,7-9".parse() else { panic!("this is a run") };
        assert_eq!((replay.seed, replay.mask.faults.len()), (7, 4));
        assert_eq!(replay.to_string(), "7:short-read=3,7-9");
        for wrong in ["", "x", "7:", "7:x", "7:short-read=x"] {
            assert!(wrong.parse::<Chosen>().is_err(), "{wrong}");
        }
    }
}
