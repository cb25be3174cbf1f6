//! The life cycle of a channel.
//!
//! Pure: the transitions only go forward, and a later request to close never weakens an earlier
//! one.

use super::Part;

/// The phase of a channel between its first callback and its last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Life {
    /// The handler's `active` has not been called yet.
    Opening(Option<CloseMode>),
    /// `active` was called.
    Active(Option<CloseMode>),
    /// The transport is gone.
    Closed {
        /// Whether `inactive` still has to be called, since `active` was.
        inactive_due: bool,
    },
}

/// The way in which a channel closes, ordered from graceful to abrupt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum CloseMode {
    /// After the outbound buffer was sent.
    Graceful,
    /// Immediately, without sending the rest.
    Now,
    /// Immediately and with a reset, so that the peer does not mistake it for a regular end of the
    /// stream.
    Reset,
}

impl Life {
    pub(super) fn activated(self) -> Life {
        match self {
            Life::Opening(mode) | Life::Active(mode) => Life::Active(mode),
            closed @ Life::Closed { .. } => closed,
        }
    }

    pub(super) fn closing(self, mode: CloseMode) -> Life {
        match self {
            Life::Opening(before) => Life::Opening(before.max(Some(mode))),
            Life::Active(before) => Life::Active(before.max(Some(mode))),
            closed @ Life::Closed { .. } => closed,
        }
    }

    pub(super) fn closed(self) -> Life {
        match self {
            Life::Opening(_) => Life::Closed { inactive_due: false },
            Life::Active(_) => Life::Closed { inactive_due: true },
            closed @ Life::Closed { .. } => closed,
        }
    }

    /// Returns the close mode, if a close was requested and the channel is not closed yet.
    pub(super) fn close_mode(self) -> Option<CloseMode> {
        match self {
            Life::Opening(mode) | Life::Active(mode) => mode,
            Life::Closed { .. } => None,
        }
    }
}

impl Life {
    /// The close mode: 0 for none, and greater numbers for more abrupt ones.
    pub(super) const MODE: u64 = 0b0011;
    pub(super) const GRACEFUL: u64 = 0b0001;
    /// The bit that the modes without a flush share.
    pub(super) const AT_ONCE: u64 = 0b0010;
    /// `active` was called, and `inactive` was not.
    pub(super) const ACTIVE: u64 = 0b0100;
    pub(super) const CLOSED: u64 = 0b1000;
    /// An open channel has none of these.
    pub(super) const NOT_OPEN: u64 = Self::MODE | Self::CLOSED;
}

impl Part for Life {
    const BITS: u64 = 4;
    const SHIFT: u64 = 0;

    fn pack(self) -> u64 {
        let mode = |mode: Option<CloseMode>| match mode {
            None => 0,
            Some(CloseMode::Graceful) => Self::GRACEFUL,
            Some(CloseMode::Now) => Self::AT_ONCE,
            Some(CloseMode::Reset) => Self::MODE,
        };
        match self {
            Life::Opening(how) => mode(how),
            Life::Active(how) => Self::ACTIVE | mode(how),
            Life::Closed { inactive_due } => Self::CLOSED | if inactive_due { Self::ACTIVE } else { 0 },
        }
    }

    fn unpack(bits: u64) -> Self {
        if bits & Self::CLOSED != 0 {
            return Life::Closed { inactive_due: bits & Self::ACTIVE != 0 };
        }
        let mode = match bits & Self::MODE {
            0 => None,
            Self::GRACEFUL => Some(CloseMode::Graceful),
            Self::AT_ONCE => Some(CloseMode::Now),
            _ => Some(CloseMode::Reset),
        };
        if bits & Self::ACTIVE != 0 { Life::Active(mode) } else { Life::Opening(mode) }
    }
}
