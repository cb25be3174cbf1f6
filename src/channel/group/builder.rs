//! The settings of a channel group.
//!
//! Invariant: every setting of a group is within its range.

use super::{ChannelGroup, waiting::WaitingDeliveries};
use crate::{Error, Result};
use std::{fmt, marker::PhantomData};

/// Broadcasts that may wait unless `max_waiting` says otherwise: far more than loops that keep up have, and, besides the
/// messages, a few MiB.
pub(super) const DEFAULT_MAX_WAITING: usize = 16_384;

/// Deliveries that may wait unless `max_waiting_deliveries` says otherwise: a loop makes them in a few tenths of a second,
/// and the lists of their members take 8 MiB at most.
pub(super) const DEFAULT_MAX_WAITING_DELIVERIES: usize = 1 << 20;

/// Settings of a [`ChannelGroup`]; from [`ChannelGroup::builder`].
///
/// | setting | default | range |
/// |---|---|---|
/// | `max_waiting` | 16,384 broadcasts | 1 or more |
/// | `max_waiting_deliveries` | 1,048,576 deliveries | 1 or more |
/// | `stay_closed` | off | |
///
/// ```
/// use netwheel::ChannelGroup;
///
/// let lobby: ChannelGroup<String> = ChannelGroup::builder().max_waiting(100).stay_closed(true).build()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
pub struct ChannelGroupBuilder<M> {
    max_waiting: usize,
    max_waiting_deliveries: usize,
    stay_closed: bool,
    message: PhantomData<fn(M)>,
}

impl<M: 'static> ChannelGroupBuilder<M> {
    pub(super) fn new() -> Self {
        ChannelGroupBuilder {
            max_waiting: DEFAULT_MAX_WAITING,
            max_waiting_deliveries: DEFAULT_MAX_WAITING_DELIVERIES,
            stay_closed: false,
            message: PhantomData,
        }
    }

    /// Broadcasts of the group that may wait: that were taken, and have not come to all members yet. Each of them keeps its
    /// message, and the list of its members if that is another one than before.
    pub fn max_waiting(mut self, broadcasts: usize) -> Self {
        self.max_waiting = broadcasts;
        self
    }

    /// Sets the limit of deliveries that may wait: the members that waiting broadcasts have not come to yet, added up. The
    /// default is 1,048,576.
    ///
    /// Bounds how far a sender that is faster than the members' loops can get ahead of them, in large groups too, and the
    /// memory for lists of members. While fewer wait a broadcast is accepted, however many members it is for.
    pub fn max_waiting_deliveries(mut self, deliveries: usize) -> Self {
        self.max_waiting_deliveries = deliveries;
        self
    }

    /// Whether a group that was closed stays so: then a channel that joins later is closed at once.
    pub fn stay_closed(mut self, on: bool) -> Self {
        self.stay_closed = on;
        self
    }

    /// The group, empty.
    ///
    /// # Errors
    /// If a setting is out of its range.
    pub fn build(self) -> Result<ChannelGroup<M>> {
        if self.max_waiting == 0 {
            return Err(Error::setting("max_waiting", 0, "1 broadcast or more"));
        }
        if self.max_waiting_deliveries == 0 {
            return Err(Error::setting("max_waiting_deliveries", 0, "1 delivery or more"));
        }
        let waiting = WaitingDeliveries::new(self.max_waiting, self.max_waiting_deliveries);
        Ok(ChannelGroup::with(waiting, self.stay_closed))
    }
}

impl<M> Clone for ChannelGroupBuilder<M> {
    fn clone(&self) -> Self {
        ChannelGroupBuilder { message: PhantomData, ..*self }
    }
}

impl<M> fmt::Debug for ChannelGroupBuilder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelGroupBuilder")
            .field("max_waiting", &self.max_waiting)
            .field("max_waiting_deliveries", &self.max_waiting_deliveries)
            .field("stay_closed", &self.stay_closed)
            .finish()
    }
}
