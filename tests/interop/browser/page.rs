//! What the tests of all pages do with a browser.

use super::webdriver::{Browser, ENTER};
use crate::support::process::are_installed;
use serde_json::{Value, json};
use std::{fs, path::Path};

/// Size of a window on a desk, in pixels.
pub(crate) const DESKTOP: (u32, u32) = (1100, 700);
/// Size of a small phone, in pixels.
pub(crate) const PHONE: (u32, u32) = (360, 640);

/// Starts a browser. Without one, the test is skipped, except in CI.
pub(crate) fn browser() -> Option<Browser> {
    are_installed(&["chromedriver", "chromium"]).then(Browser::start)
}

/// Logs in with the keyboard only.
#[track_caller]
pub(crate) fn log_in(browser: &Browser, page: &str, user: &str) {
    browser.open(page);
    browser.wait_for("document.activeElement.id === 'user'");
    browser.type_keys(&format!("{user}{ENTER}"));
    wait_for_status(browser, &format!("connected as {user}"));
    browser.wait_for("document.activeElement.id === 'text'");
    browser.wait_for("document.getElementById('title').textContent === 'lobby'");
}

#[track_caller]
pub(crate) fn wait_for_status(browser: &Browser, status: &str) {
    browser.wait_for(&format!("document.getElementById('status').textContent === {status:?}"));
}

/// Waits until a line of the log that is shown contains the text.
#[track_caller]
pub(crate) fn wait_for_line(browser: &Browser, text: &str) {
    let lines = "[...document.querySelectorAll('[role=log]:not([hidden]) p')]";
    browser.wait_for(&format!("{lines}.some(line => line.textContent.includes({text:?}))"));
}

/// Writes a picture for people to look at. Nothing is cut off at this width.
#[track_caller]
pub(crate) fn keep_picture(browser: &Browser, size: (u32, u32), theme: &str, name: &str) {
    browser.resize(size);
    set_theme(browser, theme);
    let root = "document.documentElement";
    browser.wait_for(&format!("{root}.scrollWidth === {root}.clientWidth"));
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("pictures");
    fs::create_dir_all(&directory).unwrap();
    let picture = browser.screenshot();
    assert!(picture.starts_with(b"\x89PNG"));
    fs::write(directory.join(name), picture).unwrap();
}

/// Sets the preferred colours: "light" or "dark".
pub(crate) fn set_theme(browser: &Browser, theme: &str) {
    let features = json!([{ "name": "prefers-color-scheme", "value": theme }]);
    browser.command("Emulation.setEmulatedMedia", &json!({ "features": features }));
}

/// Checks that the console has only expected lines.
#[track_caller]
pub(crate) fn assert_clean_console(browser: &Browser, is_expected: impl Fn(&str) -> bool) {
    let lines = browser.console();
    let unexpected: Vec<_> = lines.iter().filter(|(_, text)| !is_expected(text)).collect();
    assert!(unexpected.is_empty(), "{unexpected:?}");
}

/// Checks the contrast of each text, and the name of each control and picture, in both themes.
#[track_caller]
pub(crate) fn assert_accessible(browser: &Browser) {
    for theme in ["light", "dark"] {
        set_theme(browser, theme);
        assert_eq!(browser.run(CONTRAST), json!([]), "texts with a contrast below 4.5 in the {theme} theme");
    }
    let tree = browser.command("Accessibility.getFullAXTree", &json!({}));
    let nodes = tree["nodes"].as_array().unwrap().iter().filter(|node| node["ignored"] == false);
    let mut controls = 0;
    for node in nodes {
        let role = node["role"]["value"].as_str().unwrap_or_default();
        if ["button", "textbox", "link", "log", "image", "navigation", "form"].contains(&role) {
            assert!(node["name"]["value"].as_str().is_some_and(|name| !name.is_empty()), "no name: {node}");
            controls += 1;
        }
    }
    assert!(controls >= 2, "{tree}");
}

/// Returns the texts whose contrast is below that of level AA of the Web Content Accessibility
/// Guidelines 2.
const CONTRAST: &str = r"
    const parse = color => color.match(/[\d.]+/g).map(Number);
    const luminance = ([r, g, b]) => [r, g, b]
        .map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
        .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
    const background = element => {
        for (; element; element = element.parentElement) {
            const color = parse(getComputedStyle(element).backgroundColor);
            if (color.length === 3 || color[3] === 1) return color;
        }
        return [255, 255, 255];
    };
    const low = [];
    for (const element of document.querySelectorAll('body *')) {
        const hasText = [...element.childNodes].some(node => node.nodeType === 3 && node.data.trim());
        if (!hasText || !element.checkVisibility() || element.disabled) continue;
        const [a, b] = [parse(getComputedStyle(element).color), background(element)].map(luminance);
        const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (contrast < 4.5) low.push(`${element.tagName} ${element.textContent}: ${contrast}`);
    }
    return low;
";

/// Returns the value of an expression in the page, as text.
#[track_caller]
pub(crate) fn text_of(browser: &Browser, expression: &str) -> String {
    match browser.run(&format!("return {expression}")) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}
