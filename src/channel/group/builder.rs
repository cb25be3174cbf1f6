//! The settings of a channel group.
//!
//! Invariant: every setting of a group is within its range.

use super::{ChannelGroup, waiting::WaitingDeliveries};
use crate::{error::Result, settings::check_range};
use std::{fmt, marker::PhantomData};

/// The default of `max_waiting`. Loops that keep up have far fewer broadcasts waiting. Besides the
/// messages, this number takes a few MiB.
pub(super) const DEFAULT_MAX_WAITING: usize = 16_384;

/// The default of `max_waiting_deliveries`. A loop makes this number of deliveries in a few tenths
/// of a second, and the lists of their members take at most 8 MiB.
pub(super) const DEFAULT_MAX_WAITING_DELIVERIES: usize = 1 << 20;

/// A builder for a [`ChannelGroup`], created by [`ChannelGroup::builder`].
///
/// | setting | default | range |
/// |---|---|---|
/// | `max_waiting` | 16,384 broadcasts | 1 or more |
/// | `max_waiting_deliveries` | 1,048,576 deliveries | 1 or more |
/// | `stay_closed` | off | |
/// | `bulk` | off | |
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
    bulk: bool,
    message: PhantomData<fn(M)>,
}

impl<M: 'static> ChannelGroupBuilder<M> {
    pub(super) fn new() -> Self {
        ChannelGroupBuilder {
            max_waiting: DEFAULT_MAX_WAITING,
            max_waiting_deliveries: DEFAULT_MAX_WAITING_DELIVERIES,
            stay_closed: false,
            bulk: false,
            message: PhantomData,
        }
    }

    /// Sets the limit of waiting broadcasts of the group: accepted, but not yet delivered to all
    /// members. The default is 16,384. Each of them keeps its message, and a list of its members
    /// unless the membership is unchanged.
    pub fn max_waiting(mut self, broadcasts: usize) -> Self {
        self.max_waiting = broadcasts;
        self
    }

    /// Sets the limit of waiting deliveries: the sum, over the waiting broadcasts, of the members
    /// that a broadcast has not reached yet. The default is 1,048,576.
    ///
    /// Bounds how far a sender can get ahead of the members' loops, in large groups too, and the
    /// memory for lists of members. Below the limit a broadcast is accepted, however many
    /// recipients it has.
    pub fn max_waiting_deliveries(mut self, deliveries: usize) -> Self {
        self.max_waiting_deliveries = deliveries;
        self
    }

    /// Sets whether a closed group stays closed, so that a channel that joins later is closed
    /// immediately. Off by default.
    pub fn stay_closed(mut self, on: bool) -> Self {
        self.stay_closed = on;
        self
    }

    /// Sets whether overloaded loops refuse broadcasts of this group
    /// ([`Work::Bulk`](crate::admission::Work::Bulk)). Off by default. Use it for messages that
    /// members can miss, such as typing notices or statistics.
    ///
    /// Members on a loop that refuses a broadcast do not receive it, and count as
    /// [`Broadcast::unreached`](super::Broadcast::unreached). If all loops refuse it, the message
    /// is returned with [`Error::Overloaded`](crate::Error::Overloaded).
    pub fn bulk(mut self, on: bool) -> Self {
        self.bulk = on;
        self
    }

    /// Builds an empty group.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if a setting is out of range.
    pub fn build(self) -> Result<ChannelGroup<M>> {
        check_range("max_waiting", self.max_waiting, 1.., "1 broadcast or more")?;
        check_range("max_waiting_deliveries", self.max_waiting_deliveries, 1.., "1 delivery or more")?;
        let waiting = WaitingDeliveries::new(self.max_waiting, self.max_waiting_deliveries);
        Ok(ChannelGroup::with(waiting, self.stay_closed, self.bulk))
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
            .field("bulk", &self.bulk)
            .finish()
    }
}
