//! The response of all HTTP servers. They differ only in headers that a server adds by itself.

pub(crate) const BODY: &str = "Hello, World!\n";

pub(crate) const CONTENT_TYPE: &str = "text/plain; charset=utf-8";
