//! The two halves of a channel's stream, the requested reads, and failures to decode.

use super::Part;

/// The half that the peer writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputHalf {
    Open,
    /// The peer has ended its stream, and the handler was notified.
    Ended,
}

/// The half that this end writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OutputHalf {
    Open,
    /// Ends after the outbound buffer was sent. Writes fail from here on.
    Ending,
    /// The end of the stream was sent to the peer.
    Ended,
}

/// The messages that a requested read may still deliver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ReadGrant {
    None,
    /// One message.
    One,
    /// The messages of the bytes that are being decoded.
    All,
}

/// The number of queued messages that have failed one after the other, after a first failure, while
/// no byte was consumed and no message delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct QueuedFailures(pub(super) u16);

impl QueuedFailures {
    pub(super) const MOST: u16 = (1 << Self::BITS) - 1;
}

impl Part for QueuedFailures {
    const BITS: u64 = 10;
    const SHIFT: u64 = 39;

    fn pack(self) -> u64 {
        self.0.into()
    }

    fn unpack(bits: u64) -> Self {
        QueuedFailures(bits as u16)
    }
}

impl OutputHalf {
    pub(super) const ENDING: u64 = 1 << Self::SHIFT;
}

impl Part for InputHalf {
    const BITS: u64 = 1;
    const SHIFT: u64 = 4;

    fn pack(self) -> u64 {
        u64::from(self == InputHalf::Ended)
    }

    fn unpack(bits: u64) -> Self {
        if bits == 0 { InputHalf::Open } else { InputHalf::Ended }
    }
}

impl Part for OutputHalf {
    const BITS: u64 = 2;
    const SHIFT: u64 = 5;

    fn pack(self) -> u64 {
        match self {
            OutputHalf::Open => 0,
            OutputHalf::Ending => 1,
            OutputHalf::Ended => 2,
        }
    }

    fn unpack(bits: u64) -> Self {
        match bits {
            0 => OutputHalf::Open,
            1 => OutputHalf::Ending,
            _ => OutputHalf::Ended,
        }
    }
}

impl Part for ReadGrant {
    const BITS: u64 = 2;
    const SHIFT: u64 = 7;

    fn pack(self) -> u64 {
        match self {
            ReadGrant::None => 0,
            ReadGrant::One => 1,
            ReadGrant::All => 2,
        }
    }

    fn unpack(bits: u64) -> Self {
        match bits {
            0 => ReadGrant::None,
            1 => ReadGrant::One,
            _ => ReadGrant::All,
        }
    }
}
