//! The events of a channel besides messages.

use super::IdleEvent;
use crate::error::Error;

/// An event for the handler that carries no bytes.
pub(crate) enum Event {
    Active,
    ReadComplete,
    ReadClosed,
    Writability(bool),
    Idle(IdleEvent),
    Shutdown,
    Error(Error),
    /// Like `Error`, for the panic of a callback, after which the channel closes in any case.
    Panicked(Error),
    Inactive,
    /// A timer of a stage has expired. Not for the handler.
    StageTimer,
}
