//! The public items, one line each.

use crate::{
    Result,
    features::{self, FileFeatures},
    rustdoc::{Documented, implied_features},
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

/// A public item.
pub(crate) struct PublicItem {
    /// How it is declared, with complete paths.
    pub(crate) text: String,
    /// The features of the item, without implied features.
    pub(crate) features: BTreeSet<String>,
    /// The source of a re-export.
    pub(crate) re_exports: Option<String>,
}

/// Returns the items, without repetitions. Functions of implemented traits are left out, because
/// the trait declares them.
pub(crate) fn items(documented: &Documented, root: &Path) -> Result<Vec<PublicItem>> {
    let files = features::of_files(root)?;
    let implied = implied_features(root)?;
    let mut seen = BTreeSet::new();
    let mut items = Vec::new();
    for item in documented.api.items() {
        let json = documented.item(item.id().0);
        let parent = item.parent_id().map(|id| documented.item(id.0));
        let is_of_trait = parent.is_some_and(|parent| !parent["inner"]["impl"]["trait"].is_null());
        let is_inherent = json["inner"]["impl"].is_object() && json["inner"]["impl"]["trait"].is_null();
        if is_inherent || is_of_trait && json["inner"]["function"].is_object() {
            continue;
        }
        let text = item.to_string();
        // Every derived `PartialEq` has this marker of the compiler.
        if text.starts_with("impl core::marker::StructuralPartialEq") || !seen.insert(text.clone()) {
            continue;
        }
        let mut features = needed(json, &files);
        if let Some(parent) = parent {
            features.extend(needed(parent, &files));
        }
        let re_exports = json["inner"]["use"]["source"].as_str().map(str::to_owned);
        items.push(PublicItem { text, features: reduced(features, &implied), re_exports });
    }
    Ok(items)
}

/// Returns the features of an item's file, and of its own condition.
fn needed(json: &Value, files: &FileFeatures) -> BTreeSet<String> {
    let file = json["span"]["filename"].as_str().and_then(|file| files.get(Path::new(file)));
    let mut features = file.cloned().unwrap_or_default();
    for attribute in json["attrs"].as_array().into_iter().flatten() {
        if let Some(text) = attribute["other"].as_str().filter(|text| text.contains("CfgTrace")) {
            features.extend(features::named(text));
        }
    }
    features
}

/// Leaves out the features that others imply.
fn reduced(features: BTreeSet<String>, implied: &BTreeMap<String, BTreeSet<String>>) -> BTreeSet<String> {
    let is_implied = |name: &String| {
        let others = features.iter().filter(|other| *other != name);
        others.filter_map(|other| implied.get(other)).any(|implied| implied.contains(name))
    };
    features.iter().filter(|name| !is_implied(name)).cloned().collect()
}

/// Returns the lines of `public-api.txt`.
pub(crate) fn text(items: &[PublicItem]) -> String {
    let mut text = String::new();
    for item in items {
        text.push_str(&item.text);
        text.push_str(&bracketed(&item.features));
        text.push('\n');
    }
    text
}

/// Returns the features behind an item, or nothing if it needs none.
pub(crate) fn bracketed(features: &BTreeSet<String>) -> String {
    if features.is_empty() {
        return String::new();
    }
    let names: Vec<_> = features.iter().map(String::as_str).collect();
    format!(" [{}]", names.join(", "))
}
