//! What a handler has read, as lines.

use crate::{
    error::{Error, PeerError},
    http::{Headers, error::HttpError},
};
use std::{cell::RefCell, rc::Rc};

/// Records a line for the head, each header, the body, the end with its trailers, and an error.
///
/// The headers that frame the message or choose its recipient have no lines. The body, the host in
/// the first line, and the state of the connection show their meaning.
#[derive(Default, Clone)]
pub(super) struct Transcript(Rc<RefCell<Vec<String>>>);

impl Transcript {
    pub(super) fn head(&self, line: String, headers: &Headers) {
        const MEANT: [&str; 4] = ["host", "connection", "content-length", "transfer-encoding"];
        let mut lines = self.0.borrow_mut();
        lines.push(line);
        let others = headers.iter().filter(|(name, _)| !MEANT.contains(&&*name.to_ascii_lowercase()));
        lines.extend(others.map(field));
    }

    /// Joins the pieces of a body.
    pub(super) fn body(&self, bytes: &[u8]) {
        let text = String::from_utf8_lossy(bytes);
        let mut lines = self.0.borrow_mut();
        match lines.last_mut().filter(|line| line.starts_with("body ")) {
            Some(last) => last.push_str(&text),
            None => lines.push(format!("body {text}")),
        }
    }

    pub(super) fn end(&self, trailers: &Headers) {
        let fields = trailers.iter().map(field).collect::<Vec<_>>().join("; ");
        self.push(format!("end {fields}").trim_end());
    }

    pub(super) fn error(&self, error: &Error) {
        match (HttpError::of(error), error) {
            (Some(error), _) => self.push(&error_line(error)),
            (None, Error::Peer(PeerError::Truncated)) => self.push("truncated"),
            _ => self.push(&format!("error {error:#}")),
        }
    }

    pub(super) fn push(&self, line: &str) {
        self.0.borrow_mut().push(line.to_owned());
    }

    /// Returns the lines since the last call.
    pub(super) fn take(&self) -> Vec<String> {
        self.0.take()
    }
}

fn field((name, value): (&str, &[u8])) -> String {
    format!("{name}: {}", String::from_utf8_lossy(value))
}

/// Returns the line for an error.
pub(super) fn error_line(error: HttpError) -> String {
    format!("error {error:?}")
}
