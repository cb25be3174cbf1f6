//! Lists in headers, and names that must be tokens.

use crate::http::Headers;

/// Returns the elements of all fields of this name.
pub(super) fn elements<'a>(headers: &'a Headers, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers
        .all(name)
        .flat_map(|value| value.split(|byte| *byte == b','))
        .map(<[u8]>::trim_ascii)
        .filter(|element| !element.is_empty())
}

/// Returns the value of the only field of this name.
pub(super) fn only<'a>(headers: &'a Headers, name: &'a str) -> Option<&'a [u8]> {
    let mut all = headers.all(name);
    let first = all.next()?;
    all.next().is_none().then_some(first)
}

/// Returns whether `text` is a token (RFC 9110, section 5.6.2).
pub(super) fn is_token(text: &str) -> bool {
    !text.is_empty()
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}
