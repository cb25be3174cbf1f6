//! The types that a program handles: heads, headers, bodies and the parts of messages.

mod absolute_target;
mod body;
mod headers;
mod part;
mod request;
mod request_id;
mod response;
mod status_code;
#[cfg(feature = "http-types")]
mod types;
mod version;

pub(crate) use absolute_target::AbsoluteTarget;
pub use body::Body;
pub use headers::Headers;
pub use part::{FullMessage, Part};
pub use request::Request;
pub(super) use request::Wishes;
pub use request_id::RequestId;
pub use response::Response;
pub use status_code::StatusCode;
pub use version::Version;
