//! The error of a call that was not sent.

use crate::error::Error;
use std::fmt;

/// A [`Call`](super::Call) failed before any of its bytes were sent, so it is safe to repeat it on
/// another connection.
///
/// It is the cause of an [`Error::Other`]; [`NotSent::of`] finds it there.
///
/// ```
/// use netwheel::{Error, http::{Call, NotSent, Request}};
///
/// // The call is dropped without being written.
/// let (_, response) = Call::new(Request::get("/"));
/// let error = response.wait().unwrap_err();
/// assert!(matches!(NotSent::of(&error).unwrap().cause(), Error::Closed));
/// ```
#[derive(Debug, Clone)]
pub struct NotSent {
    cause: Error,
}

impl NotSent {
    /// Returns the `NotSent` in `error`, if there is one.
    pub fn of(error: &Error) -> Option<&NotSent> {
        match error {
            Error::Other(error) => error.downcast_ref(),
            _ => None,
        }
    }

    /// Returns the reason: [`Error::Closed`] if the connection has ended or is ending,
    /// [`Error::Full`] if too many calls wait on it, or an error of the pool or the connect.
    pub fn cause(&self) -> &Error {
        &self.cause
    }

    /// Wraps the reason.
    pub(crate) fn error(cause: Error) -> Error {
        if NotSent::of(&cause).is_some() { cause } else { Error::other(NotSent { cause }) }
    }
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the call was not sent: {}", self.cause)
    }
}

impl std::error::Error for NotSent {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        std::error::Error::source(&self.cause)
    }
}
