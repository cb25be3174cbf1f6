//! Header fields: parsed from a message, or built for one.

use crate::http::syntax::{is_field_value, is_token, list};
use bytes::Bytes;
use smallvec::SmallVec;
use std::{borrow::Cow, fmt};

/// Fields in a head before further ones take an allocation.
const INLINE: usize = 12;

/// The header fields of a message, in their order. A name may occur several times.
///
/// Parsed fields share the memory of the head. Names are compared without case; values are bytes
/// without spaces around them. Lookups are linear.
///
/// Fields are checked when they are added: a name is a token, and a value has neither CR, LF nor
/// other control characters. The builder methods do not fail. Instead, writing a message with an
/// invalid field fails with [`EncodeError`](crate::error::EncodeError), and nothing of it is sent.
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
    bytes: Storage,
    fields: SmallVec<[Span; INLINE]>,
    /// The first invalid field that was added.
    invalid: Option<Box<str>>,
}

/// The bytes of the fields: those of a parsed head, or appended ones.
#[derive(Clone)]
enum Storage {
    Parsed(Bytes),
    Built(Vec<u8>),
}

impl Default for Storage {
    fn default() -> Self {
        Storage::Built(Vec::new())
    }
}

impl Storage {
    #[inline]
    fn as_slice(&self) -> &[u8] {
        match self {
            Storage::Parsed(bytes) => bytes,
            Storage::Built(bytes) => bytes,
        }
    }
}

/// The place of a field in the bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct Span {
    pub(in crate::http) name: u32,
    pub(in crate::http) name_len: u16,
    pub(in crate::http) value_len: u16,
    pub(in crate::http) value: u32,
}

impl Span {
    fn name(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.name as usize..self.name as usize + usize::from(self.name_len)]
    }

    fn value(self, bytes: &[u8]) -> &[u8] {
        &bytes[self.value as usize..self.value as usize + usize::from(self.value_len)]
    }
}

/// The longest value of a field that can be added.
const MAX_VALUE: usize = u16::MAX as usize;

impl Headers {
    /// Returns no fields, without allocating.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the fields at `fields` of a parsed head.
    pub(in crate::http) fn parsed(bytes: Bytes, fields: impl Iterator<Item = Span>) -> Self {
        Headers { bytes: Storage::Parsed(bytes), fields: fields.collect(), invalid: None }
    }

    /// Adds a field. An invalid field makes writing the message fail.
    pub fn with(mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) -> Self {
        self.add(name, value);
        self
    }

    /// Like [`with`](Headers::with), for fields that are already stored.
    pub fn add(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) {
        let (name, value) = (name.as_ref().as_bytes(), value.as_ref());
        if !is_token(name) || !is_field_value(value) || value.len().max(name.len()) > MAX_VALUE {
            self.refuse(name);
            return;
        }
        let bytes = self.build();
        let start = bytes.len();
        bytes.extend_from_slice(name);
        bytes.extend_from_slice(value);
        let Ok(at) = u32::try_from(bytes.len()) else {
            self.refuse(name);
            return;
        };
        let (name_len, value_len) = (name.len() as u16, value.len() as u16);
        let value = at - u32::from(value_len);
        self.fields.push(Span { name: start as u32, name_len, value_len, value });
    }

    /// Replaces all fields of this name by one.
    pub fn set(&mut self, name: impl AsRef<str>, value: impl AsRef<[u8]>) {
        self.remove(name.as_ref());
        self.add(name, value);
    }

    /// Removes all fields of this name. Returns whether there were any.
    pub fn remove(&mut self, name: &str) -> bool {
        let (bytes, before) = (self.bytes.as_slice(), self.fields.len());
        self.fields.retain(|field| !field.name(bytes).eq_ignore_ascii_case(name.as_bytes()));
        self.fields.len() < before
    }

    #[cold]
    fn refuse(&mut self, name: &[u8]) {
        let name = name.escape_ascii().to_string();
        self.invalid.get_or_insert_with(|| name.chars().take(80).collect());
    }

    /// Returns the bytes to append to.
    fn build(&mut self) -> &mut Vec<u8> {
        if let Storage::Parsed(bytes) = &self.bytes {
            self.bytes = Storage::Built(bytes.to_vec());
        }
        match &mut self.bytes {
            Storage::Built(bytes) => bytes,
            Storage::Parsed(_) => unreachable!("replaced above"),
        }
    }

    /// Returns the name of the first invalid field that was added.
    pub(in crate::http) fn invalid(&self) -> Option<&str> {
        self.invalid.as_deref()
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
        let bytes = self.bytes.as_slice();
        let wanted = name.as_bytes();
        self.fields.iter().filter_map(move |field| {
            // The lengths differ in most cases.
            let is_it =
                usize::from(field.name_len) == wanted.len() && field.name(bytes).eq_ignore_ascii_case(wanted);
            is_it.then(|| field.value(bytes))
        })
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

    /// Returns the fields in order: name and value.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, &[u8])> {
        let bytes = self.bytes.as_slice();
        self.fields.iter().map(move |field| {
            let name = std::str::from_utf8(field.name(bytes)).unwrap_or_default();
            (name, field.value(bytes))
        })
    }

    /// Returns the number of fields.
    pub fn len(&self) -> usize {
        self.fields.len()
    }

    /// Returns whether there are no fields.
    pub fn is_empty(&self) -> bool {
        self.fields.is_empty()
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
