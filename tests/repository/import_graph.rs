//! The modules of the crate and the imports between them.
//!
//! Invariant: an edge leads to the module that defines a name, not to one that re-exports it.

use crate::source_tokens::{Source, Token, group_length};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The path of a module; empty for the crate root.
pub(crate) type ModulePath = Vec<String>;

/// The longest chain of re-exports that is followed. A longer chain is a loop.
const MAX_REEXPORTS: usize = 16;

/// The imports of a crate.
#[derive(Default)]
pub(crate) struct ImportGraph {
    modules: BTreeMap<ModulePath, Module>,
    /// Inline modules of the crate root. They re-export items for users.
    for_users: BTreeSet<ModulePath>,
}

#[derive(Default)]
struct Module {
    /// The paths that the module mentions, relative to it or to the crate.
    paths: Vec<Mention>,
    /// Imported names and the paths that they stand for.
    names: BTreeMap<String, Vec<Token>>,
}

struct Mention {
    path: Vec<Token>,
    /// Whether it offers the item to others, with `pub use` or `pub(crate) use`.
    is_reexport: bool,
}

/// An import: the importing module, the defining module, and the path as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Import {
    pub(crate) from: ModulePath,
    pub(crate) to: ModulePath,
    pub(crate) path: String,
}

/// A path by which a module names an item of another module.
#[derive(Debug)]
pub(crate) struct ItemPath {
    pub(crate) from: ModulePath,
    /// The defining module, then the name of the item.
    pub(crate) item: ModulePath,
    /// The path as written, from the root of the crate.
    pub(crate) path: ModulePath,
}

impl ImportGraph {
    /// Reads a crate, starting at its root file, with `parse` for the text of each file.
    pub(crate) fn read(root: &Path, parse: fn(&str) -> Source) -> Self {
        let mut graph = ImportGraph::default();
        let folder = root.parent().expect("a file has a folder");
        graph.read_module(Vec::new(), root, folder, parse);
        graph
    }

    fn read_module(&mut self, module: ModulePath, file: &Path, folder: &Path, parse: fn(&str) -> Source) {
        let text = fs::read_to_string(file).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
        let source = parse(&text);
        self.insert(module.clone(), &source.tokens);
        for declared in &source.modules {
            let mut child = module.clone();
            child.push(declared.name.clone());
            let (file, folder) = match &declared.path {
                Some(path) => (file.with_file_name(path), folder.join(&declared.name)),
                None => module_file(folder, &declared.name),
            };
            self.read_module(child, &file, &folder, parse);
        }
    }

    /// Adds a module and its inline modules, given its tokens.
    pub(crate) fn insert(&mut self, path: ModulePath, tokens: &[Token]) {
        let (mut own, mut at) = (Vec::new(), 0);
        while at < tokens.len() {
            match &tokens[at..] {
                [word, name, brace, ..] if word == "mod" && brace == "{" => {
                    let length = group_length(&tokens[at + 2..]);
                    let child = [&path[..], std::slice::from_ref(name)].concat();
                    self.insert(child.clone(), &tokens[at + 3..at + 1 + length]);
                    if path.is_empty() {
                        self.for_users.insert(child);
                    }
                    at += 2 + length;
                }
                _ => {
                    own.push(tokens[at].clone());
                    at += 1;
                }
            }
        }
        self.modules.insert(path, Module::read(&own));
    }

    /// Returns all imports between two different modules, without those of the modules for users.
    pub(crate) fn imports(&self) -> BTreeSet<Import> {
        let mut imports = BTreeSet::new();
        for (from, module) in self.modules.iter().filter(|(path, _)| !self.for_users.contains(*path)) {
            for Mention { path, .. } in &module.paths {
                let Some((to, _)) = self.absolute(from, path).and_then(|path| self.resolve(&path, 0)) else {
                    continue;
                };
                if to != *from {
                    imports.insert(Import { from: from.clone(), to, path: path.join("::") });
                }
            }
        }
        imports
    }

    /// Returns the paths by which modules name items of others, without re-exports.
    pub(crate) fn item_paths(&self) -> Vec<ItemPath> {
        let mut paths = Vec::new();
        for (from, module) in &self.modules {
            for mention in module.paths.iter().filter(|mention| !mention.is_reexport) {
                let Some(mut path) = self.absolute(from, &mention.path) else { continue };
                let Some((mut item, rest)) = self.resolve(&path, 0) else { continue };
                if let Some((name, members)) = rest.split_first() {
                    // Members are a variant, a method.
                    path.truncate(path.len() - members.len());
                    item.push(name.clone());
                } else if !self.for_users.contains(&item) {
                    continue;
                }
                paths.push(ItemPath { from: from.clone(), item, path });
            }
        }
        paths
    }

    /// Returns the path from the crate's root; `None` for a path into another crate.
    fn absolute(&self, module: &[String], path: &[Token]) -> Option<Vec<Token>> {
        let first = path.first()?.as_str();
        if first == "crate" {
            return Some(path[1..].to_vec());
        }
        if first == "self" {
            return Some([module, &path[1..]].concat());
        }
        let supers = path.iter().take_while(|part| *part == "super").count();
        if supers > 0 {
            return Some([&module[..module.len().checked_sub(supers)?], &path[supers..]].concat());
        }
        let local = [module, path].concat();
        self.modules.contains_key(&local[..=module.len()]).then_some(local)
    }

    /// Returns the module that defines the item named by a path, and the remaining path.
    fn resolve(&self, path: &[Token], depth: usize) -> Option<(ModulePath, Vec<Token>)> {
        let module =
            (0..=path.len()).rev().map(|end| &path[..end]).find(|p| self.modules.contains_key(*p))?;
        let rest = &path[module.len()..];
        let Some(name) = rest.first() else { return Some((module.to_vec(), Vec::new())) };
        let alias = self.modules[module].names.get(name).filter(|_| depth < MAX_REEXPORTS);
        let renamed = alias.and_then(|alias| self.absolute(module, alias));
        match renamed {
            Some(target) => self.resolve(&[&target, &rest[1..]].concat(), depth + 1),
            None => Some((module.to_vec(), rest.to_vec())),
        }
    }
}

impl Module {
    /// Reads the paths of a module without inline modules.
    fn read(tokens: &[Token]) -> Self {
        let mut read = Module::default();
        let mut at = 0;
        while at < tokens.len() {
            match tokens[at].as_str() {
                // `impl Trait + use<'a>` is not an import.
                "use" if tokens.get(at + 1).is_some_and(|next| next != "<") => {
                    let end = at + tokens[at..].iter().position(|token| token == ";").expect("`use` ends");
                    let before = at.checked_sub(1).map(|before| tokens[before].as_str());
                    let is_reexport = matches!(before, Some("pub" | ")"));
                    read_use_tree(&tokens[at + 1..end], &mut Vec::new(), is_reexport, &mut read);
                    at = end;
                }
                "crate" | "super" | "self" if tokens.get(at + 1).is_some_and(|next| next == "::") => {
                    let path = read_path(&tokens[at..]);
                    at += path.len() * 2 - 1;
                    // `pub(in crate::channel)` is not an import.
                    if tokens.get(at.wrapping_sub(path.len() * 2)).is_none_or(|before| before != "in") {
                        read.paths.push(Mention { path, is_reexport: false });
                    }
                    continue;
                }
                _ => {}
            }
            at += 1;
        }
        read
    }
}

/// Returns the file of a module without a `path` attribute, and the folder of its children.
fn module_file(folder: &Path, name: &str) -> (PathBuf, PathBuf) {
    let children = folder.join(name);
    let own = children.join("mod.rs");
    if own.exists() { (own, children) } else { (folder.join(name).with_extension("rs"), children) }
}

fn read_path(tokens: &[Token]) -> Vec<Token> {
    let mut path = vec![tokens[0].clone()];
    let mut at = 1;
    while let [colons, part, ..] = &tokens[at..]
        && colons == "::"
        && part.chars().all(|c| c.is_alphanumeric() || c == '_')
    {
        path.push(part.clone());
        at += 2;
    }
    path
}

/// Reads one tree of a `use` declaration after `prefix`.
fn read_use_tree(tree: &[Token], prefix: &mut Vec<Token>, is_reexport: bool, module: &mut Module) {
    let length = prefix.len();
    let mut at = 0;
    while at < tree.len() {
        match tree[at].as_str() {
            "{" => {
                for branch in branches(&tree[at + 1..tree.len() - 1]) {
                    read_use_tree(branch, prefix, is_reexport, module);
                }
                prefix.truncate(length);
                return;
            }
            "as" => break,
            "::" | "*" => {}
            part => prefix.push(part.to_owned()),
        }
        at += 1;
    }
    if prefix.len() > 1 && prefix.last().is_some_and(|last| last == "self") {
        prefix.pop();
    }
    let name = if at < tree.len() { tree.get(at + 1) } else { prefix.last() };
    if let Some(name) = name.cloned() {
        module.names.insert(name, prefix.clone());
    }
    module.paths.push(Mention { path: prefix.clone(), is_reexport });
    prefix.truncate(length);
}

/// Splits the branches of a `use` tree at the commas of its outermost level.
fn branches(tokens: &[Token]) -> Vec<&[Token]> {
    let (mut depth, mut begin, mut found) = (0, 0, Vec::new());
    for (at, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "{" => depth += 1,
            "}" => depth -= 1,
            "," if depth == 0 => {
                found.push(&tokens[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    found.push(&tokens[begin..]);
    found.retain(|branch| !branch.is_empty());
    found
}
