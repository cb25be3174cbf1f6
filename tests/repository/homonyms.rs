//! Types of different modules have different names.
//!
//! Only types that other files can name are compared: a private `State` has its file as a context.
//! The remaining homonyms are public names of different modules, and private counterparts of them.

use super::sources;
use std::collections::BTreeMap;

/// The number of names that more than one file may declare. Lower it when one is renamed.
const MAX_HOMONYMS: usize = 19;

/// Returns the name of the type that a line declares for other files.
fn declared(line: &str) -> Option<&str> {
    let rest = line.strip_prefix("pub")?;
    let rest = match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(')')?.1,
        None => rest,
    };
    let (kind, rest) = rest.trim_start().split_once(' ')?;
    let name = rest.split(|c: char| !c.is_alphanumeric() && c != '_').next()?;
    ["struct", "enum", "trait", "type", "union"].contains(&kind).then_some(name)
}

/// Returns whether a file contains nothing but tests.
fn is_test(path: &str) -> bool {
    ["/tests", "_tests", "/conformance/"].iter().any(|part| path.contains(part))
}

#[test]
fn few_types_share_a_name() {
    let mut declaring: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (path, text) in sources() {
        let path = path.strip_prefix(super::path("src")).map(|path| path.display().to_string());
        let Ok(path) = path else { continue };
        // The counterpart without the feature has the same names.
        if is_test(&format!("/{path}")) || path == "websocket/uncompressed.rs" {
            continue;
        }
        let code = text.split("\n#[cfg(test)]\nmod tests").next().unwrap_or_default();
        for name in code.lines().filter_map(declared) {
            let files = declaring.entry(name.to_owned()).or_default();
            if files.last() != Some(&path) {
                files.push(path.clone());
            }
        }
    }
    assert!(declaring.len() > 500, "the declarations are found");
    declaring.retain(|_, files| files.len() > 1);
    let list: Vec<_> =
        declaring.iter().map(|(name, files)| format!("{name}: {}", files.join(", "))).collect();
    assert!(list.len() <= MAX_HOMONYMS, "{} names are declared twice:\n{}", list.len(), list.join("\n"));
}
