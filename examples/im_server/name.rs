//! Rules for the names of users and rooms.
//!
//! Unicode has characters that are invisible, that change the direction of the text, or that look
//! like others. These rules follow Unicode Technical Standard 39. They allow only characters
//! recommended for identifiers and scripts that are commonly used together. Two users cannot have
//! names that look alike.

use std::borrow::Cow;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_security::{
    GeneralSecurityProfile, RestrictionLevel, RestrictionLevelDetection, confusable_detection::skeleton,
};

/// Maximum characters of a user's name after normalisation.
pub(crate) const MAX_USER: usize = 32;
/// Maximum characters of a room's name after normalisation.
pub(crate) const MAX_ROOM: usize = 64;
/// Maximum number of consecutive combining marks.
const MAX_MARKS: usize = 2;

/// Checks the name of a user and normalises it (NFC).
///
/// # Errors
/// Returns a human-readable reason.
pub(crate) fn user(name: &str) -> Result<Cow<'_, str>, String> {
    check("user", name, MAX_USER)
}

/// Checks the name of a room and normalises it (NFC).
///
/// # Errors
/// Returns a human-readable reason.
pub(crate) fn room(name: &str) -> Result<Cow<'_, str>, String> {
    check("room", name, MAX_ROOM)
}

/// Returns the skeleton of a name: names with the same skeleton are hard to tell apart (`paypal`
/// and `pаypаl` with two Cyrillic letters).
pub(crate) fn looks(name: &str) -> String {
    skeleton(name).collect()
}

fn check<'a>(what: &str, name: &'a str, max: usize) -> Result<Cow<'a, str>, String> {
    let name: Cow<'a, str> = match name.is_ascii() {
        true => name.into(),
        // A longer name is refused below, so its end is not normalised.
        false => name.nfc().take(max + 1).collect::<String>().into(),
    };
    let length = name.chars().take(max + 1).count();
    if length == 0 || length > max {
        return Err(format!("the name of a {what} must have 1 to {max} characters"));
    }
    if let Some(c) = name.chars().find(|c| !c.identifier_allowed()) {
        return Err(format!("the name of a {what} must not contain U+{:04X}", u32::from(c)));
    }
    if name.is_ascii() {
        return Ok(name);
    }
    let mut marks = MAX_MARKS;
    for c in name.chars() {
        // A mark at the start is refused, because there is no character to combine it with.
        marks = if is_combining_mark(c) { marks + 1 } else { 0 };
        if marks > MAX_MARKS {
            return Err(format!("the name of a {what} has too many combining marks in a row"));
        }
    }
    if !name.check_restriction_level(RestrictionLevel::HighlyRestrictive) {
        return Err(format!("the name of a {what} mixes scripts"));
    }
    if name.chars().any(is_right_to_left) && !keeps_its_order(&name) {
        let why = "is written from right to left must begin with a letter, and end with a letter or digit";
        return Err(format!("the name of a {what} that {why}"));
    }
    Ok(name)
}

/// Returns whether a name from right to left is not drawn like another one. A digit or sign at its
/// start is drawn where one at its end is. RFC 5893, section 2, has the same rules for labels.
fn keeps_its_order(name: &str) -> bool {
    let last = name.chars().rev().find(|c| !is_combining_mark(*c));
    name.chars().next().is_some_and(is_right_to_left)
        && last.is_some_and(|c| is_right_to_left(c) || c.is_numeric())
}

/// Returns whether this is a letter of a script that is written from right to left: of the blocks
/// that Unicode's DerivedBidiClass reserves for these. Geresh and gershayim, and two Arabic signs,
/// count as letters.
fn is_right_to_left(c: char) -> bool {
    let is_reserved = matches!(u32::from(c),
        0x590..=0x8FF | 0xFB1D..=0xFDFF | 0xFE70..=0xFEFF | 0x10800..=0x10FFF | 0x1E800..=0x1EFFF);
    is_reserved && (c.is_alphabetic() || matches!(c, '\u{5F3}' | '\u{5F4}' | '\u{6FD}' | '\u{6FE}'))
}
