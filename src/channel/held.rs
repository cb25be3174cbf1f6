//! What a program still works on, of the bytes that a channel has brought; and the pauses of reading that follow from it.
//!
//! Always holds: above the high mark the channel pauses its reading, below the low mark it goes on, and nobody forgets to wake it:
//! of those who see the sum fall below the low mark one has mail sent, if and only if reading is paused. What the program itself
//! said about reading (`set_auto_read`) is left alone. [`Held`] may be dropped on any thread; pauses happen on the loop.

use super::{
    Scope,
    handle::ChannelShared,
    mail::Mail,
    services::LoopServices,
    state::{ChannelState, Flags},
};
use crate::buffer::WaterMark;
use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

/// So many bytes of a channel's input that the program still works on; given back when this is dropped, on any thread.
///
/// From [`Scope::hold`]. Send it along with the work: to a queue, a database, another channel.
#[must_use = "what is dropped is not held"]
pub struct Held {
    bytes: usize,
    shared: Arc<ChannelShared>,
}

/// The sum of what is held of one channel, and whether that pauses its reading.
#[derive(Debug, Default)]
pub(crate) struct Holding {
    bytes: AtomicUsize,
    paused: AtomicBool,
}

impl Holding {
    /// Adds; whether reading is to pause. On the loop only.
    ///
    /// `SeqCst` here and in `give_back`: each side writes one word and then reads the other's, and one of them has to see
    /// what the other wrote.
    fn add(&self, bytes: usize, mark: WaterMark) -> bool {
        let before = self.bytes.fetch_add(bytes, Ordering::SeqCst);
        if before.saturating_add(bytes) <= mark.high() || self.paused.swap(true, Ordering::SeqCst) {
            return false;
        }
        // What was given back meanwhile found nothing paused, and has told nobody.
        if self.bytes.load(Ordering::SeqCst) < mark.low() {
            return !self.paused.swap(false, Ordering::SeqCst);
        }
        true
    }

    /// Takes away; whether the loop is to be told that reading may go on.
    fn give_back(&self, bytes: usize, mark: WaterMark) -> bool {
        // The sum wraps around, and back again, where a program holds more than there can be.
        let left = self.bytes.fetch_sub(bytes, Ordering::SeqCst).wrapping_sub(bytes);
        left < mark.low() && self.paused.swap(false, Ordering::SeqCst)
    }

    fn is_paused(&self) -> bool {
        self.paused.load(Ordering::SeqCst)
    }
}

impl<M> Scope<'_, M> {
    /// Says that the program will go on working on so many bytes of what this channel brought, until what is returned is
    /// dropped.
    ///
    /// Together with what is held already, if they are more than the high mark of
    /// [`ChannelOptions::inbound_mark`](crate::ChannelOptions::inbound_mark), the channel reads no more: not even the next message of
    /// this very read. It goes on by itself once less than the low mark is held. So a handler that gives its messages to
    /// slower threads takes no more from a peer than these can bear. A [`read`](Scope::read) that the program asks for is made all
    /// the same.
    ///
    /// ```
    /// # use netwheel::prelude::*;
    /// # use bytes::Bytes;
    /// # struct Store(std::sync::mpsc::Sender<(Bytes, netwheel::Held)>);
    /// # impl Handler for Store {
    /// #   type In = Bytes;
    /// #   type Out = Bytes;
    /// fn read(&mut self, ctx: &mut Context<'_, Self>, message: Bytes) -> Result {
    ///     let held = ctx.hold(message.len());
    ///     self.0.send((message, held)).map_err(Error::other) // the thread there drops both when it is done
    /// }
    /// # }
    /// ```
    pub fn hold(&mut self, bytes: usize) -> Held {
        let shared = self.state.share(self.services);
        if shared.holding.add(bytes, self.state.config.inbound_mark) {
            self.state.set(Flags::HELD);
            self.services.tally.reads_held += 1;
        }
        Held { bytes, shared }
    }

    /// Bytes of this channel's input that the program still [holds](Scope::hold).
    pub fn held_bytes(&self) -> usize {
        self.state.shared.as_ref().map_or(0, |shared| shared.holding.bytes.load(Ordering::Relaxed))
    }
}

impl Held {
    /// How many bytes it stands for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let shared = &self.shared;
        if shared.holding.give_back(self.bytes, shared.inbound_mark) {
            // If the loop has ended, so has the channel.
            let _ = shared.outlet.deliver(shared.id.key, Mail::Released);
        }
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").field("channel", &self.shared.id).field("bytes", &self.bytes).finish()
    }
}

impl ChannelState {
    /// Less than the low mark was held when this was sent: reading goes on, unless it was paused anew since.
    pub(crate) fn release(&mut self, services: &mut LoopServices) {
        if self.shared.as_ref().is_some_and(|shared| shared.holding.is_paused()) {
            return;
        }
        self.unset(Flags::HELD);
        self.want_attention(services);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark() -> WaterMark {
        WaterMark::new(10, 20).expect("a mark")
    }

    #[test]
    fn pauses_above_the_high_mark_and_goes_on_below_the_low_one() {
        let holding = Holding::default();
        assert!(!holding.add(20, mark()), "at the mark");
        assert!(holding.add(1, mark()));
        assert!(!holding.add(5, mark()), "paused already");
        assert!(!holding.give_back(16, mark()), "10 are not below 10");
        assert!(holding.give_back(1, mark()));
        assert!(!holding.give_back(9, mark()), "told once");
        assert!(!holding.is_paused());
    }

    #[test]
    fn whatever_the_threads_do_reading_goes_on_in_the_end() {
        for _ in 0..if cfg!(miri) { 3 } else { 200 } {
            let holding = Arc::new(Holding::default());
            let (sender, receiver) = std::sync::mpsc::channel::<usize>();
            let other = {
                let holding = holding.clone();
                std::thread::spawn(move || {
                    receiver.into_iter().filter(|bytes| holding.give_back(*bytes, mark())).count()
                })
            };
            let mut pauses = 0;
            for _ in 0..50 {
                pauses += usize::from(holding.add(7, mark()));
                sender.send(7).expect("the thread is there");
            }
            drop(sender);
            assert_eq!(other.join().expect("no panic"), pauses, "each pause is ended once");
            assert!(!holding.is_paused());
        }
    }
}
