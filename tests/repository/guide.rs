//! Checks the code and the links of the guide.
//!
//! A block of code is either a doctest, or an excerpt of a program that is compiled and run: an
//! example or a test. The line before an excerpt names the file:
//! `<!-- from examples/guide_chat.rs -->`.
//!
//! A link to another page uses a label. The page defines the label as a file at its end, for
//! GitHub: `[Timers][timers]` and `[timers]: timers.md`. `src/guide/links.md` defines it for
//! rustdoc.

use crate::{path, read, tracked};
use std::collections::BTreeSet;

/// A fenced block of Rust code.
struct Block {
    line: usize,
    /// The words after the fence, for example `rust,ignore`.
    info: String,
    /// The program that it is an excerpt of.
    source: Option<String>,
    code: String,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut previous = "";
    let mut lines = (1..).zip(text.lines());
    while let Some((line, text)) = lines.next() {
        if let Some(info) = text.strip_prefix("```") {
            let code = lines.by_ref().map(|(_, text)| text).take_while(|text| *text != "```");
            let code: Vec<&str> = code.collect();
            if info.starts_with("rust") {
                let source = previous.strip_prefix("<!-- from ").and_then(|rest| rest.strip_suffix(" -->"));
                blocks.push(Block {
                    line,
                    info: info.to_owned(),
                    source: source.map(str::to_owned),
                    code: code.join("\n"),
                });
            }
        }
        previous = text;
    }
    blocks
}

#[test]
fn the_code_of_the_guide_is_compiled() {
    let mut wrong = Vec::new();
    let mut excerpts = 0;
    for file in tracked(&["md"]).iter().filter(|file| file.starts_with("docs/guide/")) {
        for Block { line, info, source, code } in blocks(&read(&path(file))) {
            match source {
                Some(source) if read(&path(&source)).contains(&code) => excerpts += 1,
                Some(source) => wrong.push(format!("{file}:{line}: is not in {source}")),
                None if info.contains("ignore") => wrong.push(format!("{file}:{line}: is not compiled")),
                None => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(excerpts > 10, "the guide has {excerpts} excerpts of programs");
}

/// Returns the labels that a page defines, with their targets.
fn definitions(text: &str) -> BTreeSet<(&str, &str)> {
    text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
}

#[test]
fn links_between_pages_work_on_github_and_in_rustdoc() {
    let links = read(&path("src/guide/links.md"));
    let labels: BTreeSet<_> = definitions(&links).into_iter().map(|(label, _)| label).collect();
    let modules = read(&path("src/guide/mod.rs"));
    let mut wrong = Vec::new();
    for file in tracked(&["md"]) {
        let Some(name) = file.strip_prefix("docs/guide/") else { continue };
        let text = read(&path(&file));
        if name != "README.md" && !modules.contains(&format!(": {name:?},")) {
            wrong.push(format!("{file}: is not a chapter in src/guide/mod.rs"));
        }
        for (number, line) in (1..).zip(text.lines()) {
            if line.contains(".md)") || line.contains(".md#") {
                wrong.push(format!("{file}:{number}: this link leads nowhere in rustdoc; use a label"));
            }
        }
        for (label, target) in definitions(&text) {
            let page = target.trim_end_matches(".md").replace("../", "docs/");
            if label != page {
                wrong.push(format!("{file}: the label of {target} is {page:?}, not {label:?}"));
            }
            // A page that does not exist is a broken link, which `doc_links` reports.
            let exists = path("docs/guide").join(target).exists();
            if exists && !labels.contains(label) {
                wrong.push(format!("{file}: src/guide/links.md does not define {label:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the names of the public modules of the crate root.
fn public_modules() -> Vec<String> {
    let root = read(&path("src/lib.rs"));
    let names = root.lines().filter_map(|line| {
        let name = line.strip_prefix("pub mod ")?.trim_end_matches([';', '{', ' ']);
        (!["guide", "prelude"].contains(&name)).then(|| name.to_owned())
    });
    names.chain(["filter".to_owned()]).collect()
}

#[test]
fn the_guide_names_a_chapter_for_each_public_module() {
    let text = read(&path("docs/guide/README.md"));
    let table = text.split("## Where each module is explained").nth(1).expect("the table of modules");
    let cells = table.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let listed: BTreeSet<&str> =
        cells.flat_map(|cell| cell.split(", ")).map(|n| n.trim_matches('`')).collect();
    let modules = public_modules();
    assert!(modules.len() > 25, "{modules:?}");
    let missing: Vec<_> = modules.iter().filter(|name| !listed.contains(name.as_str())).collect();
    assert!(missing.is_empty(), "docs/guide/README.md names no chapter for {missing:?}");
}

#[test]
fn blocks_are_found_with_their_source() {
    let text =
        "<!-- from a.rs -->\n```rust,ignore\nlet a = 1;\n```\n```text\n```rust\n```\n```rust\n1\n```\n";
    let found: Vec<_> = blocks(text).into_iter().map(|b| (b.line, b.source, b.code)).collect();
    assert_eq!(found[0], (2, Some("a.rs".to_owned()), "let a = 1;".to_owned()));
    assert_eq!(found.len(), 2);
}

/// A reader who copies the excerpts of this chapter in their order has the program.
#[test]
fn the_excerpts_of_the_chat_chapter_are_the_whole_program() {
    let chapter = read(&path("docs/guide/chat.md"));
    let excerpts = blocks(&chapter).into_iter().map(|block| block.code).collect::<Vec<_>>().join("\n");
    let program = read(&path("examples/guide_chat.rs"));
    let code = |text: &str| -> Vec<String> {
        let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with("//!"));
        lines.map(str::to_owned).collect()
    };
    assert_eq!(code(&excerpts), code(&program));
}
