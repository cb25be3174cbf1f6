//! Checks that imports point down the layers of docs/architecture.md and that no modules import
//! each other.
//!
//! A file and its own submodules are one unit: a submodule may use items of its parent. Siblings
//! are compared with their whole subtrees, at every level.

use crate::{
    import_graph::{Import, ImportGraph, ModulePath},
    path, read,
    source_tokens::Source,
};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the layers of docs/architecture.md from the top, each with its modules.
fn layers() -> Vec<Vec<String>> {
    let text = read(&path("docs/architecture.md"));
    let block = text.split("```layers\n").nth(1).and_then(|rest| rest.split("```").next());
    let lines = block.expect("docs/architecture.md has a block `layers`").lines();
    // Two spaces separate the modules of a layer from its description.
    lines
        .map(|line| line.split("  ").next().unwrap_or(line).split_whitespace().map(str::to_owned).collect())
        .collect()
}

fn crate_imports() -> BTreeSet<Import> {
    ImportGraph::read(&path("src/lib.rs"), Source::parse).imports()
}

/// Returns the imports that do not point to a lower layer.
fn against_the_layers(imports: &BTreeSet<Import>, layers: &[Vec<String>]) -> Vec<String> {
    let layer = |module: &str| layers.iter().position(|modules| modules.iter().any(|name| name == module));
    let mut wrong = BTreeSet::new();
    for Import { from, to, path } in imports {
        let (Some(from), Some(to)) = (from.first(), to.first()) else { continue };
        match (layer(from), layer(to)) {
            (None, _) => wrong.insert(format!("`{from}` is in no layer")),
            (_, None) => wrong.insert(format!("`{to}` is in no layer")),
            (Some(above), Some(below)) if from != to && above >= below => {
                wrong.insert(format!("`{from}` imports `{path}`, which is not in a lower layer"))
            }
            _ => false,
        };
    }
    wrong.into_iter().collect()
}

/// Returns a shortest cycle among the children of each module, with one import for each step.
fn cycles(imports: &BTreeSet<Import>) -> Vec<String> {
    let mut edges: BTreeMap<ModulePath, BTreeMap<ModulePath, &Import>> = BTreeMap::new();
    for import in imports {
        let common = import.from.iter().zip(&import.to).take_while(|(a, b)| a == b).count();
        let (Some(_), Some(_)) = (import.from.get(common), import.to.get(common)) else { continue };
        let (from, to) = (import.from[..=common].to_vec(), import.to[..=common].to_vec());
        edges.entry(from).or_default().entry(to).or_insert(import);
    }
    let mut found = Vec::new();
    let mut reported = BTreeSet::new();
    for start in edges.keys() {
        if let Some(cycle) = shortest_cycle(start, &edges) {
            let members: BTreeSet<_> = cycle.iter().map(|import| import.from.join("::")).collect();
            if reported.insert(members) {
                let steps = cycle
                    .iter()
                    .map(|i| format!("{} → {} (`{}`)", i.from.join("::"), i.to.join("::"), i.path));
                found.push(steps.collect::<Vec<_>>().join(", "));
            }
        }
    }
    found
}

type Edges<'a> = BTreeMap<ModulePath, BTreeMap<ModulePath, &'a Import>>;

fn shortest_cycle<'a>(start: &ModulePath, edges: &Edges<'a>) -> Option<Vec<&'a Import>> {
    let mut reached: BTreeMap<&ModulePath, (&ModulePath, &'a Import)> = BTreeMap::new();
    let mut wave = vec![start];
    while !wave.is_empty() {
        let mut next = Vec::new();
        for from in wave {
            for (to, import) in edges.get(from).into_iter().flatten() {
                if reached.contains_key(to) {
                    continue;
                }
                reached.insert(to, (from, import));
                if to == start {
                    return Some(walk_back(start, &reached));
                }
                next.push(to);
            }
        }
        wave = next;
    }
    None
}

fn walk_back<'a>(
    start: &ModulePath,
    reached: &BTreeMap<&ModulePath, (&ModulePath, &'a Import)>,
) -> Vec<&'a Import> {
    let (mut at, mut steps) = (start, Vec::new());
    loop {
        let (before, import) = reached[at];
        steps.push(import);
        at = before;
        if at == start {
            steps.reverse();
            return steps;
        }
    }
}

#[test]
fn imports_point_down_the_layers() {
    let wrong = against_the_layers(&crate_imports(), &layers());
    assert!(wrong.is_empty(), "see docs/architecture.md:\n{}", wrong.join("\n"));
}

#[test]
fn every_layer_names_modules_that_exist_once() {
    let imports = crate_imports();
    let existing: BTreeSet<_> =
        imports.iter().flat_map(|import| [import.from.first(), import.to.first()]).flatten().collect();
    let mut named = BTreeSet::new();
    for name in layers().iter().flatten() {
        assert!(named.insert(name.clone()), "`{name}` is in two layers");
        assert!(existing.contains(name), "there is no module `{name}`");
    }
}

#[test]
fn no_modules_import_each_other() {
    let cycles = cycles(&crate_imports());
    assert!(cycles.is_empty(), "cycles:\n{}", cycles.join("\n"));
}

/// Builds a crate from modules, each given by its path and its source.
fn imports_of(modules: &[(&str, &str)]) -> BTreeSet<Import> {
    let mut graph = ImportGraph::default();
    for (path, text) in modules {
        let path = path.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect();
        graph.insert(path, &Source::parse(text).tokens);
    }
    graph.imports()
}

#[test]
fn an_upward_import_is_found_behind_a_re_export_and_in_an_expression() {
    let layers = [vec!["top".to_owned()], vec!["bottom".to_owned()]];
    let upward = |text: &str| {
        let modules =
            [("", ""), ("top", "mod deep; pub use deep::Name;"), ("top::deep", ""), ("bottom", text)];
        against_the_layers(&imports_of(&modules), &layers).len()
    };
    assert_eq!(upward("use crate::{top::{Name, self}};"), 2);
    assert_eq!(upward("fn f() { crate::top::deep::g() }"), 1);
    assert_eq!(upward("use std::top; pub(in crate::top) fn f() {}"), 0);
}

#[test]
fn a_cycle_between_siblings_is_found_through_their_submodules() {
    let cycle = |text: &str| {
        let modules = [("", ""), ("a", "use crate::b::X;"), ("b", ""), ("b::c", text)];
        cycles(&imports_of(&modules)).len()
    };
    assert_eq!(cycle("use crate::a::Y;"), 1);
    assert_eq!(cycle("use super::super::a::Y;"), 1);
    assert_eq!(cycle("use super::X;"), 0, "a file and its submodules are one unit");
}
