//! Calls cargo and rustdoc, and reads their output.

use crate::Result;
use public_api::PublicApi;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// What rustdoc knows about the crate.
pub(crate) struct Documented {
    pub(crate) api: PublicApi,
    json: Value,
}

/// Calls rustdoc with all features. `None` without a nightly toolchain.
///
/// # Errors
/// An error if rustdoc fails, or if this nightly writes another format than the crate `public-api`
/// reads: then that crate has to be updated.
pub(crate) fn document(root: &Path) -> Result<Option<Documented>> {
    let nightly = Command::new("cargo").args(["+nightly", "--version"]).output();
    if !nightly.is_ok_and(|output| output.status.success()) {
        return Ok(None);
    }
    // Beside the pages of docs.rs, which need the same dependencies.
    let target = env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = target.join("docsrs");
    let status = Command::new("cargo")
        .args(["+nightly", "rustdoc", "--locked", "--lib", "--features", "full", "--target-dir"])
        .arg(&target)
        .args(["--", "-Z", "unstable-options", "--output-format", "json"])
        // rustdoc keeps the conditions of items then.
        .args(["--cfg", "docsrs", "--cap-lints", "allow"])
        .current_dir(root)
        .env_remove("RUSTDOCFLAGS")
        .status()?;
    if !status.success() {
        return Err("rustdoc has failed".into());
    }
    let path = target.join("doc/netwheel.json");
    let api = public_api::Builder::from_rustdoc_json(&path)
        .omit_auto_trait_impls(true)
        .omit_blanket_impls(true)
        .build();
    let api = api.map_err(|error| format!("rustdoc of this nightly writes another format: {error}"))?;
    let json = serde_json::from_str(&fs::read_to_string(&path)?)?;
    Ok(Some(Documented { api, json }))
}

impl Documented {
    /// Returns what rustdoc has written about an item.
    pub(crate) fn item(&self, id: u32) -> &Value {
        &self.json["index"][id.to_string()]
    }

    /// Returns the names of the crates on which this one depends, without those of the language.
    pub(crate) fn external_crates(&self) -> BTreeSet<&str> {
        let crates = self.json["external_crates"].as_object().into_iter().flatten();
        let names = crates.filter_map(|(_, one)| one["name"].as_str());
        names.filter(|name| !["alloc", "core", "std"].contains(name)).collect()
    }
}

/// Returns the versions of the packages in the lock file, by the names of their libraries: as far
/// as a new version is a breaking one.
pub(crate) fn versions(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let output = Command::new("cargo")
        .args(["metadata", "--locked", "--format-version", "1", "--features", "full"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let mut versions: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let (Some(name), Some(version)) = (package["name"].as_str(), package["version"].as_str()) else {
            continue;
        };
        let mut parts = version.split('.');
        let breaking = match (parts.next(), parts.next()) {
            (Some("0"), Some(minor)) => format!("0.{minor}"),
            (Some(major), _) => major.to_owned(),
            _ => continue,
        };
        versions.entry(name.replace('-', "_")).or_default().insert(breaking);
    }
    Ok(versions)
}

/// Returns the features that each feature of the crate turns on, directly or through others.
pub(crate) fn implied_features(root: &Path) -> Result<BTreeMap<String, BTreeSet<String>>> {
    let output = Command::new("cargo")
        .args(["metadata", "--locked", "--format-version", "1", "--no-deps"])
        .current_dir(root)
        .output()?;
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    let features =
        packages.filter(|package| package["name"] == "netwheel").find_map(|it| it["features"].as_object());
    let features = features.ok_or("cargo metadata has no features of netwheel")?;
    let mut implied = BTreeMap::new();
    for name in features.keys() {
        let mut on = BTreeSet::new();
        let mut open = vec![name.as_str()];
        while let Some(next) = open.pop() {
            let values = features.get(next).and_then(Value::as_array).into_iter().flatten();
            for value in values.filter_map(Value::as_str) {
                if features.contains_key(value) && on.insert(value.to_owned()) {
                    open.push(value);
                }
            }
        }
        implied.insert(name.clone(), on);
    }
    Ok(implied)
}
