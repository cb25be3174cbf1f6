//! A row of a table.

use crate::http::error::HttpError;
use std::fmt;

/// Whose tests have the input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Source {
    Go,
    Netty,
}

/// The state of the connection behind the input.
#[derive(Debug, Clone, Copy)]
pub(super) enum After {
    /// Another exchange succeeds.
    Kept,
    /// It has closed.
    Closed,
    /// It waits for more input. The end of the stream gives these lines, and closes it.
    Waits(&'static [&'static str]),
    /// It is open, and the bytes behind belong to another protocol.
    HandedOver,
}

impl After {
    /// Returns the last lines of a row.
    pub(super) fn lines(self) -> Vec<String> {
        let (state, end): (_, &[&str]) = match self {
            After::Kept => ("kept", &[]),
            After::Closed => ("closed", &[]),
            After::HandedOver => ("open", &[]),
            After::Waits(end) => ("open", end),
        };
        [state].iter().chain(end).map(|line| (*line).to_owned()).collect()
    }
}

/// An input and its outcome.
#[derive(Debug)]
pub(super) struct Row {
    source: Source,
    name: String,
    pub(super) input: Vec<u8>,
    /// The methods of the requests that a client has sent.
    pub(super) sent: &'static [&'static str],
    /// The lines that a handler records: see `transcript`.
    pub(super) seen: Vec<String>,
    /// The error that follows them.
    pub(super) error: Option<HttpError>,
    /// The status with which a server refuses a head.
    pub(super) refusal: Option<u16>,
    pub(super) after: After,
    /// Why the outcome is another one than that of the source.
    pub(super) why: Option<&'static str>,
}

impl Row {
    fn new(source: Source, name: String, input: Vec<u8>) -> Self {
        Row {
            source,
            name,
            input,
            sent: &["GET"],
            seen: Vec::new(),
            error: None,
            refusal: None,
            after: After::Closed,
            why: None,
        }
    }

    /// Sets the lines that a handler records.
    pub(super) fn sees(mut self, lines: &[&str]) -> Self {
        self.seen = lines.iter().map(|line| (*line).to_owned()).collect();
        self
    }

    /// The connection serves another exchange.
    pub(super) fn kept(mut self) -> Self {
        self.after = After::Kept;
        self
    }

    /// The connection closes.
    pub(super) fn closed(mut self) -> Self {
        self.after = After::Closed;
        self
    }

    /// The connection waits for more. The end of the stream gives these lines, and closes it.
    pub(super) fn waits(mut self, lines: &'static [&'static str]) -> Self {
        self.after = After::Waits(lines);
        self
    }

    /// The connection belongs to another protocol.
    pub(super) fn handed_over(mut self) -> Self {
        self.after = After::HandedOver;
        self
    }

    /// A server refuses the head with this status, and closes.
    pub(super) fn refused(mut self, status: u16) -> Self {
        self.refusal = Some(status);
        self
    }

    /// The handler receives an error, and the connection closes.
    pub(super) fn breaks(mut self, error: HttpError) -> Self {
        self.error = Some(error);
        self
    }

    /// The response is to these requests, instead of one GET.
    pub(super) fn to(mut self, methods: &'static [&'static str]) -> Self {
        self.sent = methods;
        self
    }

    /// States the behaviour of the source, and why this crate differs.
    pub(super) fn differs(mut self, why: &'static str) -> Self {
        self.why = Some(why);
        self
    }
}

/// Names the row in messages.
impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.source, self.name)
    }
}

/// Returns a row of Go's tests.
pub(super) fn go(name: impl Into<String>, input: impl AsRef<[u8]>) -> Row {
    Row::new(Source::Go, name.into(), input.as_ref().to_vec())
}

/// Returns a row of Netty's tests.
pub(super) fn netty(name: impl Into<String>, input: impl AsRef<[u8]>) -> Row {
    Row::new(Source::Netty, name.into(), input.as_ref().to_vec())
}
