//! The extension permessage-deflate (RFC 7692).

pub(super) mod compression;
mod engines;
mod negotiated;
mod settings;

pub(super) use negotiated::Negotiated;
pub use settings::Deflate;
