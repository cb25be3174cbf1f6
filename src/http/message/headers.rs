//! Header fields: parsed from a message, or built for one.

use crate::http::{
    find::find,
    syntax::{is_field_value, is_token, list, trim},
};
use bytes::Bytes;
use std::{borrow::Cow, fmt};

/// The header fields of a message, in their order. A name may occur several times.
///
/// Parsed fields share the memory of the head. Names are compared without case; values are bytes
/// without spaces around them. Lookups are linear.
///
/// Fields are checked when they are added: a name is a token, and a value has neither CR, LF nor
/// other control characters. The builder methods do not fail. Instead, writing a message with an
/// invalid field fails with [`EncodeError`](crate::error::EncodeError), and nothing of it is sent.
///
/// Clones of fields that were parsed or [shared](Headers::shared) do not copy them.
///
/// ```
/// use netwheel::http::Headers;
///
/// let headers = Headers::new().with("Content-Type", "text/plain").with("X-Trace", "17");
/// assert_eq!(headers.get("content-type"), Some(&b"text/plain"[..]));
/// assert_eq!(headers.get("host"), None);
/// ```
#[derive(Clone, Default)]
pub struct Headers {
    /// One line for each field, as on the wire: name, colon, value between optional spaces, CRLF.
    lines: Lines,
    /// The name of the first invalid field that was added. A thin pointer, because messages are
    /// moved through the pipeline by value.
    invalid: Option<Box<Box<str>>>,
    /// Whether there may be a field that a server looks at when it sends a response. Kept, so that
    /// fields that are shared by many responses are looked at once.
    may_frame: bool,
}

#[derive(Clone)]
enum Lines {
    Shared(Bytes),
    Built(Vec<u8>),
}

impl Default for Lines {
    fn default() -> Self {
        Lines::Built(Vec::new())
    }
}

impl Headers {
    /// Returns no fields, without allocating.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the fields of a head. Each line was parsed, so it has a colon and ends in CRLF.
    pub(in crate::http) fn parsed(lines: Bytes) -> Self {
        Headers { lines: Lines::Shared(lines), invalid: None, may_frame: true }
    }

    /// Returns fields whose lines were built from checked names and values.
    #[cfg(feature = "http-types")]
    pub(super) fn built(lines: Vec<u8>) -> Self {
        Headers { lines: Lines::Built(lines), invalid: None, may_frame: true }
    }

    /// Returns the number of lines, which is at least that of the fields.
    #[cfg(feature = "http-types")]
    pub(super) fn line_count(&self) -> usize {
        memchr::memchr_iter(b'\n', self.lines()).count()
    }

    /// Returns a part of the fields without a copy, if they are shared.
    #[cfg(feature = "http-types")]
    pub(super) fn shared_slice(&self, part: &[u8]) -> Option<Bytes> {
        match &self.lines {
            Lines::Shared(lines) => Some(lines.slice_ref(part)),
            Lines::Built(_) => None,
        }
    }

    /// Makes clones cheap: they share the fields until they are changed. Use this for fields that
    /// many messages have.
    pub fn shared(mut self) -> Self {
        if let Lines::Built(lines) = &mut self.lines {
            self.lines = Lines::Shared(std::mem::take(lines).into());
        }
        self
    }

    /// Returns the fields as on the wire.
    #[inline]
    pub(in crate::http) fn lines(&self) -> &[u8] {
        match &self.lines {
            Lines::Shared(lines) => lines,
            Lines::Built(lines) => lines,
        }
    }

    /// Adds a field. An invalid field makes writing the message fail.
    pub fn with(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.add(name, value);
        self
    }

    /// Like [`with`](Headers::with), for fields that are already stored.
    pub fn add(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        if !is_token(name) || !is_field_value(value) {
            return self.refuse(name);
        }
        self.may_frame |= is_framing(name);
        let lines = self.build();
        lines.reserve(name.len() + value.len() + 4);
        lines.extend_from_slice(name);
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value);
        lines.extend_from_slice(b"\r\n");
    }

    /// Replaces all fields of this name by one.
    pub fn set(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) {
        self.remove(name.as_ref());
        self.add(name, value);
    }

    /// Removes all fields of this name. Returns whether there were any.
    pub fn remove(&mut self, name: &str) -> bool {
        if !self.contains(name) {
            return false;
        }
        let mut kept = Vec::with_capacity(self.lines().len());
        for (other, value) in self.fields() {
            if !other.eq_ignore_ascii_case(name.as_bytes()) {
                for part in [other, b": ", value, b"\r\n"] {
                    kept.extend_from_slice(part);
                }
            }
        }
        self.lines = Lines::Built(kept);
        true
    }

    /// Removes the fields for which `keep`, called with name and value, returns `false`.
    pub fn retain(&mut self, mut keep: impl FnMut(&str, &[u8]) -> bool) {
        let mut kept = Vec::with_capacity(self.lines().len());
        for (name, value) in self.iter().filter(|(name, value)| keep(name, value)) {
            for part in [name.as_bytes(), b": ", value, b"\r\n"] {
                kept.extend_from_slice(part);
            }
        }
        self.lines = Lines::Built(kept);
    }

    #[cold]
    fn refuse(&mut self, name: &[u8]) {
        let name = name.escape_ascii().to_string();
        self.invalid.get_or_insert_with(|| Box::new(name.chars().take(80).collect()));
    }

    /// Returns the lines to append to.
    fn build(&mut self) -> &mut Vec<u8> {
        if let Lines::Shared(lines) = &self.lines {
            self.lines = Lines::Built(lines.to_vec());
        }
        match &mut self.lines {
            Lines::Built(lines) => lines,
            Lines::Shared(_) => unreachable!("replaced above"),
        }
    }

    /// Returns the name of the first invalid field that was added.
    pub(in crate::http) fn invalid(&self) -> Option<&str> {
        self.invalid.as_deref().map(AsRef::as_ref)
    }

    /// Returns whether there may be fields that describe the body, the connection or the date.
    /// Parsed fields may.
    #[inline]
    pub(in crate::http) fn may_frame(&self) -> bool {
        self.may_frame
    }

    /// Returns the fields: name and value.
    #[inline]
    pub(in crate::http) fn fields(&self) -> Fields<'_> {
        Fields { rest: self.lines() }
    }

    /// Returns the value of the first field of this name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.all(name).next()
    }

    /// Returns the value of the first field of this name as text, if it is UTF-8.
    pub fn text(&self, name: &str) -> Option<&str> {
        std::str::from_utf8(self.get(name)?).ok()
    }

    /// Returns the values of all fields of this name, in order.
    pub fn all<'a, 'n>(&'a self, name: &'n str) -> impl Iterator<Item = &'a [u8]> + use<'a, 'n> {
        let wanted = name.as_bytes();
        self.fields().filter_map(move |(name, value)| name.eq_ignore_ascii_case(wanted).then_some(value))
    }

    /// Returns whether a field of this name is present.
    pub fn contains(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    /// Returns whether a list of this name has the element, compared without case:
    /// `has_token("connection", "upgrade")`.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        self.all(name).flat_map(list).any(|element| element.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Returns the elements of the list of this name, joined, without elements equal to `token`.
    pub(in crate::http) fn without_token(&self, name: &str, token: &str) -> Vec<u8> {
        let elements = self.all(name).flat_map(list);
        let others = elements.filter(|element| !element.eq_ignore_ascii_case(token.as_bytes()));
        others.collect::<Vec<_>>().join(&b", "[..])
    }

    /// Returns the fields in order: name and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        // Names are tokens, which are ASCII.
        self.fields().map(|(name, value)| (std::str::from_utf8(name).unwrap_or_default(), value))
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.fields().count()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.lines().is_empty()
    }
}

/// Returns whether a field of this name describes the body, the connection or the date.
fn is_framing(name: &[u8]) -> bool {
    const NAMES: [&str; 4] = ["date", "connection", "content-length", "transfer-encoding"];
    NAMES.into_iter().any(|framing| name.eq_ignore_ascii_case(framing.as_bytes()))
}

/// Iterates over lines: name and value.
#[derive(Clone)]
pub(in crate::http) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let colon = find(b':', self.rest)?;
        let (name, rest) = self.rest.split_at(colon);
        let end = find(b'\r', rest)?;
        self.rest = rest.get(end + 2..).unwrap_or_default();
        Some((name, trim(&rest[1..end])))
    }
}

impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |value| -> Cow<'_, str> { String::from_utf8_lossy(value) };
        f.debug_map().entries(self.iter().map(|(name, value)| (name, text(value)))).finish()
    }
}

impl PartialEq for Headers {
    /// Compares the fields and their order. Names are compared without case.
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len()
            && self.iter().zip(other.iter()).all(|((name, value), (other_name, other_value))| {
                name.eq_ignore_ascii_case(other_name) && value == other_value
            })
    }
}

impl Eq for Headers {}
