//! The limits and times of HTTP/1.1.

use crate::{error::Result, settings::settings};
use std::time::Duration;

settings! {
    /// The limits and times of an HTTP/1.1 connection. A value out of range is reported by
    /// [`HttpServer::with`](super::HttpServer::with) and
    /// [`HttpClient::with`](super::HttpClient::with).
    ///
    /// A time of zero turns a limit off. Times are late by at most one tick of the loop's wheel
    /// (100 ms by default) plus the loop's lag.
    pub struct HttpSettings {
        /// Sets the length of the longest request or status line in bytes, without its CRLF.
        max_start_line(bytes: usize) = 8 * 1024, "8 KiB", range 64..=32_768 => "64 to 32768 bytes",
            reached "414 and close";
        /// Sets the length of the longest head in bytes: start line, headers and the empty line.
        max_head(bytes: usize) = 16 * 1024, "16 KiB", range 128..=65_535 => "128 to 65535 bytes",
            reached "431 and close";
        /// Sets the largest number of headers in a head, and of trailers.
        max_headers(count: usize) = 100, "100", range 1..=256 => "1 to 256",
            reached "431 and close";
        /// Sets the length of the longest trailers in bytes.
        max_trailers(bytes: usize) = 8 * 1024, "8 KiB", range 64..=65_535 => "64 to 65535 bytes",
            reached "431 and close";
        /// Sets the length of the longest line with the size of a chunk in bytes.
        max_chunk_line(bytes: usize) = 256, "256", range 20..=4096 => "20 to 4096 bytes",
            reached "400 and close";
        /// Sets the length of all chunk extensions of a body together, in bytes. Extensions are
        /// checked and ignored.
        max_chunk_extensions(bytes: usize) = 16 * 1024, "16 KiB", range 0.. => "0 bytes or more",
            reached "400 and close";
        /// Sets the length of the longest body in bytes.
        max_body(bytes: u64) = 16 * 1024 * 1024, "16 MiB", range 0.. => "0 bytes or more",
            reached "413 and close, before the body is read if its length is declared";
        /// Sets how many bytes of a request's body are read and dropped if the response is complete
        /// before the body. Beyond it, the connection closes after the response.
        max_discarded(bytes: u64) = 64 * 1024, "64 KiB", range 0.. => "0 bytes or more",
            reached "the connection closes after the response";
        /// Sets the time from the first byte of a head to its end. It restarts while the program
        /// does not read.
        head_timeout(limit: Duration) = Duration::from_secs(10), "10 s",
            reached "408 and close";
        /// Sets the number of bytes of a body that must arrive within each
        /// [`body_timeout`](HttpSettings::body_timeout), while the program reads.
        min_body_progress(bytes: u64) = 1024, "1 KiB", range 1.. => "1 byte or more",
            reached "408 and close, with `HttpError::BodyTimeout`";
        /// Sets the period for [`min_body_progress`](HttpSettings::min_body_progress).
        body_timeout(period: Duration) = Duration::from_secs(10), "10 s",
            reached "see `min_body_progress`";
        /// Sets the time that a connection may be idle between two requests, and before the first.
        /// It restarts while the program of a server does not read.
        /// On a client, it is the limit for servers that announce their own time.
        keep_alive_timeout(limit: Duration) = Duration::from_secs(75), "75 s",
            reached "the connection closes silently";
        /// Sets the time that a client keeps an idle connection to a server that does not announce
        /// its own time with `Keep-Alive: timeout`. Common servers close idle connections after 5
        /// seconds, so a longer time loses requests.
        reuse_timeout(limit: Duration) = Duration::from_secs(4), "4 s",
            reached "the connection closes silently";
        /// Sets the number of requests that a client may write before their responses have arrived.
        max_pipelined(requests: usize) = 16, "16", range 1.. => "1 or more",
            reached "`Error::Full`";
        /// Sets the time that a client waits for the head of a response, and for progress of its
        /// body.
        response_timeout(limit: Duration) = Duration::from_secs(30), "30 s",
            reached "`Error::TimedOut`, and the connection closes";
        /// Sets the time without output after which a stream of server-sent events sends a
        /// comment, so that proxies do not close it.
        event_comment_interval(period: Duration) = Duration::from_secs(15), "15 s",
            reached "a comment is sent";
    }
}

impl HttpSettings {
    /// Returns these settings if all are in range.
    pub(super) fn checked(self) -> Result<Self> {
        self.check().map(|()| self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{http::server::HttpServer, settings::tests::check_limits_page};

    #[test]
    fn the_documentation_states_the_defaults_and_ranges() {
        for row in HttpSettings::rows() {
            row.check_words();
            check_limits_page("Limits of HTTP", &format!("HttpSettings::{}", row.name), row.text);
        }
    }

    #[test]
    fn settings_out_of_range_are_refused() {
        let new = HttpSettings::new;
        for settings in
            [new().max_head(127), new().max_head(65_536), new().max_headers(0), new().max_headers(257)]
        {
            assert!(HttpServer::with(settings).is_err());
        }
        assert!(HttpServer::with(new().max_head(65_535).max_headers(256)).is_ok());
    }
}
