//! Checks that the table in docs/behaviours.md agrees with the tests.
//!
//! The sentences of the table are written by hand. Its column of tests is generated:
//! `UPDATE_BEHAVIOURS=1 cargo test --test repository` writes it.
//!
//! A test belongs to the code at the beginning of its name (`c_04_…`: C-04, `d_16_to_d_21_…`: D-16
//! to D-21), and to the codes in its doc comment.

use super::{path, read, sources};
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
};

const TABLE: &str = "docs/behaviours.md";
const DIFFERENCES: &str = "docs/guide/coming-from-netty.md";

/// The areas of the table, by letter.
const AREAS: &str = "WECTIDHSP";

/// The number of tests that a row names. Any others are only counted.
const NAMED: usize = 3;

/// The placeholder in a row without tests.
const NO_TEST: &str = "–";

/// The code of a behaviour, such as C-04.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Code {
    area: char,
    number: u8,
}

impl Code {
    fn new(area: char, digits: &str) -> Option<Self> {
        let two_digits = digits.len() == 2 && digits.bytes().all(|byte| byte.is_ascii_digit());
        let area = AREAS.contains(area).then_some(area)?;
        two_digits.then(|| Code { area, number: digits.parse().expect("two digits") })
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{:02}", self.area, self.number)
    }
}

/// A row of the table.
struct Row {
    code: Code,
    sentence: String,
    tests: String,
}

impl Row {
    /// Returns `None` for a line that is not a row.
    fn parse(line: &str) -> Option<Self> {
        let cells: Vec<_> = line.strip_prefix("| ")?.strip_suffix(" |")?.split(" | ").collect();
        let code = codes_in(cells[0]).pop().filter(|code| code.to_string() == cells[0])?;
        let [_, sentence, tests] = cells[..] else { panic!("{code}: a row has three cells: {line}") };
        Some(Row { code, sentence: sentence.to_owned(), tests: tests.to_owned() })
    }
}

/// Returns the codes that a text mentions.
fn codes_in(text: &str) -> Vec<Code> {
    let words = text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '-' || c == '_'));
    let code = |word: &str| {
        let (area, digits) = word.split_once('-')?;
        let mut area = area.chars();
        let first = area.next()?;
        if area.next().is_none() { Code::new(first, digits) } else { None }
    };
    words.filter_map(code).collect()
}

/// Returns the codes at the beginning of a test's name: one code, or all codes of a range.
fn codes_of_name(name: &str) -> Vec<Code> {
    fn code(text: &str) -> Option<(Code, &str)> {
        let (area, rest) = text.split_once('_')?;
        let (digits, rest) = rest.split_once('_')?;
        let [area @ b'a'..=b'z'] = area.as_bytes() else { return None };
        Some((Code::new(area.to_ascii_uppercase().into(), digits)?, rest))
    }
    let Some((first, rest)) = code(name) else { return Vec::new() };
    match rest.strip_prefix("to_").and_then(code) {
        Some((last, _)) if last.area == first.area => {
            (first.number..=last.number).map(|number| Code { number, ..first }).collect()
        }
        _ => vec![first],
    }
}

/// Returns the name of the function that a line declares, and whether it takes no arguments.
fn function(line: &str) -> Option<(&str, bool)> {
    let mut rest = line.trim_start();
    while let Some((word, after)) = rest.split_once(' ') {
        match word {
            "fn" => {
                let name = after.split(['(', '<']).next()?;
                return Some((name, after[name.len()..].starts_with("()")));
            }
            "pub" | "pub(crate)" | "pub(super)" | "async" | "const" => rest = after,
            _ => return None,
        }
    }
    None
}

/// Returns the names of the tests in a source, by code.
fn tests_in(source: &str) -> Vec<(Code, String)> {
    let mut tests = Vec::new();
    let mut documented = Vec::new();
    for line in source.lines() {
        let text = line.trim_start();
        if let Some(doc) = text.strip_prefix("///") {
            documented.extend(codes_in(doc));
        } else if let Some((name, is_plain)) = function(text) {
            let codes = codes_of_name(name);
            let of_comment = documented.iter().copied().filter(|_| is_plain);
            tests.extend(codes.into_iter().chain(of_comment).map(|code| (code, name.to_owned())));
            documented.clear();
        } else if !text.starts_with("#[") && !text.starts_with("//") {
            documented.clear();
        }
    }
    tests
}

/// Returns the names of all tests, by code.
fn tests() -> BTreeMap<Code, BTreeSet<String>> {
    let mut tests: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for (_, text) in sources() {
        for (code, name) in tests_in(&text) {
            tests.entry(code).or_default().insert(name);
        }
    }
    tests
}

fn rows() -> BTreeMap<Code, Row> {
    let mut rows = BTreeMap::new();
    for row in read(&path(TABLE)).lines().filter_map(Row::parse) {
        let code = row.code;
        assert!(rows.insert(code, row).is_none(), "{TABLE} has two rows for {code}");
    }
    rows
}

/// Returns the cell that lists the given tests. Tests whose name starts with the code come first.
fn cell(code: Code, tests: Option<&BTreeSet<String>>) -> String {
    let Some(tests) = tests else { return NO_TEST.to_owned() };
    let (named_by_code, others): (Vec<_>, Vec<_>) =
        tests.iter().partition(|name| codes_of_name(name).first() == Some(&code));
    let tests = [named_by_code, others].concat();
    let named: Vec<_> = tests.iter().take(NAMED).map(|name| format!("`{name}`")).collect();
    let more = tests.len() - named.len();
    match more {
        0 => named.join(", "),
        _ => format!("{} and {more} more", named.join(", ")),
    }
}

/// Returns the anchor of a heading, as used in links.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Returns the text and section of each link to a difference.
fn differences_in(sentence: &str) -> Vec<(&str, &str)> {
    let mut links = Vec::new();
    let mut rest = sentence;
    while let Some((before, after)) = rest.split_once("](guide/coming-from-netty.md#") {
        let text = before.rsplit_once('[').expect("a link has text").1;
        let (section, behind) = after.split_once(')').expect("a link ends");
        links.push((text, section));
        rest = behind;
    }
    links
}

#[test]
fn every_code_has_a_row() {
    let rows = rows();
    for (code, names) in tests() {
        assert!(rows.contains_key(&code), "{TABLE} has no row for {code}, used by {names:?}");
    }
    for (file, text) in sources() {
        let comments = text.lines().filter_map(|line| line.split_once("//")).map(|(_, comment)| comment);
        for code in comments.flat_map(codes_in) {
            assert!(rows.contains_key(&code), "{TABLE} has no row for {code} in {}", file.display());
        }
    }
}

#[test]
fn the_column_of_tests_is_up_to_date() {
    let tests = tests();
    let table = read(&path(TABLE));
    let mut outdated = Vec::new();
    let mut updated = String::with_capacity(table.len());
    for line in table.lines() {
        match Row::parse(line) {
            Some(row) => {
                let cell = cell(row.code, tests.get(&row.code));
                if cell != row.tests {
                    outdated.push(row.code.to_string());
                }
                updated.push_str(&format!("| {} | {} | {cell} |", row.code, row.sentence));
            }
            None => updated.push_str(line),
        }
        updated.push('\n');
    }
    if env::var_os("UPDATE_BEHAVIOURS").is_some_and(|value| value == "1") {
        // Rename atomically, because other tests read the table at the same time.
        let new = path("docs/behaviours.md.new");
        fs::write(&new, updated).unwrap();
        fs::rename(new, path(TABLE)).unwrap();
        return;
    }
    let command = "UPDATE_BEHAVIOURS=1 cargo test --test repository";
    assert!(
        outdated.is_empty(),
        "{TABLE} is out of date for {}; update it with {command}",
        outdated.join(", ")
    );
}

#[test]
fn every_row_has_a_test_or_names_a_difference() {
    let tests = tests();
    for (code, row) in rows() {
        let is_covered = tests.contains_key(&code) || !differences_in(&row.sentence).is_empty();
        assert!(is_covered, "{code} has neither a test nor a link to a row of {DIFFERENCES}");
    }
}

#[test]
fn every_difference_is_stated() {
    let differences = read(&path(DIFFERENCES));
    let plain = |text: &str| text.replace('`', "");
    // Collect the first cell of each row, by section.
    let mut section = String::new();
    let mut stated = Vec::new();
    for line in differences.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            section = anchor(heading);
        } else if let Some(row) = line.strip_prefix("| ") {
            stated.push((section.clone(), plain(row.split(" | ").next().expect("a row has a first cell"))));
        }
    }
    for (code, row) in rows() {
        for (text, section) in differences_in(&row.sentence) {
            let is_stated =
                stated.iter().any(|(in_section, cell)| in_section == section && cell.contains(&plain(text)));
            assert!(is_stated, "{code}: {DIFFERENCES}#{section} has no row about {text:?}");
        }
    }
}

#[test]
fn codes_are_read_from_names_and_comments() {
    let codes = |codes: Vec<Code>| codes.iter().map(Code::to_string).collect::<Vec<_>>().join(" ");
    assert_eq!(codes(codes_of_name("c_04_closes")), "C-04");
    assert_eq!(codes(codes_of_name("d_16_to_d_19_frames")), "D-16 D-17 D-18 D-19");
    assert_eq!(codes(codes_of_name("c_4_closes")) + &codes(codes_of_name("x_04_closes")), "");
    assert_eq!(codes(codes_in("C-61, C-62 in our form (E-01); UTF-8, v1.C-1, ABC-12")), "C-61 C-62 E-01");
    let source = "/// C-33: in order.\n#[test]\nfn in_order() {\n    let x = 1;\n}\n\n/// C-34.\nfn helper(n: u8) {}\nfn e_01_due(";
    let tests: Vec<_> = tests_in(source).into_iter().map(|(code, name)| format!("{code} {name}")).collect();
    assert_eq!(tests, ["C-33 in_order", "E-01 e_01_due"]);
}
