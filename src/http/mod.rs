//! HTTP/1.1 servers and clients.
//!
//! [`HttpServer`] makes the pipelines of a server. Its handler reads the [`Part`]s of requests and
//! writes those of responses, or reads whole requests behind [`Aggregate`]. [`HttpClient`] is its
//! counterpart; [`Call`] pairs a request with a completion for its response.
//!
//! Heads are parsed by httparse, and checked beyond that with the strictness of a front-end
//! server: whatever another recipient may understand differently is refused. Examples are two
//! lengths, a bare LF, a folded line, or white space before a colon. [`HttpSettings`] lists all
//! limits.
//!
//! The specifications are [RFC 9110](https://www.rfc-editor.org/rfc/rfc9110) (semantics) and
//! [RFC 9112](https://www.rfc-editor.org/rfc/rfc9112) (HTTP/1.1). Not included: HTTP/2, a router,
//! compression of responses, decoding of URLs and forms.

// Invariants: no I/O, and everything runs on the channel's loop. No bytes of a peer cause a panic.
// Messages and the first error do not depend on how the input is split, except for the cuts between
// the parts of a body. Every byte is looked at a constant number of times.

mod body;
mod client;
mod content;
mod encode;
mod error;
mod find;
mod forwarding;
mod head;
mod message;
mod server;
mod settings;
mod stale_response;
mod syntax;
#[cfg(test)]
mod tests;

#[cfg(feature = "tower")]
pub(crate) use body::chunk_weight;
pub(crate) use client::CallAnswer;
pub use client::{BodyStream, Call, HttpClient, NotSent, StreamedResponse, Upload};
#[cfg(feature = "websocket")]
pub(crate) use client::{Upgrade, UpgradeReader, put_upgrade};
pub use content::{Aggregate, ServerSentEvent, StaticBody};
pub use error::HttpError;
pub use forwarding::{ForwardedHeaders, Forwarding};
pub(crate) use head::forbidden_trailer;
pub(crate) use message::AbsoluteTarget;
pub use message::{Body, FullMessage, Headers, Part, Request, RequestId, Response, StatusCode, Version};
pub use server::HttpServer;
pub use settings::HttpSettings;
pub use stale_response::StaleResponse;
pub(crate) use syntax::is_host;
