//! The page about observability names every topic whose log lines have a limit.

use super::{path, read};

#[test]
fn the_page_about_observability_names_every_log_topic() {
    let page = read(&path("docs/observability.md"));
    let source = read(&path("src/log_throttle.rs"));
    let constants = source.split("pub(crate) const ").skip(1);
    let names: Vec<&str> = constants
        .filter(|constant| constant.contains("LogTopic = LogTopic::"))
        .filter_map(|constant| constant.split('"').nth(1))
        .collect();
    assert!(names.len() > 15, "only {names:?} were found");
    let missing: Vec<_> = names.iter().filter(|name| !page.contains(**name)).collect();
    assert!(missing.is_empty(), "docs/observability.md has no row for {missing:?}");
}
