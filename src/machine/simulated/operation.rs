//! Optional operations of programs: which are drawn, and which a repeated run leaves out.
//!
//! The seed, the node, the name and the number decide whether an operation happens. So leaving one
//! out does not change the draws of the others, also not of those on other nodes.

use super::{
    mask::{Mask, Operation},
    seeds::{derive, mix},
};
use std::collections::{BTreeMap, BTreeSet};

/// The most operations of a run that are kept for shrinking.
const RECORDED: usize = 100_000;

/// The operations of a run.
pub(crate) struct Operations {
    seed: u64,
    /// The number of the next operation of each name, on each node.
    next: BTreeMap<(usize, &'static str), u64>,
    /// If set, no other operation happens.
    only: Option<BTreeSet<Operation>>,
    /// The first operations that have happened, at most [`RECORDED`].
    happened: Vec<(usize, &'static str, u64)>,
    count: u64,
}

impl Operations {
    pub(super) fn new(seed: u64, mask: Option<&Mask>) -> Self {
        let only = mask.and_then(|mask| mask.operations.clone());
        let seed = derive(seed, "operations");
        Operations { seed, next: BTreeMap::new(), only, happened: Vec::new(), count: 0 }
    }

    /// Returns whether the next operation of this name happens, and its number.
    pub(super) fn draw(&mut self, node: usize, name: &'static str, per_million: u32) -> (bool, u64) {
        let next = self.next.entry((node, name)).or_default();
        let number = *next;
        *next += 1;
        let drawn = mix(derive(self.seed, name) ^ mix(number ^ (node as u64) << 48));
        let is_drawn = ((drawn >> 32) * 1_000_000) >> 32 < u64::from(per_million);
        let is_allowed =
            |only: &BTreeSet<Operation>| only.contains(&Operation { node, name: name.to_owned(), number });
        let happens = is_drawn && self.only.as_ref().is_none_or(is_allowed);
        if happens {
            self.count += 1;
            if self.happened.len() < RECORDED {
                self.happened.push((node, name, number));
            }
        }
        (happens, number)
    }

    /// Returns whether a repeated run leaves some operations out.
    pub(crate) fn are_masked(&self) -> bool {
        self.only.is_some()
    }

    /// Returns the operations that have happened, if all were kept.
    pub(crate) fn happened(&self) -> Option<Vec<Operation>> {
        let named = |(node, name, number): &(usize, &str, u64)| Operation {
            node: *node,
            name: (*name).to_owned(),
            number: *number,
        };
        (self.count == self.happened.len() as u64).then(|| self.happened.iter().map(named).collect())
    }
}
