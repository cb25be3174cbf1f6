//! The extension permessage-deflate (RFC 7692).

pub(super) mod compression;
mod engines;
mod negotiated;
mod settings;

#[cfg(test)]
pub(super) use engines::compressions;
pub(super) use negotiated::Negotiated;
pub use settings::Deflate;
