//! Rules for the names of users and rooms.
//!
//! Unicode has characters that are invisible, that change the direction of the text, or that look
//! like others. The rules here follow Unicode Technical Standard 39: only characters that it
//! recommends for identifiers, only scripts that are used together, and no two users whose names
//! look alike.

use std::borrow::Cow;
use unicode_normalization::{UnicodeNormalization, char::is_combining_mark};
use unicode_security::{
    GeneralSecurityProfile, RestrictionLevel, RestrictionLevelDetection, confusable_detection::skeleton,
};

/// Characters of a user's name at most, once it is normalised.
pub(crate) const MAX_USER: usize = 32;
/// Characters of a room's name at most, once it is normalised.
pub(crate) const MAX_ROOM: usize = 64;
/// Combining marks that may follow each other.
const MAX_MARKS: usize = 2;

/// Checks the name of a user and normalises it (NFC).
///
/// # Errors
/// The reason, for people.
pub(crate) fn user(name: &str) -> Result<Cow<'_, str>, String> {
    check("user", name, MAX_USER)
}

/// Checks the name of a room and normalises it (NFC).
///
/// # Errors
/// The reason, for people.
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
        // A longer name is refused below; it need not be normalised to its end.
        false => name.nfc().take(max + 1).collect::<String>().into(),
    };
    let length = name.chars().take(max + 1).count();
    if length == 0 || length > max {
        return Err(format!("the name of a {what} has 1 to {max} characters"));
    }
    if let Some(c) = name.chars().find(|c| !c.identifier_allowed()) {
        return Err(format!("the name of a {what} must not contain U+{:04X}", u32::from(c)));
    }
    if name.is_ascii() {
        return Ok(name);
    }
    let mut marks = MAX_MARKS;
    for c in name.chars() {
        // A mark at the beginning has nothing to combine with.
        marks = if is_combining_mark(c) { marks + 1 } else { 0 };
        if marks > MAX_MARKS {
            return Err(format!("the name of a {what} has too many combining marks in a row"));
        }
    }
    if !name.check_restriction_level(RestrictionLevel::HighlyRestrictive) {
        return Err(format!("the name of a {what} mixes scripts"));
    }
    Ok(name)
}
