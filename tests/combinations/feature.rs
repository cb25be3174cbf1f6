//! The features of a channel that may meet on one channel.

/// A feature that changes how a channel moves bytes, answers, or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Feature {
    /// A byte filter of the program, on both sides.
    Filter,
    /// TLS, on both sides.
    Tls,
    /// The client announces another address in a PROXY header.
    Proxy,
    /// Two relays forward between the client and the server.
    Relay,
    /// The client's channel comes from a pool, is returned, and is acquired again.
    Pool,
    /// Answers are broadcast to a group of one member, with a condition.
    Broadcast,
    /// Each answer has a key with which a newer message would replace it.
    Conflation,
    /// Each answer is computed by a worker.
    Offload,
    /// Each answer is computed by a future.
    Spawn,
    /// Each answer waits for a scheduled task.
    Schedule,
    /// The server replaces its pipeline in the middle of the conversation.
    ReplacePipeline,
    /// The server reads one message on request.
    AutoReadOff,
    /// The client ends its output first.
    HalfClose,
    /// The server closes while the client still sends.
    Lingering,
    /// The server's channel has traffic limits.
    TrafficShaping,
    /// The loops of the server shut down while answers are outstanding.
    GracefulShutdown,
}

impl Feature {
    pub(crate) const ALL: [Feature; 16] = [
        Feature::Filter,
        Feature::Tls,
        Feature::Proxy,
        Feature::Relay,
        Feature::Pool,
        Feature::Broadcast,
        Feature::Conflation,
        Feature::Offload,
        Feature::Spawn,
        Feature::Schedule,
        Feature::ReplacePipeline,
        Feature::AutoReadOff,
        Feature::HalfClose,
        Feature::Lingering,
        Feature::TrafficShaping,
        Feature::GracefulShutdown,
    ];
}

/// A set of features.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features(u32);

impl Features {
    pub(crate) fn of(features: &[Feature]) -> Self {
        Features(features.iter().fold(0, |bits, &feature| bits | 1 << feature as u32))
    }

    /// Returns every set.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..1 << Feature::ALL.len()).map(Features)
    }

    pub(crate) fn len(self) -> u32 {
        self.0.count_ones()
    }

    pub(crate) fn has(self, feature: Feature) -> bool {
        self.0 & (1 << feature as u32) != 0
    }

    /// Returns whether answers may overtake each other.
    pub(crate) fn may_reorder(self) -> bool {
        self.has(Feature::Offload) || self.has(Feature::Spawn) || self.has(Feature::Schedule)
    }
}

impl std::fmt::Debug for Features {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_set().entries(Feature::ALL.iter().filter(|&&feature| self.has(feature))).finish()
    }
}
