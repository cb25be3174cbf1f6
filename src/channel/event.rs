//! What happens to a channel besides the arrival of messages.

use super::watch::IdleEvent;
use crate::Error;

/// An event for the handler that carries no bytes.
pub(crate) enum Event {
    Active,
    ReadComplete,
    InputShutdown,
    Writability(bool),
    Idle(IdleEvent),
    Shutdown,
    Error(Error),
    Inactive,
    /// Not for the handler: the time has come for which a stage asked.
    StageTimer,
}
