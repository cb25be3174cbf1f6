//! Checks the dependencies of the library: their licences against the list in deny.toml, and
//! that no crate occurs in two versions. `cargo deny check` also checks advisories, and everything
//! that only tests and examples depend on.

use super::{path, read};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env,
    process::Command,
};

/// Returns the licences that deny.toml allows.
fn allowed() -> BTreeSet<String> {
    let text = read(&path("deny.toml"));
    let (_, list) = text.split_once("\nallow = [").expect("deny.toml has a list of licences");
    let (list, _) = list.split_once(']').expect("the list ends");
    list.split(',')
        .map(|licence| licence.trim().trim_matches('"').to_string())
        .filter(|licence| !licence.is_empty())
        .collect()
}

/// Returns the packages that deny.toml allows beside another version, as `name@version`.
fn skipped() -> BTreeSet<String> {
    let text = read(&path("deny.toml"));
    let (_, list) = text.split_once("\nskip = [").expect("deny.toml has a list of skipped packages");
    let (list, _) = list.split_once("\n]").expect("the list ends");
    list.lines()
        .filter_map(|line| line.split_once("crate = \""))
        .filter_map(|(_, package)| package.split_once('"'))
        .map(|(package, _)| package.to_string())
        .collect()
}

/// Evaluates a licence expression (SPDX): one alternative of `OR` is sufficient, `AND` needs all.
/// `OR` binds weaker than `AND`; parentheses occur around a whole operand only.
fn is_allowed(expression: &str, allowed: &BTreeSet<String>) -> bool {
    let expression = expression.trim();
    for (operator, all) in [("OR", false), ("AND", true)] {
        let operands = split(expression, operator);
        if operands.len() > 1 {
            let mut accepted = operands.iter().map(|operand| is_allowed(operand, allowed));
            return if all { accepted.all(|yes| yes) } else { accepted.any(|yes| yes) };
        }
    }
    match expression.strip_prefix('(').and_then(|inner| inner.strip_suffix(')')) {
        Some(inner) => is_allowed(inner, allowed),
        None => allowed.contains(expression),
    }
}

/// Splits an expression at an operator outside of parentheses.
fn split(expression: &str, operator: &str) -> Vec<String> {
    let (mut depth, mut operands) = (0, vec![Vec::new()]);
    // An older form writes a slash for OR.
    for word in expression.replace('/', " OR ").split_whitespace() {
        if depth == 0 && word == operator {
            operands.push(Vec::new());
            continue;
        }
        depth += word.matches('(').count();
        depth -= word.matches(')').count().min(depth);
        operands.last_mut().expect("never empty").push(word.to_string());
    }
    operands.into_iter().map(|words| words.join(" ")).collect()
}

/// Returns what `cargo metadata` says about the library with all features, on all systems.
fn metadata() -> Value {
    let output = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["metadata", "--format-version", "1", "--all-features", "--locked"])
        .arg("--manifest-path")
        .arg(path("Cargo.toml"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo writes JSON")
}

/// Returns the ids of the packages on which the library depends directly or indirectly, without the
/// packages of its tests and examples.
fn normal_dependencies(metadata: &Value) -> BTreeSet<&str> {
    let nodes: BTreeMap<&str, &Value> = metadata["resolve"]["nodes"]
        .as_array()
        .expect("a list of nodes")
        .iter()
        .map(|node| (node["id"].as_str().expect("an id"), node))
        .collect();
    let root = metadata["resolve"]["root"].as_str().expect("a root package");
    let (mut found, mut waiting) = (BTreeSet::new(), vec![root]);
    while let Some(id) = waiting.pop() {
        for dependency in nodes[id]["deps"].as_array().expect("a list of dependencies") {
            let kinds = dependency["dep_kinds"].as_array().expect("a list of kinds");
            let id = dependency["pkg"].as_str().expect("an id");
            if kinds.iter().any(|kind| kind["kind"] != "dev") && found.insert(id) {
                waiting.push(id);
            }
        }
    }
    found
}

#[test]
fn dependencies_have_allowed_licences_and_one_version_each() {
    let (metadata, allowed, skipped) = (metadata(), allowed(), skipped());
    let dependencies = normal_dependencies(&metadata);
    assert!(dependencies.len() > 20, "too few dependencies found: {dependencies:?}");
    let mut versions = BTreeMap::<&str, BTreeSet<&str>>::new();
    for package in metadata["packages"].as_array().expect("a list of packages") {
        if !dependencies.contains(package["id"].as_str().expect("an id")) {
            continue;
        }
        let name = package["name"].as_str().expect("a name");
        let licence = package["license"].as_str().unwrap_or("no licence");
        assert!(is_allowed(licence, &allowed), "{name}: {licence} is not allowed by deny.toml");
        let version = package["version"].as_str().expect("a version");
        if !skipped.contains(&format!("{name}@{version}")) {
            versions.entry(name).or_default().insert(version);
        }
    }
    versions.retain(|_, versions| versions.len() > 1);
    assert!(versions.is_empty(), "dependencies in several versions: {versions:?}");
}

#[test]
fn licence_expressions_are_evaluated() {
    let allowed = BTreeSet::from(["MIT", "Unicode-3.0", "Apache-2.0 WITH LLVM-exception"].map(String::from));
    for expression in [
        "MIT",
        "MIT OR Apache-2.0",
        "Apache-2.0/MIT",
        "(Apache-2.0 OR MIT) AND Unicode-3.0",
        "GPL-3.0 AND Zlib OR MIT",
        "Apache-2.0 WITH LLVM-exception OR GPL-3.0",
    ] {
        assert!(is_allowed(expression, &allowed), "{expression}");
    }
    for expression in ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT OR Zlib) AND Zlib", "Apache-2.0"] {
        assert!(!is_allowed(expression, &allowed), "{expression}");
    }
}

#[test]
fn the_badges_of_the_readme_are_true() {
    let (manifest, readme) = (read(&path("Cargo.toml")), read(&path("README.md")));
    let field = |name: &str| {
        let start = format!("{name} = \"");
        let line = manifest.lines().find_map(|line| line.strip_prefix(start.as_str()));
        line.expect("a field of the manifest").trim_end_matches('"').to_owned()
    };
    let version = field("rust-version");
    let licence = field("license").replace(' ', "%20").replace('-', "--");
    assert!(readme.contains(&format!("/badge/rust-{version}%2B-blue)")), "Rust {version}");
    assert!(readme.contains(&format!("/badge/license-{licence}-blue)")), "{licence}");
}
