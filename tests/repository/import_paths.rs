//! Checks that each item of the crate has one import path (docs/architecture.md).
//!
//! Inside the folder of the file that defines it, an item is imported from that file. Everywhere
//! else in the crate it has one path, which begins with the module that owns it. Unit tests follow
//! the same rule. Re-exports offer these paths, so they are not checked.

use crate::{
    import_graph::{ImportGraph, ItemPath, ModulePath},
    path,
    source_tokens::Source,
};
use std::collections::BTreeMap;

/// Returns the imports that do not use the one path of an item.
fn wrong_paths(graph: &ImportGraph) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut outside: BTreeMap<ModulePath, BTreeMap<ModulePath, ModulePath>> = BTreeMap::new();
    for ItemPath { from, item, path } in graph.item_paths() {
        // The crate root imports items for users.
        if from.is_empty() {
            continue;
        }
        let (importer, written) = (from.join("::"), path.join("::"));
        let [folder @ .., _file, _name] = &item[..] else {
            wrong.push(format!("`{importer}` imports `{written}` from the crate root, which is for users"));
            continue;
        };
        if from.starts_with(folder) {
            if path != item {
                let item = item.join("::");
                wrong.push(format!("`{importer}` imports `{written}`, which is `{item}` inside its folder"));
            }
        } else if path.len() == 1 || path[0] != item[0] {
            let owner = &item[0];
            wrong.push(format!("`{importer}` imports `{written}`, which belongs to `{owner}`"));
        } else {
            outside.entry(item).or_default().entry(path).or_insert(from);
        }
    }
    for paths in outside.values().filter(|paths| paths.len() > 1) {
        let paths =
            paths.iter().map(|(path, from)| format!("`{}` imports `{}`", from.join("::"), path.join("::")));
        wrong.push(format!("one item, two paths: {}", paths.collect::<Vec<_>>().join(", ")));
    }
    wrong
}

#[test]
fn each_item_has_one_import_path() {
    let wrong = wrong_paths(&ImportGraph::read(&path("src/lib.rs"), Source::parse_with_tests));
    assert!(wrong.is_empty(), "see docs/architecture.md:\n{}", wrong.join("\n"));
}

/// Returns the number of wrong paths of a crate in which `user::code` has this text. `Name` is
/// defined in `owner::door::file`, and both folders re-export it.
fn wrong_in(text: &str) -> usize {
    let mut graph = ImportGraph::default();
    let modules = [
        ("", "mod owner; mod user; pub use owner::Name; pub mod prelude { pub use crate::Name; }"),
        ("owner", "mod door; mod second; pub use door::Name;"),
        ("owner::door", "mod file; mod neighbour; pub use file::Name; mod tests { use super::file::Name; }"),
        ("owner::door::file", "pub struct Name; impl Name { fn new() { Self::new() } }"),
        ("owner::door::neighbour", "use super::file::Name;"),
        ("owner::second", "use crate::owner::Name;"),
        ("user", "mod code; pub use crate::owner::Name;"),
        ("user::code", text),
    ];
    for (module, text) in modules {
        let module = module.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        graph.insert(module, &Source::parse_with_tests(text).tokens);
    }
    wrong_paths(&graph).len()
}

#[test]
fn a_second_path_is_found() {
    assert_eq!(wrong_in("use crate::owner::Name;"), 0);
    assert_eq!(wrong_in("use crate::owner::{self, Name as Other}; fn f() { crate::owner::Name::new() }"), 0);
    assert_eq!(wrong_in("use crate::Name;"), 1, "through the crate root");
    assert_eq!(wrong_in("fn f() { crate::Name::new() }"), 1, "in an expression");
    assert_eq!(wrong_in("use crate::prelude::*;"), 1, "through the prelude");
    assert_eq!(wrong_in("use super::Name;"), 1, "through another module");
    assert_eq!(wrong_in("use crate::owner::door::Name;"), 1, "past the path of the others");
    assert_eq!(wrong_in("#[cfg(test)] mod tests { use crate::{Name}; }"), 1, "in a test");
}

#[test]
fn a_path_past_the_file_is_found_inside_its_folder() {
    let mut graph = ImportGraph::default();
    for (module, text) in
        [("a", "mod b; mod c; pub use b::Name;"), ("a::b", ""), ("a::c", "use super::Name;")]
    {
        let module = module.split("::").map(str::to_owned).collect();
        graph.insert(module, &Source::parse_with_tests(text).tokens);
    }
    assert_eq!(wrong_paths(&graph).len(), 1);
}
