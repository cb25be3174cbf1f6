//! The phases of a filter.

/// The phase of a [`Filter`](super::Filter), which determines the calls that it receives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum FilterState {
    /// Plaintext does not pass yet. Input is passed to the filter as it arrives.
    Handshaking,
    /// Like [`Handshaking`](FilterState::Handshaking), but the filter waits for work on another
    /// thread. Input waits until the filter's [`FilterWaker`](super::FilterWaker) is used.
    Waiting,
    /// Plaintext passes in both directions.
    Established,
    /// The peer has ended its stream in the filter's protocol. Later input from below is ignored;
    /// output is still possible.
    InputEnded,
    /// The filter has done its work and leaves the channel. Bytes that it has not consumed go to
    /// the filter above it, or to the codec. A PROXY header is read by such a filter.
    Finished,
}

impl FilterState {
    /// Returns whether plaintext may pass to the peer.
    pub(super) fn is_established(self) -> bool {
        matches!(self, FilterState::Established | FilterState::InputEnded | FilterState::Finished)
    }
}
