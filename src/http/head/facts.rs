//! What the headers of a message say of its body and of the connection, found in one pass.

use crate::http::{
    Version,
    error::HttpError,
    message::Wishes,
    syntax::{is_host, is_token, list, trim},
};

/// What the headers of a message say of its body and of the connection.
#[derive(Debug, Default, Clone, Copy)]
pub(in crate::http) struct HeadFacts {
    pub(super) content_length: Option<u64>,
    pub(super) coding: Coding,
    /// The number of `Host` headers.
    hosts: u32,
    /// Elements of `Connection`.
    closes: bool,
    keeps_alive: bool,
    upgrades: bool,
    expects_continue: bool,
}

/// The transfer codings of a message.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    None,
    /// Exactly `chunked`.
    Chunked,
    /// Others, and `chunked` as the last one.
    OthersAndChunked,
    /// Anything else. The end of the body is unknown.
    Invalid,
}

impl HeadFacts {
    /// Looks at a field of a request.
    ///
    /// # Errors
    /// The errors of [`note`](HeadFacts::note), and an error for an invalid host or expectation.
    #[inline]
    pub(super) fn note_in_request(&mut self, name: &[u8], value: &[u8]) -> Result<(), HttpError> {
        match name.len() {
            4 if name.eq_ignore_ascii_case(b"host") => self.note_host(value),
            6 if name.eq_ignore_ascii_case(b"expect") => self.note_expectation(value),
            _ => self.note(name, value),
        }
    }

    /// Looks at a field.
    ///
    /// # Errors
    /// [`HttpError`] if the field contradicts itself or an earlier one, so that recipients may
    /// understand the message differently.
    #[inline]
    pub(super) fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), HttpError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case(b"connection") => {
                self.note_connection(value);
                Ok(())
            }
            14 if name.eq_ignore_ascii_case(b"content-length") => self.note_length(value),
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                self.note_coding(value);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn note_host(&mut self, value: &[u8]) -> Result<(), HttpError> {
        self.hosts += 1;
        if self.hosts > 1 {
            return Err(HttpError::Header("several Host headers"));
        }
        if is_host(value) { Ok(()) } else { Err(HttpError::Header("Host is invalid")) }
    }

    /// A request of HTTP/1.1 has one `Host` (RFC 9112, section 3.2).
    pub(super) fn check_host(&self, version: Version) -> Result<(), HttpError> {
        match version {
            Version::Http11 if self.hosts == 0 => Err(HttpError::Header("Host is missing")),
            _ => Ok(()),
        }
    }

    fn note_expectation(&mut self, value: &[u8]) -> Result<(), HttpError> {
        self.expects_continue = value.eq_ignore_ascii_case(b"100-continue");
        if self.expects_continue { Ok(()) } else { Err(HttpError::Expectation) }
    }

    fn note_connection(&mut self, value: &[u8]) {
        for token in list(value) {
            match token.len() {
                5 if token.eq_ignore_ascii_case(b"close") => self.closes = true,
                7 if token.eq_ignore_ascii_case(b"upgrade") => self.upgrades = true,
                10 if token.eq_ignore_ascii_case(b"keep-alive") => self.keeps_alive = true,
                _ => {}
            }
        }
    }

    /// Notes the length: one header of digits only.
    fn note_length(&mut self, digits: &[u8]) -> Result<(), HttpError> {
        const INVALID: HttpError = HttpError::Header("Content-Length is not a number");
        if self.content_length.is_some() {
            return Err(HttpError::Header("several Content-Length headers"));
        }
        if digits.is_empty() || digits.len() > 19 {
            return Err(INVALID);
        }
        let mut length = 0u64;
        for digit in digits {
            if !digit.is_ascii_digit() {
                return Err(INVALID);
            }
            // 19 digits fit.
            length = length * 10 + u64::from(digit - b'0');
        }
        if length > i64::MAX as u64 {
            return Err(INVALID);
        }
        self.content_length = Some(length);
        Ok(())
    }

    /// Notes transfer codings. `chunked` must be the last one, and must occur once.
    fn note_coding(&mut self, value: &[u8]) {
        let is_chunked = |coding: &[u8]| coding.eq_ignore_ascii_case(b"chunked");
        self.coding = if self.coding != Coding::None {
            Coding::Invalid
        } else if is_chunked(value) {
            Coding::Chunked
        } else {
            let mut codings = value.split(|byte| *byte == b',').map(trim);
            let last = codings.next_back().is_some_and(is_chunked);
            let others = codings.all(|coding| is_token(coding) && !is_chunked(coding));
            if last && others { Coding::OthersAndChunked } else { Coding::Invalid }
        };
    }

    /// Returns the request's settings for the connection.
    pub(in crate::http) fn wishes(&self, version: Version) -> Wishes {
        Wishes {
            keep_alive: self.is_keep_alive(version),
            upgrades: self.upgrades,
            expects_continue: self.expects_continue,
        }
    }

    /// Returns whether the sender keeps the connection after this message.
    pub(in crate::http) fn is_keep_alive(&self, version: Version) -> bool {
        match version {
            Version::Http10 => self.keeps_alive && !self.closes,
            Version::Http11 => !self.closes,
        }
    }
}
