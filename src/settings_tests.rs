//! Compares the texts in the tables of settings with the values.

use std::{
    fmt::Debug,
    ops::{Bound, RangeBounds},
};

/// A row of a table of settings.
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// The default as text.
    pub(crate) text: &'static str,
    /// The default, printed with `Debug`.
    default: String,
    /// The smallest and the largest value, and the range as text.
    range: Option<(u64, Option<u64>, &'static str)>,
}

impl Setting {
    pub(crate) fn new(name: &'static str, text: &'static str, default: &impl Debug) -> Self {
        Setting { name, text, default: format!("{default:?}"), range: None }
    }

    pub(crate) fn range<T>(mut self, range: impl RangeBounds<T>, allowed: &'static str) -> Self
    where
        T: Copy + TryInto<u64, Error: Debug>,
    {
        let bound = |bound: Bound<&T>| match bound {
            Bound::Included(&bound) => Some(bound.try_into().expect("64 bits")),
            Bound::Excluded(_) => panic!("{}: an exclusive bound", self.name),
            Bound::Unbounded => None,
        };
        let low = bound(range.start_bound()).expect("a lower bound");
        self.range = Some((low, bound(range.end_bound()), allowed));
        self
    }

    /// Asserts that the texts match the default and the range.
    #[track_caller]
    pub(crate) fn check_words(&self) {
        let words = self.text.split(" / ").map(in_debug).collect::<Vec<_>>();
        let default = match &words[..] {
            [low, high] => format!("WaterMark {{ low: {low}, high: {high} }}"),
            _ => words.concat(),
        };
        assert_eq!(self.default, default, "{}", self.name);
        let Some((low, high, allowed)) = self.range else { return };
        let numbers = allowed.split(' ').filter_map(|word| word.parse().ok()).collect::<Vec<u64>>();
        assert_eq!(numbers, [low].into_iter().chain(high).collect::<Vec<_>>(), "{}: {allowed}", self.name);
        assert_eq!(high.is_none(), allowed.ends_with("or more"), "{}: {allowed}", self.name);
    }
}

/// Returns the `Debug` output for a value given as text: `64 KiB`, `10 s`, `1,024`, `on`,
/// `Overflow::Refuse`.
fn in_debug(words: &str) -> String {
    match words {
        "on" => return "true".into(),
        "off" => return "false".into(),
        _ => {}
    }
    let words = words.replace(',', "");
    let (number, unit) = words.split_once(' ').unwrap_or((&words, ""));
    let shift = match unit {
        "" => return words.trim_start_matches("[`Overflow::").trim_end_matches("`]").to_owned(),
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return words.replace(' ', ""),
    };
    (number.parse::<u64>().expect("a number") << shift).to_string()
}

/// Formats a number for the documentation, with commas if it has five digits or more.
pub(crate) fn in_words(number: usize) -> String {
    let mut words = number.to_string();
    if words.len() > 4 {
        for at in (1..words.len()).rev().filter(|at| (words.len() - at).is_multiple_of(3)).collect::<Vec<_>>()
        {
            words.insert(at, ',');
        }
    }
    words
}

/// Asserts that docs/limits.md states the default of a setting, in the row of `section` whose last
/// cell contains its name.
#[track_caller]
pub(crate) fn check_limits_page(section: &str, setting: &str, text: &str) {
    let page = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/limits.md"));
    let (_, section) = page.split_once(&format!("\n## {section}\n")).expect("the section");
    let section = section.split("\n## ").next().unwrap();
    let name = format!("`{setting}`");
    let row = section.lines().find_map(|line| {
        let cells: Vec<_> = line.trim_matches('|').split(" | ").collect();
        cells.last().is_some_and(|last| last.contains(&name)).then(|| cells[1])
    });
    let default = row.unwrap_or_else(|| panic!("docs/limits.md has no row for {setting}"));
    assert!(default.contains(text), "{setting} is {text}, and {default} in docs/limits.md");
}
