//! Limits of HTTP messages that the targets set and check.

use netwheel::http::HttpSettings;

/// The limits that a message read can be compared with.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    pub(crate) start_line: usize,
    pub(crate) headers: usize,
    pub(crate) body: u64,
    is_small: bool,
}

/// Limits that a short input can reach.
pub(crate) const SMALL: Limits = Limits { start_line: 64, headers: 4, body: 48, is_small: true };

/// The defaults of the library.
pub(crate) const DEFAULT: Limits =
    Limits { start_line: 8 * 1024, headers: 100, body: 16 * 1024 * 1024, is_small: false };

impl Limits {
    pub(crate) fn settings(self) -> HttpSettings {
        let settings =
            HttpSettings::new().max_start_line(self.start_line).max_headers(self.headers).max_body(self.body);
        if self.is_small {
            settings
                .max_head(192)
                .max_trailers(64)
                .max_chunk_line(20)
                .max_chunk_extensions(16)
                .max_discarded(16)
        } else {
            settings
        }
    }
}
