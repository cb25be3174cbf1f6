//! Checks that docs/features.md has a row for each feature of Cargo.toml, and no other.

use super::{path, read};
use std::collections::BTreeSet;

/// Returns the names of the features that Cargo.toml declares.
fn declared() -> BTreeSet<String> {
    let text = read(&path("Cargo.toml"));
    let (_, features) = text.split_once("\n[features]\n").expect("Cargo.toml has features");
    let (features, _) = features.split_once("\n[").expect("another section follows");
    let names = features.lines().filter_map(|line| line.split_once(" = ["));
    names.map(|(name, _)| name.to_owned()).filter(|name| name != "default").collect()
}

#[test]
fn each_feature_has_a_row() {
    let text = read(&path("docs/features.md"));
    let names = text.lines().filter_map(|line| line.strip_prefix("| `")?.split_once("` |"));
    let described: BTreeSet<String> = names.map(|(name, _)| name.to_owned()).collect();
    // One row of the conflicts is about two features.
    let described: BTreeSet<String> = described.into_iter().filter(|name| !name.contains('`')).collect();
    assert_eq!(described, declared());
}
