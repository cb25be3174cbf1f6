//! Wakes the filters of a channel from any thread.

use crate::{
    channel::{Mail, handle::MailSender},
    id::Key,
};
use std::{fmt, sync::Arc};

/// Makes the channel's loop call [`Filter::read`](super::Filter::read) again, from any thread.
///
/// A filter in the state [`Waiting`](super::FilterState::Waiting) gets it from
/// [`FilterContext::waker`](super::FilterContext::waker) and passes it to the thread that works for
/// it. A wake before the filter waits is not lost. A channel that is gone ignores it.
#[derive(Clone)]
pub struct FilterWaker {
    pub(super) sender: Arc<dyn MailSender>,
    pub(super) channel: Key,
}

impl FilterWaker {
    /// Schedules a call of the filters' `read`, with the input that was not consumed, even if it is
    /// empty.
    pub fn wake(&self) {
        // A loop that has ended has closed the channel.
        drop(self.sender.deliver(self.channel, Mail::WakeFilters));
    }
}

impl fmt::Debug for FilterWaker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilterWaker").finish_non_exhaustive()
    }
}
