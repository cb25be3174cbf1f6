//! Server-sent events.

use crate::{
    error::Result,
    http::{Part, Response, encode::unencodable},
};
use bytes::Bytes;
use std::time::Duration;

/// A server-sent event, for a response from [`Response::event_stream`].
///
/// ```
/// use netwheel::http::ServerSentEvent;
///
/// let event = ServerSentEvent::data("two\nlines").name("news").id("17");
/// assert_eq!(event.encode()?, "event: news\nid: 17\ndata: two\ndata: lines\n\n");
/// # Ok::<(), netwheel::Error>(())
/// ```
///
/// The format is that of the [HTML standard](https://html.spec.whatwg.org/multipage/server-sent-events.html).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ServerSentEvent {
    name: Option<String>,
    id: Option<String>,
    retry: Option<Duration>,
    data: String,
}

impl ServerSentEvent {
    /// Returns an event with this data. Its lines may end in LF, CR or CRLF.
    pub fn data(data: impl Into<String>) -> Self {
        ServerSentEvent { data: data.into(), ..ServerSentEvent::default() }
    }

    /// Sets the type of the event. Browsers dispatch an event without one as `message`.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Sets the id, which a browser sends in `Last-Event-ID` when it reconnects.
    pub fn id(mut self, id: impl Into<String>) -> Self {
        self.id = Some(id.into());
        self
    }

    /// Sets the time after which a browser reconnects, in whole milliseconds.
    pub fn retry(mut self, after: Duration) -> Self {
        self.retry = Some(after);
        self
    }

    /// Returns the bytes of the event.
    ///
    /// # Errors
    /// [`EncodeError`](crate::error::EncodeError) if the type or the id contains CR, LF or NUL.
    pub fn encode(&self) -> Result<Bytes> {
        let mut text = String::with_capacity(self.data.len() + 32);
        for (field, value) in [("event", &self.name), ("id", &self.id)] {
            let Some(value) = value else { continue };
            if value.contains(['\r', '\n', '\0']) {
                return Err(unencodable(format!("the {field} of an event has a line break or NUL")));
            }
            text.extend([field, ": ", value, "\n"]);
        }
        if let Some(retry) = self.retry {
            text.extend(["retry: ", &retry.as_millis().to_string(), "\n"]);
        }
        // CRLF is one line break, and CR alone another.
        let data = self.data.replace("\r\n", "\n");
        for line in data.split(['\n', '\r']) {
            text.extend(["data: ", line, "\n"]);
        }
        text.push('\n');
        Ok(text.into())
    }

    /// Returns the event as a part of a response.
    ///
    /// # Errors
    /// The errors of [`encode`](ServerSentEvent::encode).
    pub fn into_part(self) -> Result<Part<Response>> {
        Ok(Part::Body(self.encode()?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_of_the_data_is_a_field() {
        let text = |data: &str| ServerSentEvent::data(data).encode().unwrap();
        assert_eq!(text("a\nb\r\nc\rd"), "data: a\ndata: b\ndata: c\ndata: d\n\n");
        assert_eq!(text(""), "data: \n\n");
        assert_eq!(text("a\n"), "data: a\ndata: \n\n");
    }

    #[test]
    fn a_line_break_in_the_type_or_id_is_refused() {
        for bad in ["a\nb", "a\r", "\0"] {
            assert!(ServerSentEvent::data("x").name(bad).encode().is_err());
            assert!(ServerSentEvent::data("x").id(bad).encode().is_err());
        }
    }

    #[test]
    fn all_fields_are_written() {
        let event = ServerSentEvent::data("x").name("tick").id("1").retry(Duration::from_secs(2));
        assert_eq!(event.encode().unwrap(), "event: tick\nid: 1\nretry: 2000\ndata: x\n\n");
    }
}
