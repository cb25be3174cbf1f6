//! `SendError<T>`: a value that was refused, with the reason.

use super::error::Error;
use std::{fmt, time::Duration};

/// A value that an operation refused, with the reason. Hands the value back to the caller.
///
/// Returned by everything that takes ownership of a message or a task:
/// [`Channel::write`](crate::Channel::write), [`EventLoop::execute`](crate::EventLoop::execute),
/// [`WorkerPool::execute`](crate::worker_pool::WorkerPool::execute). The `?` operator converts it
/// to [`Error`] and drops the value.
///
/// ```
/// use netwheel::{EventLoopGroup, Result};
///
/// fn run(group: &EventLoopGroup, task: impl FnOnce() + Send + 'static) -> Result {
///     let event_loop = group.next();
///     if let Err(refused) = event_loop.execute(task) {
///         if !refused.is_full() {
///             return Err(refused.into());
///         }
///         // The queue of the loop is full: run the task on this thread.
///         let task = refused.into_inner();
///         task();
///     }
///     event_loop.execute(|| println!("on the loop"))?;
///     Ok(())
/// }
/// # run(&EventLoopGroup::builder().threads(1).build().unwrap(), || ()).unwrap();
/// ```
#[doc(alias = "Refused")]
#[doc(alias = "TrySendError")]
pub struct SendError<T> {
    value: T,
    error: Error,
}

impl<T> SendError<T> {
    pub(crate) fn new(value: T, error: Error) -> Self {
        SendError { value, error }
    }

    /// Returns the refused value.
    pub fn into_inner(self) -> T {
        self.value
    }

    /// Returns a reference to the refused value.
    pub fn value(&self) -> &T {
        &self.value
    }

    /// Returns the reason.
    pub fn error(&self) -> &Error {
        &self.error
    }

    /// Returns the refused value and the reason.
    pub fn into_parts(self) -> (T, Error) {
        (self.value, self.error)
    }

    /// Returns whether a limit was reached ([`Error::Full`]). Trying again later can succeed.
    pub fn is_full(&self) -> bool {
        matches!(self.error, Error::Full { .. })
    }

    /// Returns whether the receiver is gone: the channel is closed ([`Error::Closed`]), the loop
    /// has shut down ([`Error::ShutDown`]), or another pipeline has taken over
    /// ([`Error::PipelineReplaced`]). Trying again cannot succeed.
    pub fn is_closed(&self) -> bool {
        matches!(self.error, Error::Closed | Error::ShutDown | Error::PipelineReplaced)
    }

    /// Returns the time after which to try again, if the event loop is overloaded
    /// ([`Error::Overloaded`]).
    pub fn retry_after(&self) -> Option<Duration> {
        match &self.error {
            Error::Overloaded(overloaded) => Some(overloaded.retry_after()),
            _ => None,
        }
    }

    /// Replaces the value, and keeps the reason.
    pub(crate) fn map<U>(self, f: impl FnOnce(T) -> U) -> SendError<U> {
        SendError { value: f(self.value), error: self.error }
    }
}

impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<T> std::error::Error for SendError<T> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.error.source()
    }
}

impl<T> From<SendError<T>> for Error {
    fn from(refused: SendError<T>) -> Self {
        refused.error
    }
}
