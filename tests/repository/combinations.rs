//! Checks that docs/combinations.md names the features of `tests/combinations`, and existing tests.

use super::{path, read, sources};

const PAGE: &str = "docs/combinations.md";

/// Returns the cells of each row of a table whose head is `head`.
fn rows<'a>(page: &'a str, head: &str) -> Vec<Vec<&'a str>> {
    let (_, table) = page.split_once(head).unwrap_or_else(|| panic!("{PAGE} has no table {head}"));
    let lines = table.lines().skip(2).take_while(|line| line.starts_with('|'));
    lines.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

/// Returns a feature of the page as a variant of `Feature`: "half-close" is `HalfClose`.
fn variant(feature: &str) -> String {
    let word = |word: &str| {
        let (first, rest) = word.split_at(1);
        first.to_uppercase() + &rest.to_lowercase()
    };
    feature.split([' ', '-']).map(word).collect()
}

#[test]
fn the_page_has_a_row_for_each_feature() {
    let source = read(&path("tests/combinations/feature.rs"));
    let (_, all) = source.split_once("ALL: ").unwrap();
    let (_, all) = all.split_once("= [").unwrap();
    let (all, _) = all.split_once("];").unwrap();
    let features: Vec<_> = all.split(',').map(|one| one.trim().trim_start_matches("Feature::")).collect();
    let features: Vec<_> = features.into_iter().filter(|one| !one.is_empty()).collect();
    let page = read(&path(PAGE));
    let named: Vec<_> =
        rows(&page, "| feature | change to the conversation |").iter().map(|row| variant(row[0])).collect();
    assert_eq!(named, features);
}

#[test]
fn the_tests_that_the_page_names_exist() {
    let page = read(&path(PAGE));
    let sources = sources();
    for row in rows(&page, "| first | second | tests |") {
        for name in row[2].split(", ") {
            let declared = format!("fn {}(", name.trim_matches('`'));
            assert!(sources.iter().any(|(_, text)| text.contains(&declared)), "{PAGE}: no test {name}");
        }
    }
}
