//! Types and traits of other crates in public items.

use crate::listing::{PublicItem, bracketed};
use std::collections::{BTreeMap, BTreeSet};

/// Crates of version 0.x whose types need no versioned feature. tower-service 0.3 is the interface
/// of many crates and has been compatible since 2019 (docs/architecture.md).
const EXEMPT: [&str; 1] = ["tower_service"];

/// The features under which types of 0.x crates may occur: crate, version and feature.
const VERSIONED: [(&str, &str, &str); 6] = [
    ("postgres", "0.19", "postgres-019"),
    ("prometheus_client", "0.25", "prometheus-client-025"),
    ("prost", "0.14", "prost-014"),
    ("rusqlite", "0.40", "rusqlite-040"),
    ("rustls", "0.23", "rustls-023"),
    ("tokio_postgres", "0.7", "postgres-019"),
];

/// A type, trait or crate of another crate, and where it occurs.
pub(crate) struct ForeignType {
    path: String,
    /// The versions of the crate, as far as a new one is a breaking change.
    versions: BTreeSet<String>,
    /// The items, and the features that each needs.
    items: BTreeMap<String, BTreeSet<String>>,
}

impl ForeignType {
    /// Returns whether a minor version of the crate may break its API.
    fn is_unstable(&self) -> bool {
        self.versions.iter().any(|version| version.starts_with("0."))
    }
}

/// Collects the types of other crates.
pub(crate) fn types(
    items: &[PublicItem],
    crates: &BTreeSet<&str>,
    versions: &BTreeMap<String, BTreeSet<String>>,
) -> Vec<ForeignType> {
    let mut found: BTreeMap<&str, BTreeMap<String, BTreeSet<String>>> = BTreeMap::new();
    for item in items {
        // The name of an associated type begins with that of the type that implements the trait,
        // which is named there.
        let declared = if item.text.starts_with("pub type") {
            item.text.split_once(" = ").map_or("", |(_, declared)| declared)
        } else {
            &item.text
        };
        let source = item.re_exports.as_deref().map(|source| source.trim_start_matches("::"));
        for path in paths(declared).chain(source) {
            if crates.contains(first(path)) {
                found.entry(path).or_default().insert(name(&item.text), item.features.clone());
            }
        }
    }
    let of_crate = |path: &str| versions.get(first(path)).cloned().unwrap_or_default();
    let typed =
        |(path, items): (&str, _)| ForeignType { path: path.to_owned(), versions: of_crate(path), items };
    found.into_iter().map(typed).collect()
}

/// Returns the first part of a path.
fn first(path: &str) -> &str {
    path.split_once("::").map_or(path, |(first, _)| first)
}

/// Returns the paths of more than one part in a declaration.
fn paths(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(move |c| !is_part(c)).map(|path| path.trim_end_matches(':')).filter(|path| path.contains("::"))
}

/// Returns the name of an item: an implementation as a whole, anything else without its types.
fn name(text: &str) -> String {
    let declared = text.split(" where ").next().unwrap_or(text).replace("<'_>::", "::");
    if declared.starts_with("impl") {
        return declared.replace("netwheel::", "");
    }
    let path = paths(&declared).find(|path| path.starts_with("netwheel::"));
    path.unwrap_or(&declared).trim_start_matches("netwheel::").to_owned()
}

/// Returns a line for each item that shows a type of a 0.x crate without the feature that names its
/// crate and version.
pub(crate) fn unversioned(types: &[ForeignType]) -> Vec<String> {
    let mut problems = Vec::new();
    let is_exempt = |foreign: &ForeignType| EXEMPT.contains(&first(&foreign.path));
    for foreign in types.iter().filter(|foreign| foreign.is_unstable() && !is_exempt(foreign)) {
        for (item, features) in &foreign.items {
            let is_versioned = foreign.versions.iter().all(|version| {
                let of_crate = |row: &&(&str, &str, &str)| row.0 == first(&foreign.path) && row.1 == version;
                VERSIONED.iter().find(of_crate).is_some_and(|(_, _, feature)| features.contains(*feature))
            });
            if !is_versioned {
                let path = &foreign.path;
                problems.push(format!("{item} shows {path}, without a feature that names its version"));
            }
        }
    }
    problems
}

/// Returns the lines of `foreign-types.txt`: all items for crates of version 0.x, and the modules
/// for others.
pub(crate) fn text(types: &[ForeignType]) -> String {
    let mut text = String::new();
    for foreign in types {
        let features: BTreeSet<String> = foreign.items.values().flatten().cloned().collect();
        let always = foreign.items.values().any(BTreeSet::is_empty);
        let needed = if always { String::new() } else { bracketed(&features) };
        let versions: Vec<_> = foreign.versions.iter().map(String::as_str).collect();
        let places: BTreeSet<&str> = if foreign.is_unstable() {
            foreign.items.keys().map(String::as_str).collect()
        } else {
            foreign.items.keys().map(|item| module(item)).collect()
        };
        let places: Vec<_> = places.into_iter().collect();
        let line = format!("{} {}{needed}: {}\n", foreign.path, versions.join(", "), places.join("; "));
        text.push_str(&line);
    }
    text
}

/// Returns the module of an item.
fn module(item: &str) -> &str {
    if item.starts_with("impl") { item } else { first(item) }
}
