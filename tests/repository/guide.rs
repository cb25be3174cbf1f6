//! Checks the code of the guide: a block is either a doctest, or an excerpt of a program that is
//! compiled and run as an example.
//!
//! The line before an excerpt names the program: `<!-- from examples/guide_chat.rs -->`.

use crate::{path, read, tracked};

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

#[test]
fn blocks_are_found_with_their_source() {
    let text =
        "<!-- from a.rs -->\n```rust,ignore\nlet a = 1;\n```\n```text\n```rust\n```\n```rust\n1\n```\n";
    let found: Vec<_> = blocks(text).into_iter().map(|b| (b.line, b.source, b.code)).collect();
    assert_eq!(found[0], (2, Some("a.rs".to_owned()), "let a = 1;".to_owned()));
    assert_eq!(found.len(), 2);
}
