//! Idle events, lazy re-arming and touches do not allocate.

use crate::{heap, own_process};
use bytes::Bytes;
use netwheel::{codec::RawBytes, prelude::*, testing::EmbeddedChannel};
use std::{cell::Cell, rc::Rc, time::Duration};

const EVENTS: u64 = 10_000;

struct Counts(Rc<Cell<u64>>);

impl Handler for Counts {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> Result {
        Ok(())
    }

    fn idle(&mut self, ctx: &mut Context<'_, Self>, _: IdleEvent) -> Result {
        self.0.set(self.0.get() + 1);
        if self.0.get().is_multiple_of(3) {
            ctx.reset_idle();
        }
        Ok(())
    }
}

#[test]
fn idle_events_allocate_nothing() {
    own_process!();
    let second = Duration::from_secs(1);
    let timeouts = IdleTimeouts::new().reader(second).writer(2 * second).jitter(second / 10);
    let events = Rc::new(Cell::new(0));
    let pipeline = Pipeline::codec(RawBytes).idle(timeouts).handler(Counts(events.clone()));
    let mut channel =
        EmbeddedChannel::builder(pipeline).wheel_tick(Duration::from_millis(10)).build().unwrap();
    let mut until = |events_in_all: u64| {
        while events.get() < events_in_all {
            channel.advance(second / 4);
        }
    };
    // The wheel allocates an upper level once, when a deadline first lies beyond 512 and 512²
    // ticks.
    until(5_000);
    let before = heap::total_blocks();
    until(5_000 + EVENTS);
    assert_eq!(heap::total_blocks() - before, 0, "blocks in {EVENTS} events");
}
