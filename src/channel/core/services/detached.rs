//! Services without a loop, for tests of single components.

use super::LoopServices;
use crate::{
    channel::{Delivery, Mail, TimerToken, budget::OutboundBudget, handle::MailSender},
    clock::{ManualClock, TimeSource},
    error::Error,
    id::Key,
    log_throttle::LogThrottle,
    timer::Wheel,
    worker_pool::WorkerPool,
};
use std::{sync::Arc, time::Duration};

/// Refuses all mail, like a loop that has ended.
struct NoLoop(TimeSource);

impl MailSender for NoLoop {
    fn deliver(&self, _: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        Err((mail, Error::Closed))
    }

    fn deliver_quietly(&self, _: Key, _: Mail) {}

    fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)> {
        Err((delivery, Error::Closed))
    }

    fn time(&self) -> &TimeSource {
        &self.0
    }

    fn in_event_loop(&self) -> bool {
        true
    }
}

impl LoopServices {
    /// Returns a sender that refuses all mail.
    #[cfg(all(test, feature = "tls"))]
    pub(crate) fn refusing_sender() -> Arc<dyn MailSender> {
        Arc::new(NoLoop(TimeSource::new(Arc::new(ManualClock::new()))))
    }

    /// Services with a manual clock, a wheel of this tick and no limits.
    pub(crate) fn detached(tick: Duration) -> Self {
        let time = TimeSource::new(Arc::new(ManualClock::new()));
        LoopServices::new(
            time.clone(),
            Wheel::<TimerToken>::builder().tick(tick).build().expect("the tick is valid"),
            Arc::new(NoLoop(time)),
            Arc::default(),
            Arc::new(LogThrottle::new("test")),
            OutboundBudget::unlimited(),
            WorkerPool::by_hand(),
        )
    }
}
