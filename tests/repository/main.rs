//! Checks of the repository itself: the direction of imports, and the claims of the documentation.

mod behaviours;
mod combinations;
mod dependencies;
mod doc_links;
mod features;
mod guide;
mod homonyms;
mod import_graph;
mod import_paths;
mod imports;
mod log_topics;
mod pipeline_errors;
mod property_tests;
mod prose_width;
mod public_names;
mod source_tokens;
mod walks;

use std::{
    fs,
    path::{Path, PathBuf},
};

/// Returns the path of a file in this repository.
fn path(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// Returns the text of a file.
#[track_caller]
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the path and text of every Rust source in `src/` and `tests/`, except for this binary's
/// own.
fn sources() -> Vec<(PathBuf, String)> {
    let mut folders = vec![path("src"), path("tests")];
    let mut sources = Vec::new();
    while let Some(folder) = folders.pop() {
        let entries = fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
        for entry in entries {
            let path = entry.unwrap().path();
            if path.is_dir() && path != self::path("tests/repository") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = read(&path);
                sources.push((path, text));
            }
        }
    }
    sources.sort();
    sources
}

/// Returns the files of the repository with one of `extensions`, relative to its root.
fn tracked(extensions: &[&str]) -> Vec<String> {
    let mut folders: Vec<String> =
        ["src", "tests", "examples", "benches", "docs", "fuzz"].map(str::to_owned).to_vec();
    let mut files = Vec::new();
    let mut add = |relative: String| {
        if extensions.iter().any(|extension| relative.ends_with(&format!(".{extension}"))) {
            files.push(relative);
        }
    };
    for entry in fs::read_dir(path("")).unwrap() {
        add(entry.unwrap().file_name().to_string_lossy().into_owned());
    }
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(path(&folder)).unwrap() {
            let entry = entry.unwrap();
            let relative = format!("{folder}/{}", entry.file_name().to_string_lossy());
            match entry.file_type().unwrap().is_dir() {
                true if entry.file_name() == "target" || entry.file_name() == "node_modules" => {}
                true => folders.push(relative),
                false => add(relative),
            }
        }
    }
    files.sort();
    files
}
