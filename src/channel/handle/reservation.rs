//! The weight of a message from a handle, from before it is queued.
//!
//! Invariant: a reservation ends in exactly one way. Either the message was queued, and the loop
//! takes its weight with the message. Or the reservation is dropped, which gives the weight back,
//! and requests a check of the loop if nothing else may be waiting during a pause.
//!
//! A queued message is dropped without being taken only if its channel is gone. A broadcast is not
//! queued for the channel but for its loop, so its reservations travel with it.

use super::{mail::Mail, shared::ChannelShared};
use crate::{error::Result, sync::ReservedWeight};
use std::{ops::Deref, sync::Arc};

/// The reserved weight of a message that is not queued yet.
#[must_use = "dropping it gives the weight back"]
pub(in crate::channel) struct Reservation<S: Deref<Target = ChannelShared>> {
    shared: S,
    /// `None` once the message was queued or taken.
    reserved: Option<ReservedWeight>,
}

/// The reservation of a broadcast at one member.
pub(in crate::channel) type MemberReservation = Reservation<Arc<ChannelShared>>;

impl<S: Deref<Target = ChannelShared>> Reservation<S> {
    /// Reserves the weight of a message of this size, and returns it to be queued with the message.
    ///
    /// # Errors
    /// [`Error::Full`](crate::Error::Full) if the channel has no room for the message.
    #[inline]
    pub(super) fn new(shared: S, size: Option<usize>, permit: bool) -> Result<(Self, ReservedWeight)> {
        let reserved = shared.producers.reserve(size, permit)?;
        Ok((Reservation { shared, reserved: Some(reserved) }, reserved))
    }

    /// Ends the reservation because the loop has the message, and takes the weight with it.
    #[inline]
    pub(in crate::channel) fn hand_over(mut self) -> Option<ReservedWeight> {
        self.reserved.take()
    }
}

#[cfg(test)]
impl MemberReservation {
    /// Reserves this weight.
    pub(in crate::channel) fn of<M>(channel: &super::channel::Channel<M>, weight: u32) -> Self {
        let size = weight as usize - crate::buffer::ENTRY_OVERHEAD;
        Reservation::new(channel.shared_arc(), Some(size), true).expect("a permit").0
    }

    pub(in crate::channel) fn weight(&self) -> Option<u32> {
        self.reserved.map(|reserved| reserved.weight)
    }
}

impl<S: Deref<Target = ChannelShared>> Drop for Reservation<S> {
    #[inline]
    fn drop(&mut self) {
        if let Some(reserved) = self.reserved.take() {
            give_back(&self.shared, reserved);
        }
    }
}

#[cold]
fn give_back(shared: &ChannelShared, reserved: ReservedWeight) {
    // Nobody waits for the output of a channel that has closed. One that only refuses the messages
    // of handles still writes, and may not read until it is writable.
    if shared.producers.release(reserved.weight) && shared.is_open() {
        // If the loop has ended, so has the channel.
        drop(shared.sender.deliver(shared.id.key, Mail::CheckOutput));
    }
}

#[cfg(test)]
mod tests {
    use super::super::{MailSender, channel::Channel, delivery::Delivery, pipeline_types::SizeHint};
    use super::*;
    use crate::{
        buffer::WaterMark,
        channel::config::ChannelOptions,
        clock::TimeSource,
        error::{Error, Resource},
        id::{ChannelId, Key},
    };
    use std::sync::{
        Mutex, OnceLock, Weak,
        atomic::{AtomicBool, Ordering::SeqCst},
    };

    /// A loop that handles mail before its sender goes on, and whose peer accepts everything.
    #[derive(Default)]
    struct QuickLoop {
        shared: OnceLock<Weak<ChannelShared>>,
        /// Another producer asks during each submission, which the loop then refuses.
        refuses: AtomicBool,
        /// The pipeline ends its connection during each submission that the loop refuses.
        ends: AtomicBool,
        /// The weight of an encoded message.
        encoded: usize,
        /// The changes of which the handler was notified.
        changes: Mutex<Vec<bool>>,
    }

    impl QuickLoop {
        fn update(&self, shared: &ChannelShared, buffered: usize) {
            let mut changes = self.changes.lock().unwrap();
            while !shared.producers.is_settled(buffered) {
                let was = changes.last().copied().unwrap_or(true);
                let is = shared.update(buffered, WaterMark::default(), was);
                if is == was {
                    return;
                }
                changes.push(is);
            }
        }
    }

    impl MailSender for QuickLoop {
        fn deliver(&self, _: Key, mail: Mail) -> Result<(), (Mail, Error)> {
            let shared = self.shared.get().and_then(Weak::upgrade).expect("the channel is there");
            match mail {
                Mail::Message(..) if self.refuses.load(SeqCst) => {
                    assert!(!shared.producers.is_writable(), "the reservation pauses the others");
                    if self.ends.load(SeqCst) {
                        self.update(&shared, 0);
                        shared.set_output_ended();
                    }
                    return Err((mail, Error::Full { resource: Resource::LoopQueue, limit: 1 }));
                }
                Mail::Message(_, reserved) => {
                    shared.producers.take(reserved.weight);
                    self.update(&shared, self.encoded);
                    self.update(&shared, 0);
                }
                Mail::CheckOutput => {
                    shared.producers.checked();
                    self.update(&shared, 0);
                }
                _ => unreachable!("nothing else is sent"),
            }
            Ok(())
        }

        fn broadcast(&self, delivery: Box<Delivery>) -> Result<(), (Box<Delivery>, Error)> {
            Err((delivery, Error::Closed))
        }

        fn deliver_quietly(&self, _: Key, _: Mail) {}

        fn time(&self) -> &TimeSource {
            unreachable!("writes do not look at the clock")
        }

        fn in_event_loop(&self) -> bool {
            false
        }
    }

    /// A channel whose messages have this estimated size and, encoded, this weight.
    fn channel(size_hint: SizeHint, encoded: usize) -> (Channel<Vec<u8>>, Arc<QuickLoop>) {
        let event_loop = Arc::new(QuickLoop { encoded, ..QuickLoop::default() });
        let config = ChannelOptions::new().build().expect("the defaults are valid");
        let id = ChannelId { event_loop: 0, key: Key { index: 0, generation: 0 } };
        let shared = ChannelShared::new(id, event_loop.clone(), (None, None), &config, size_hint, None);
        let shared = Arc::new(shared);
        event_loop.shared.set(Arc::downgrade(&shared)).expect("set once");
        (Channel::new(shared), event_loop)
    }

    #[test]
    fn a_message_of_unknown_size_leaves_no_pause_behind_a_quick_loop() {
        let (channel, event_loop) = channel(|_| None, 109);
        for _ in 0..3 {
            channel.write(vec![0; 13]).expect("the channel is open");
            assert!(channel.is_writable(), "nothing waits");
        }
        assert!(event_loop.changes.lock().unwrap().is_empty(), "nobody has seen a pause");
    }

    #[test]
    fn the_handler_of_a_quick_loop_is_notified_of_a_message_above_the_mark() {
        for hint in [(|_| Some(100_000)) as SizeHint, |_| None] {
            let (channel, event_loop) = channel(hint, 100_000);
            channel.write(vec![0; 100_000]).expect("the channel is open");
            assert!(channel.is_writable(), "it was sent");
            assert_eq!(*event_loop.changes.lock().unwrap(), [false, true]);
        }
    }

    #[test]
    fn a_producer_that_saw_the_pause_of_a_refused_message_is_notified() {
        let (channel, event_loop) = channel(|_| Some(100_000), 100_000);
        event_loop.refuses.store(true, SeqCst);
        for _ in 0..2 {
            let refused = channel.write(vec![0; 100_000]).expect_err("the queue is full");
            assert_eq!(refused.into_inner().len(), 100_000);
            assert!(channel.is_writable(), "nothing waits");
        }
        assert_eq!(*event_loop.changes.lock().unwrap(), [false, true, false, true]);
    }

    /// The handler writes on, and the channel may not read before the handler is notified.
    #[test]
    fn the_handler_of_a_channel_that_refuses_handles_is_notified_of_the_end_of_a_pause() {
        let (channel, event_loop) = channel(|_| Some(100_000), 100_000);
        event_loop.refuses.store(true, SeqCst);
        event_loop.ends.store(true, SeqCst);
        channel.write(vec![0; 100_000]).expect_err("the queue is full");
        assert_eq!(*event_loop.changes.lock().unwrap(), [false, true]);
    }
}
