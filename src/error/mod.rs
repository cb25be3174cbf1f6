//! The error types of the crate.
//!
//! [`Error`] is one enum for the whole crate. Each variant names the source of the fault: the peer,
//! a setting, the program's own use of the crate, the operating system. An operation that refuses a
//! value hands it back in a [`SendError`]. All errors are `Send + Sync + Clone` and at most 40
//! bytes, because every callback and every write returns one.

mod encode_error;
#[expect(clippy::module_inception, reason = "each file is named after its main type")]
pub(crate) mod error;
mod log_topic;
mod overloaded;
mod panics;
mod peer_error;
mod resource;
pub(crate) mod send_error;
mod setting_error;
#[cfg(test)]
mod tests;

pub use encode_error::EncodeError;
pub use error::BoxError;
pub(crate) use error::{Error, Result};
pub use overloaded::Overloaded;
pub(crate) use panics::{caught, drop_guarded, panic_message, panic_text};
pub use peer_error::{PeerError, ProtocolCause};
pub use resource::Resource;
pub(crate) use send_error::SendError;
pub use setting_error::SettingError;
