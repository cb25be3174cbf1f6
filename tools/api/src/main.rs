//! Writes the public API of netwheel as text, from the JSON of rustdoc.
//!
//! ```text
//! cargo run --manifest-path tools/api/Cargo.toml            # writes docs/api
//! cargo run --manifest-path tools/api/Cargo.toml -- --check # fails if docs/api is out of date
//! ```
//!
//! - `docs/api/public-api.txt` has a line for each public item, with the feature that adds it.
//! - `docs/api/foreign-types.txt` has a line for each type or trait of another crate that occurs in
//!   these items, with its version, the features, and the items.
//!
//! Fails if a type of a crate of version 0.x occurs without a feature that names a version.
//! Needs a nightly toolchain whose rustdoc writes the format that the crate `public-api` reads.
//! Without a nightly toolchain, it says so and succeeds.

mod features;
mod foreign;
mod listing;
mod rustdoc;

use std::{error::Error, fs, path::Path, process::ExitCode};

type Result<T, E = Box<dyn Error>> = std::result::Result<T, E>;

fn main() -> ExitCode {
    let checks = std::env::args().any(|argument| argument == "--check");
    match run(checks) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns whether everything is as it should be.
fn run(checks: bool) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize()?;
    let Some(documented) = rustdoc::document(&root)? else {
        eprintln!("THE PUBLIC API WAS NOT LISTED: no nightly toolchain");
        return Ok(true);
    };
    let items = listing::items(&documented, &root)?;
    let versions = rustdoc::versions(&root)?;
    let foreign = foreign::types(&items, &documented.external_crates(), &versions);
    let unversioned = foreign::unversioned(&foreign);
    for problem in &unversioned {
        eprintln!("{problem}");
    }
    let texts = [("public-api.txt", listing::text(&items)), ("foreign-types.txt", foreign::text(&foreign))];
    let mut is_current = true;
    for (name, text) in texts {
        let path = root.join("docs/api").join(name);
        if checks {
            let stored = fs::read_to_string(&path).unwrap_or_default();
            is_current &= !differ(name, &stored, &text);
        } else {
            fs::create_dir_all(root.join("docs/api"))?;
            fs::write(&path, text)?;
        }
    }
    if !is_current {
        eprintln!("docs/api is out of date: run `cargo run --manifest-path tools/api/Cargo.toml`");
    }
    Ok(is_current && unversioned.is_empty())
}

/// Prints the lines that only one of two texts has. Returns whether there are any.
fn differ(name: &str, stored: &str, text: &str) -> bool {
    let sets = [stored, text].map(|text| text.lines().collect::<std::collections::BTreeSet<_>>());
    for line in sets[0].difference(&sets[1]) {
        eprintln!("{name}: - {line}");
    }
    for line in sets[1].difference(&sets[0]) {
        eprintln!("{name}: + {line}");
    }
    stored != text
}
