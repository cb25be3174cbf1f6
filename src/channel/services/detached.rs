//! Services without a loop, for tests of single components.

use super::LoopServices;
use crate::{
    Error,
    channel::{
        handle::{AnyDelivery, Mail, MailSender},
        outbound::OutboundBudget,
        timers::TimerToken,
    },
    clock::{ManualClock, TimeSource},
    id::Key,
    log_throttle::LogThrottle,
    timer::Wheel,
    worker_pool::WorkerPool,
};
use std::{any::Any, sync::Arc, time::Duration};

/// Refuses all mail, like a loop that has ended.
struct NoLoop;

impl MailSender for NoLoop {
    fn deliver(&self, _: Key, mail: Mail) -> Result<(), (Mail, Error)> {
        Err((mail, Error::Closed))
    }

    fn broadcast(&self, delivery: Box<AnyDelivery>) -> Result<(), (Box<AnyDelivery>, Error)> {
        Err((delivery, Error::Closed))
    }

    fn now(&self) -> u64 {
        0
    }

    fn in_event_loop(&self) -> bool {
        true
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

impl LoopServices {
    /// Services with a manual clock, a wheel of this tick and no limits.
    pub(crate) fn detached(tick: Duration) -> Self {
        LoopServices::new(
            TimeSource::new(Arc::new(ManualClock::new())),
            Wheel::<TimerToken>::builder().tick(tick).build().expect("the tick is valid"),
            Arc::new(NoLoop),
            Arc::default(),
            Arc::new(LogThrottle::new("test")),
            OutboundBudget::unlimited(),
            WorkerPool::by_hand(),
        )
    }
}
