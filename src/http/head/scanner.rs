//! Finds the end of a head, however it is split.
//!
//! Invariants: no byte is looked at twice. What is found, and the first error, depend only on the
//! bytes. Every line ends in CRLF, and CR and LF occur nowhere else.

use crate::http::{error::HttpError, find::find_line_end, settings::HttpSettings};

/// The limits of a head or of trailers.
#[derive(Debug, Clone, Copy)]
pub(in crate::http) struct HeadLimits {
    /// The longest first line, without its CRLF. `usize::MAX` for trailers, whose first line is
    /// like the others.
    pub(in crate::http) first_line: usize,
    /// The length of all lines, with their CRLF and the empty line.
    pub(in crate::http) length: usize,
    /// The number of lines, without the empty line.
    pub(in crate::http) lines: usize,
}

impl HeadLimits {
    pub(in crate::http) fn of(settings: &HttpSettings) -> Self {
        HeadLimits {
            first_line: settings.max_start_line,
            length: settings.max_head,
            // The first line, and the headers.
            lines: settings.max_headers + 1,
        }
    }
}

/// The place up to which a head has been looked at.
#[derive(Debug, Clone, Copy, Default)]
pub(in crate::http) struct HeadScanner {
    scanned: usize,
    line_start: usize,
    lines: usize,
}

/// The result of a scan.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::http) enum Scan {
    /// The head is this long, with its empty line.
    Complete(usize),
    /// The end has not arrived yet.
    Incomplete,
}

impl HeadScanner {
    /// The state at the start of a head.
    pub(in crate::http) const NEW: HeadScanner = HeadScanner { scanned: 0, line_start: 0, lines: 0 };

    /// Returns whether nothing of the head has been looked at.
    pub(in crate::http) fn is_new(&self) -> bool {
        self.scanned == 0
    }

    /// Continues in `input`, which begins with the bytes of earlier calls.
    ///
    /// # Errors
    /// [`HttpError`] for a line ending other than CRLF, or a limit that is exceeded.
    pub(in crate::http) fn scan(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Scan, HttpError> {
        loop {
            let found = find_line_end(&input[self.scanned..]).map(|at| self.scanned + at);
            let end = found.unwrap_or(input.len());
            self.check_length(end, limits)?;
            let Some(at) = found else {
                self.scanned = end;
                return Ok(Scan::Incomplete);
            };
            if input[at] == b'\n' {
                return Err(HttpError::Header("a line ends in LF without CR"));
            }
            match input.get(at + 1) {
                None => {
                    self.scanned = at;
                    return Ok(Scan::Incomplete);
                }
                Some(b'\n') => {}
                Some(_) => return Err(HttpError::Header("CR without LF")),
            }
            if at + 2 > limits.length {
                return Err(HttpError::HeadTooLong);
            }
            if at == self.line_start {
                return Ok(Scan::Complete(at + 2));
            }
            self.lines += 1;
            if self.lines > limits.lines {
                return Err(HttpError::HeadTooLong);
            }
            self.line_start = at + 2;
            self.scanned = self.line_start;
        }
    }

    /// Checks the limits for a line that contains everything before `end`.
    fn check_length(&self, end: usize, limits: &HeadLimits) -> Result<(), HttpError> {
        if self.lines == 0 && end > limits.first_line {
            return Err(HttpError::LineTooLong);
        }
        if end > limits.length {
            return Err(HttpError::HeadTooLong);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LIMITS: HeadLimits = HeadLimits { first_line: 20, length: 60, lines: 3 };

    fn whole(input: &[u8]) -> Result<Scan, HttpError> {
        HeadScanner::default().scan(input, &LIMITS)
    }

    #[test]
    fn a_head_ends_with_an_empty_line() {
        assert_eq!(whole(b"GET / HTTP/1.1\r\nA: b\r\n\r\nrest"), Ok(Scan::Complete(24)));
        assert_eq!(whole(b"GET / HTTP/1.1\r\nA: b\r\n\r"), Ok(Scan::Incomplete));
        assert_eq!(whole(b""), Ok(Scan::Incomplete));
    }

    #[test]
    fn other_line_endings_are_errors() {
        for input in [&b"GET /\nA: b\r\n\r\n"[..], b"\n", b"GET\r /", b"GET\r\rA", b"A\r\n\n"] {
            assert!(matches!(whole(input), Err(HttpError::Header(_))), "{input:?}");
        }
    }

    #[test]
    fn each_limit_is_exact() {
        assert_eq!(whole(&[b'a'; 20]), Ok(Scan::Incomplete));
        assert_eq!(whole(&[b'a'; 21]), Err(HttpError::LineTooLong));
        let head = |len: usize| [b"GET\r\n".to_vec(), vec![b'a'; len - 9], b"\r\n\r\n".to_vec()].concat();
        assert_eq!(whole(&head(60)), Ok(Scan::Complete(60)));
        assert_eq!(whole(&head(61)), Err(HttpError::HeadTooLong));
        assert_eq!(whole(b"a\r\nb\r\nc\r\n\r\n"), Ok(Scan::Complete(11)));
        assert_eq!(whole(b"a\r\nb\r\nc\r\nd\r\n\r\n"), Err(HttpError::HeadTooLong));
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_the_head_is_split(
            input in proptest::collection::vec(
                prop_oneof![Just(b'a'), Just(b':'), Just(b'\r'), Just(b'\n')], 0..80),
        ) {
            // A complete line ending is what most inputs should have.
            let text = String::from_utf8(input).unwrap().replace('\r', "\r\n");
            let input = text.as_bytes();
            let mut scanner = HeadScanner::default();
            let mut split = Ok(Scan::Incomplete);
            for end in 1..=input.len() {
                split = scanner.scan(&input[..end], &LIMITS);
                if split != Ok(Scan::Incomplete) {
                    break;
                }
            }
            prop_assert_eq!(split, whole(input));
        }
    }
}
