//! A poll as a script uses it.

use super::backend::{Backend, Side};
use crate::{
    channel::driver::Ready,
    event_loop::{PollWaker, Selector, WakeCause, simulated_ready},
};
use std::time::Duration;

pub(super) struct Watcher {
    pub(super) selector: Selector,
    pub(super) waker: PollWaker,
}

impl Watcher {
    pub(super) fn new(backend: &Backend) -> Self {
        let _entered = backend.enter(Side::Server);
        let (selector, waker) = Selector::new().expect("a poll opens");
        if let (Backend::Model(model), Some(poll)) = (backend, selector.simulated()) {
            // The world lets a loop run when its poll has events. This one stands for the script.
            let mut world = model.shared.lock();
            let owner = world.add_loop(0);
            world.own_poll(poll, owner);
        }
        Watcher { selector, waker }
    }

    /// Waits for events. Returns the cause, and each event with its token.
    pub(super) fn poll(
        &mut self,
        backend: &Backend,
        timeout: Duration,
    ) -> (Option<WakeCause>, Vec<(usize, Ready)>) {
        let (Backend::Model(model), Some(poll)) = (backend, self.selector.simulated()) else {
            let cause = self.selector.poll(Some(timeout)).expect("the poll works");
            let events = self.selector.take_events();
            let ready = Selector::ready_sources(&events).collect();
            self.selector.put_events(events);
            return (cause, ready);
        };
        let end = model.shared.lock().now().saturating_add(crate::clock::nanos(timeout));
        let mut events = Vec::new();
        loop {
            let (is_woken, now) = {
                let mut world = model.shared.lock();
                (world.take_events(poll, &mut events), world.now())
            };
            let ready: Vec<_> = events.iter().map(|event| (event.token, simulated_ready(event))).collect();
            if !ready.is_empty() {
                return (Some(WakeCause::Io), ready);
            }
            if is_woken {
                return (Some(WakeCause::Waker), ready);
            }
            if !model.advance(Duration::from_nanos(end.saturating_sub(now))) {
                return (timeout.is_zero().then_some(WakeCause::NotAsleep), ready);
            }
        }
    }
}
