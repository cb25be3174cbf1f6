//! Checks the links of the Markdown pages: files exist, and headings have the linked anchors.

use crate::{path, read, tracked};
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag, TagEnd};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Component, Path, PathBuf},
};

/// The anchors of a page and its references.
#[derive(Default)]
struct Page {
    anchors: BTreeSet<String>,
    links: Vec<String>,
}

impl Page {
    fn parse(text: &str) -> Self {
        let mut page = Page::default();
        let mut heading: Option<String> = None;
        for event in Parser::new_ext(text, Options::ENABLE_TABLES | Options::ENABLE_FOOTNOTES) {
            match event {
                Event::Start(Tag::Heading { .. }) => heading = Some(String::new()),
                Event::Text(text) | Event::Code(text) => {
                    if let Some(heading) = &mut heading {
                        heading.push_str(&text);
                    }
                }
                Event::End(TagEnd::Heading(_)) => {
                    let anchor = anchor_of(&heading.take().unwrap_or_default());
                    page.add_anchor(anchor);
                }
                Event::Start(Tag::Link { link_type, dest_url, .. }) if link_type != LinkType::Email => {
                    page.links.push(dest_url.into_string());
                }
                Event::Start(Tag::Image { dest_url, .. }) => page.links.push(dest_url.into_string()),
                _ => {}
            }
        }
        page
    }

    /// Adds the anchor of a heading; the second of two equal ones ends in `-1`, and so on.
    fn add_anchor(&mut self, anchor: String) {
        let mut name = anchor.clone();
        for n in 1.. {
            if self.anchors.insert(name) {
                break;
            }
            name = format!("{anchor}-{n}");
        }
    }
}

/// Returns the anchor that GitHub gives a heading.
fn anchor_of(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}

/// Resolves `.` and `..` in a path relative to the repository.
fn normal(relative: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for component in relative.components() {
        match component {
            Component::ParentDir => {
                normal.pop();
            }
            Component::CurDir => {}
            other => normal.push(other),
        }
    }
    normal
}

#[test]
fn links_between_pages_lead_somewhere() {
    let pages: BTreeMap<PathBuf, Page> = tracked(&["md"])
        .into_iter()
        .map(|file| (PathBuf::from(&file), Page::parse(&read(&path(&file)))))
        .collect();
    let mut broken = Vec::new();
    for (file, page) in &pages {
        for link in &page.links {
            if link.contains("://") || link.starts_with("mailto:") || link.starts_with("crate::") {
                continue;
            }
            let (target, anchor) = link.split_once('#').map_or((&**link, None), |(t, a)| (t, Some(a)));
            let target = match target {
                "" => file.clone(),
                _ => normal(&file.parent().unwrap_or(Path::new("")).join(target)),
            };
            let leads = match (pages.get(&target), anchor) {
                (Some(page), Some(anchor)) => page.anchors.contains(anchor),
                (Some(_), None) => true,
                (None, _) => path(&target.to_string_lossy()).exists(),
            };
            if !leads {
                broken.push(format!("{}: {link}", file.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links:\n{}", broken.join("\n"));
}

#[test]
fn anchors_are_those_of_github() {
    let page = Page::parse("# A `Codec`, and more\n## Same\n## Same\n[x](#same-1)\n");
    assert_eq!(page.anchors.iter().collect::<Vec<_>>(), ["a-codec-and-more", "same", "same-1"]);
    assert_eq!(page.links, ["#same-1"]);
}
