//! The types that a program handles: heads, headers, bodies and the parts of messages.

mod body;
mod headers;
mod part;
mod request;
mod response;
mod status_code;
#[cfg(feature = "http-types")]
mod types;
mod version;

pub use body::Body;
pub use headers::Headers;
pub(in crate::http) use headers::Span;
pub use part::{Message, Part};
pub use request::Request;
pub use response::Response;
pub use status_code::StatusCode;
pub use version::Version;
