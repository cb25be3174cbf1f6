//! The features of each source file: the conditions on the declarations of its modules.

use crate::Result;
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
};

/// The features that each file needs, by its path from the root of the repository.
pub(crate) type FileFeatures = BTreeMap<PathBuf, BTreeSet<String>>;

/// Reads the declarations of modules, from `src/lib.rs` on.
pub(crate) fn of_files(root: &Path) -> Result<FileFeatures> {
    let mut files = FileFeatures::new();
    read(root, Path::new("src/lib.rs"), Path::new("src"), BTreeSet::new(), &mut files)?;
    Ok(files)
}

fn read(
    root: &Path,
    file: &Path,
    folder: &Path,
    features: BTreeSet<String>,
    files: &mut FileFeatures,
) -> Result<()> {
    let text = fs::read_to_string(root.join(file))?;
    let mut condition = String::new();
    for line in text.lines() {
        if line.starts_with("#[cfg(") {
            condition.push_str(line);
        } else if let Some(name) = module(line) {
            let mut theirs = features.clone();
            theirs.extend(named(&condition));
            let nested = folder.join(name).join("mod.rs");
            let plain = folder.join(name).with_extension("rs");
            let file = if root.join(&nested).exists() { nested } else { plain };
            if root.join(&file).exists() {
                read(root, &file, &folder.join(name), theirs, files)?;
            }
            condition.clear();
        } else if !line.starts_with('#') {
            condition.clear();
        }
    }
    files.insert(file.to_owned(), features);
    Ok(())
}

/// Returns the name of the module that a line declares in another file.
fn module(line: &str) -> Option<&str> {
    let declared = line.strip_suffix(';')?;
    let declared = declared.strip_prefix("pub(crate) ").or(declared.strip_prefix("pub ")).unwrap_or(declared);
    declared.strip_prefix("mod ")
}

/// Returns the features that a condition names, as it is in the source or as rustdoc writes it.
pub(crate) fn named(condition: &str) -> BTreeSet<String> {
    // Conditions that exclude a feature add nothing to the API.
    if condition.contains("not(") || condition.contains("Not(") {
        return BTreeSet::new();
    }
    let mut features = BTreeSet::new();
    for before in ["feature = \"", "name: \"feature\", value: Some(\""] {
        let after = condition.split(before).skip(1);
        features.extend(after.filter_map(|text| text.split_once('"')).map(|(name, _)| name.to_owned()));
    }
    features
}
