//! The cost per hour of 20,000 channels with idle timeouts, measured by counting.

use crate::{
    buffer::OutboundBuffer,
    channel::{ChannelCore, ChannelOptions, IdleTimeouts, LoopServices, Pipeline},
    id::{ChannelId, Key},
    pipeline::{Codec, Context, Handler},
};
use bytes::Bytes;
use std::{cell::Cell, rc::Rc, sync::Arc, time::Duration};

const CHANNELS: u32 = 20_000;
const SECOND: u64 = 1_000_000_000;
const TIMEOUT: u64 = 60 * SECOND;
const HOUR: u64 = 3600 * SECOND;

struct Counts(Rc<Cell<u64>>);

impl Handler for Counts {
    type Read = Bytes;
    type Write = Bytes;

    fn read(&mut self, _: &mut Context<'_, Self>, _: Bytes) -> crate::error::Result {
        Ok(())
    }

    fn idle(&mut self, _: &mut Context<'_, Self>, _: crate::channel::IdleEvent) -> crate::error::Result {
        self.0.set(self.0.get() + 1);
        Ok(())
    }
}

/// A codec that passes bytes through.
struct Plain;

impl Codec for Plain {
    type Read = Bytes;
    type Write = Bytes;

    fn decode(&mut self, input: &mut Bytes) -> crate::error::Result<Option<Bytes>> {
        Ok(Some(std::mem::take(input)))
    }

    fn encode(&mut self, message: Bytes, output: &mut OutboundBuffer) -> crate::error::Result {
        output.put_slice(&message);
        Ok(())
    }
}

#[test]
fn an_hour_of_many_channels_visits_each_once_a_minute() {
    let mut services = LoopServices::detached(Duration::from_millis(100));
    let config = Arc::new(ChannelOptions::new().build().unwrap());
    let idle = IdleTimeouts::new().reader(Duration::from_nanos(TIMEOUT));
    let events = Rc::new(Cell::new(0));
    let mut channels: Vec<ChannelCore> = (0..CHANNELS)
        .map(|index| {
            // The channels open over a minute.
            services.now = TIMEOUT * u64::from(index) / u64::from(CHANNELS);
            let id = ChannelId { event_loop: 0, key: Key { index, generation: 0 } };
            let pipeline = Pipeline::codec(Plain).idle(idle).handler(Counts(events.clone()));
            let mut core = ChannelCore::new(id, config.clone(), pipeline.into(), (None, None), &mut services);
            core.handle_active(&mut services);
            core
        })
        .collect();
    assert_eq!(services.wheel.len(), CHANNELS as usize, "one entry per channel");
    let begun = services.now;
    let (mut visits, mut wakes, mut last) = (0u64, 0u64, 0);
    // The first half of the channels is quiet. Each of the others gets a byte every second, which
    // is only a store and does not touch the wheel.
    while let Some(next) = services.wheel.next_expiry().filter(|next| *next <= begun + HOUR) {
        // Moving entries within the wheel does not count as a wakeup.
        wakes += u64::from(next > last);
        (services.now, last) = (next, next);
        while let Some(token) = services.wheel.expire(next) {
            visits += 1;
            let core = &mut channels[token.index() as usize];
            if token.index() >= CHANNELS / 2 {
                core.state.inbound.note_unread(next - next % SECOND);
            }
            core.handle_timer(&mut services, token.timer());
        }
    }
    let each = u64::from(CHANNELS);
    assert!(visits <= each * 62, "{visits} visits: about one per minute for each channel");
    assert!(
        (each / 2 * 59..=each / 2 * 60).contains(&events.get()),
        "{} events of the quiet half",
        events.get()
    );
    assert!(wakes <= 36_001, "{wakes} wakeups: at most one per tick");
    assert_eq!(services.wheel.len(), CHANNELS as usize, "still one entry per channel");
}
