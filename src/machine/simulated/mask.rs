//! The faults and the optional operations of a run, for a run that repeats it.
//!
//! The text of a mask is short enough for an environment variable and for a regression test:
//! `connection-reset=12;short-read=3,7-9;write@2=0-4`. Faults are given by kind and opportunity,
//! operations by name, node and number. Without a list of operations, all of them happen.

use super::fault::Fault;
use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    str::FromStr,
};

/// The text of a mask without faults.
const NO_FAULTS: &str = "no-faults";

/// The text of a mask in which no optional operation happens.
const NO_OPERATIONS: &str = "no-operations";

/// An optional operation of a program: its node, its name, and its number among those of that name
/// on the node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Operation {
    pub(crate) node: usize,
    pub(crate) name: String,
    pub(crate) number: u64,
}

/// The faults and operations that may happen. All others do not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Mask {
    /// By kind and number of the opportunity.
    pub(crate) faults: BTreeSet<(Fault, u64)>,
    /// `None` allows all operations.
    pub(crate) operations: Option<BTreeSet<Operation>>,
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut kinds: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (fault, opportunity) in &self.faults {
            kinds.entry(fault.name()).or_default().push(*opportunity);
        }
        let mut parts: Vec<String> =
            kinds.iter().map(|(name, numbers)| format!("{name}={}", ranges(numbers))).collect();
        if parts.is_empty() {
            parts.push(NO_FAULTS.to_owned());
        }
        if let Some(operations) = &self.operations {
            let mut names: BTreeMap<(&str, usize), Vec<u64>> = BTreeMap::new();
            for operation in operations {
                names.entry((&operation.name, operation.node)).or_default().push(operation.number);
            }
            let named =
                names.iter().map(|((name, node), numbers)| format!("{name}@{node}={}", ranges(numbers)));
            parts.extend(named);
            if operations.is_empty() {
                parts.push(NO_OPERATIONS.to_owned());
            }
        }
        f.write_str(&parts.join(";"))
    }
}

impl FromStr for Mask {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut mask = Mask::default();
        for part in text.split(';') {
            match part {
                NO_FAULTS => continue,
                NO_OPERATIONS => {
                    mask.operations.get_or_insert_default();
                    continue;
                }
                _ => {}
            }
            let wrong = || format!("{part:?} is not a list of numbers like short-read=3,7-9");
            let (name, numbers) = part.split_once('=').ok_or_else(wrong)?;
            let numbers = parse_ranges(numbers).ok_or_else(wrong)?;
            if let Some((name, node)) = name.split_once('@') {
                let node = node.parse().map_err(|_| wrong())?;
                let operations = mask.operations.get_or_insert_default();
                operations.extend(numbers.map(|number| Operation { node, name: name.to_owned(), number }));
            } else {
                let fault = Fault::ALL.iter().find(|fault| fault.name() == name);
                let fault = *fault.ok_or_else(|| format!("no fault is named {name:?}"))?;
                mask.faults.extend(numbers.map(|number| (fault, number)));
            }
        }
        Ok(mask)
    }
}

/// Returns increasing numbers as text, and neighbours as ranges.
fn ranges(numbers: &[u64]) -> String {
    let runs = numbers.chunk_by(|a, b| a + 1 == *b);
    let texts: Vec<String> = runs
        .map(|run| match run {
            [one] => one.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => String::new(),
        })
        .collect();
    texts.join(",")
}

/// Returns the numbers of a list of ranges. At most as many as one text may name.
fn parse_ranges(text: &str) -> Option<impl Iterator<Item = u64>> {
    const MOST: u64 = 1_000_000;
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        if last < first || last - first > MOST {
            return None;
        }
        all.push(first..=last);
    }
    Some(all.into_iter().flatten())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(faults: &[(Fault, u64)], operations: Option<&[(usize, &str, u64)]>) -> Mask {
        let operations = operations.map(|operations| {
            let named = |(node, name, number): &(usize, &str, u64)| {
                let (node, number, name) = (*node, *number, (*name).to_owned());
                Operation { node, name, number }
            };
            operations.iter().map(named).collect()
        });
        Mask { faults: faults.iter().copied().collect(), operations }
    }

    #[test]
    fn a_mask_has_a_short_text() {
        use Fault::{ConnectionReset, ShortRead};
        let faults = [(ShortRead, 3), (ShortRead, 7), (ShortRead, 8), (ShortRead, 9), (ConnectionReset, 12)];
        let operations = [(2, "write", 0), (2, "write", 1), (3, "write", 0), (2, "close", 5)];
        for (mask, text) in [
            (mask(&[], None), "no-faults"),
            (mask(&faults, None), "connection-reset=12;short-read=3,7-9"),
            (mask(&[], Some(&[])), "no-faults;no-operations"),
            (mask(&[], Some(&operations)), "no-faults;close@2=5;write@2=0-1;write@3=0"),
        ] {
            assert_eq!(mask.to_string(), text);
            assert_eq!(text.parse(), Ok(mask));
        }
    }

    #[test]
    fn a_text_that_is_no_mask_is_refused() {
        for text in
            ["", "short-read", "short-read=", "short-read=3-1", "x=1", "write@=1", "short-read=0-99999999"]
        {
            assert!(text.parse::<Mask>().is_err(), "{text}");
        }
    }
}
