//! Checks that prose fits in 100 columns: comments, rustdoc and Markdown.

use crate::{path, read, tracked};

const WIDTH: usize = 100;

/// Returns the lines of prose in `text` that are too wide, as numbers from one.
///
/// Code blocks, tables, and lines with a link to the web may be wider.
fn wide_lines(text: &str, is_rust: bool) -> Vec<usize> {
    let mut in_code_block = false;
    let mut wide = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        let Some(prose) = (if is_rust { comment(line) } else { Some(line) }) else { continue };
        let prose = prose.trim_start();
        if prose.starts_with("```") {
            in_code_block = !in_code_block;
        } else if !in_code_block
            && !prose.starts_with('|')
            && !prose.contains("http")
            && line.chars().count() > WIDTH
        {
            wide.push(number);
        }
    }
    wide
}

/// Returns the text of the comment on a line of Rust. A `//` in a string counts as one if it has
/// spaces around it.
fn comment(line: &str) -> Option<&str> {
    let code = line.trim_start();
    if let Some(comment) = code.strip_prefix("//") {
        return Some(comment.strip_prefix(['/', '!']).unwrap_or(comment));
    }
    line.split_once(" // ").map(|(_, comment)| comment)
}

#[test]
fn prose_fits_in_100_columns() {
    let mut wide = Vec::new();
    for file in tracked(&["rs", "md"]) {
        let text = read(&path(&file));
        wide.extend(wide_lines(&text, file.ends_with(".rs")).iter().map(|line| format!("{file}:{line}")));
    }
    assert!(
        wide.is_empty(),
        "{} lines of prose are wider than {WIDTH} columns:\n{}",
        wide.len(),
        wide.join("\n")
    );
}

#[test]
fn the_width_of_prose_is_measured_outside_code_and_tables() {
    let long = "word ".repeat(25);
    let markdown =
        format!("{long}\n| {long}\n```text\n{long}\n```\nsee https://example.org {long}\n{long}\n");
    assert_eq!(wide_lines(&markdown, false), [1, 7]);
    let code_block = format!("/// ```\n/// {long}\n/// ```\n");
    let rust = format!("/// {long}\nlet a = \"{long}\";\nlet a = 1; // {long}\n{code_block}");
    assert_eq!(wide_lines(&rust, true), [1, 3]);
}
