//! The slots of a loop: everything that its poll watches, by key.
//!
//! Invariants: a key never names two sources, because its generation grows when the slot is
//! released. So events and mail for a source that is gone are recognised and dropped. A source
//! takes twelve bytes in addition to its own size, and a free slot takes sixteen. The list of
//! lingering sockets names the slots that hold one. Nothing else changes that list. Runs on the
//! loop's thread.

mod channel;
mod lingering;

pub(crate) use channel::ChannelSlot;
pub(crate) use lingering::LingeringSlot;

use super::{closing::LingeringSocket, source::Source};
use crate::{
    buffer::RECEIVE_SIZE,
    channel::{ChannelShared, TimerToken},
    error::{Error, Resource, Result},
    id::Key,
};
use lingering::LingeringOrder;
use std::sync::Arc;

/// A source in its slot. Channels are the hot path, so they are stored and called without
/// indirection. All other sources are rare, and must not make slots larger than that of a channel.
#[expect(clippy::large_enum_variant, reason = "the slot is boxed as a whole")]
pub(crate) enum Slot {
    Channel(ChannelSlot),
    /// Created by [`Sources::linger`] only, which counts it.
    Lingering(LingeringSlot),
    Other(Box<dyn Source>),
}

impl Slot {
    /// Returns the source, for calls that are not on the hot path of channels.
    pub(crate) fn as_source(&mut self) -> &mut dyn Source {
        match self {
            Slot::Channel(channel) => channel,
            Slot::Lingering(slot) => slot.source(),
            Slot::Other(source) => &mut **source,
        }
    }

    /// Returns the state that a channel shares with its handles, if it has handles.
    pub(crate) fn shared_channel(&self) -> Option<Arc<ChannelShared>> {
        match self {
            Slot::Channel(slot) => slot.driver.core.state.shared.get().cloned(),
            Slot::Lingering(_) | Slot::Other(_) => None,
        }
    }
}

pub(crate) struct Sources {
    /// All slots, including empty ones.
    slots: Vec<Option<Box<Slot>>>,
    /// For each slot, how often it was released.
    generations: Vec<u32>,
    /// The indices of empty slots. The last one released is reused first. A free list inside the
    /// slots would take a word of each slot, whether used or not.
    free: Vec<u32>,
    /// The slots that hold lingering sockets.
    lingering: LingeringOrder,
}

const _: () = assert!(RECEIVE_SIZE <= u32::MAX as usize);

impl Sources {
    pub(crate) fn new() -> Self {
        Sources {
            slots: Vec::new(),
            generations: Vec::new(),
            free: Vec::new(),
            lingering: LingeringOrder::default(),
        }
    }

    /// Returns the key of the next source.
    ///
    /// # Errors
    /// [`Error::Full`] if there are more sources than keys can distinguish.
    pub(crate) fn next_key(&self) -> Result<Key> {
        let index = self.free.last().map_or(self.slots.len(), |index| *index as usize);
        if index as u64 > Key::MAX_INDEX.min(u64::from(u32::MAX)) {
            let limit = usize::try_from(Key::MAX_INDEX).unwrap_or(usize::MAX);
            return Err(Error::Full { resource: Resource::Sockets, limit });
        }
        let generation = self.generations.get(index).copied().unwrap_or(0);
        Ok(Key { index: index as u32, generation })
    }

    /// Puts a source into the slot that [`Sources::next_key`] returned.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let slot = Some(Box::new(slot));
        match self.free.pop() {
            Some(index) => self.slots[index as usize] = slot,
            None => {
                self.slots.push(slot);
                self.generations.push(0);
            }
        }
    }

    /// Replaces a source. The key does not change.
    pub(crate) fn replace(&mut self, key: Key, slot: Slot) -> Option<Slot> {
        let old = self.get(key)?;
        let old = std::mem::replace(old, slot);
        self.lingering.left(&old);
        Some(old)
    }

    /// Replaces a channel by its socket, which lingers. The key does not change. Returns `None`,
    /// and drops the socket, if the slot is free.
    pub(crate) fn linger(&mut self, key: Key, socket: Box<LingeringSocket>) -> Option<Slot> {
        self.get(key)?;
        let slot = self.lingering.begin(key, socket);
        self.replace(key, Slot::Lingering(slot))
    }

    /// Returns the number of lingering sockets.
    pub(crate) fn lingering(&self) -> usize {
        self.lingering.len()
    }

    /// Returns the key of the socket that began to linger first.
    pub(crate) fn oldest_lingering(&self) -> Option<Key> {
        self.lingering.oldest()
    }

    #[inline]
    pub(crate) fn remove(&mut self, key: Key) -> Option<Box<Slot>> {
        self.get(key)?;
        let slot = self.slots[key.index as usize].take()?;
        self.generations[key.index as usize] = key.generation.wrapping_add(1);
        self.free.push(key.index);
        self.lingering.left(&slot);
        Some(slot)
    }

    #[inline]
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Slot> {
        if self.generations.get(key.index as usize) != Some(&key.generation) {
            return None;
        }
        self.slots.get_mut(key.index as usize)?.as_deref_mut()
    }

    #[inline]
    pub(crate) fn channel(&mut self, key: Key) -> Option<&mut ChannelSlot> {
        match self.get(key)? {
            Slot::Channel(slot) => Some(slot),
            _ => None,
        }
    }

    /// Returns the source that an event is for, or `None` if it is gone.
    #[inline]
    pub(crate) fn by_token(&mut self, token: usize) -> Option<(Key, &mut Slot)> {
        let key = self.key_at(Key::index_of(token))?;
        if !key.matches(token) {
            return None;
        }
        self.slots.get_mut(key.index as usize)?.as_deref_mut().map(|slot| (key, slot))
    }

    /// Returns the source that a timer belongs to, or `None` if it is gone.
    pub(crate) fn by_timer_token(&mut self, token: TimerToken) -> Option<(Key, &mut Slot)> {
        let key = self.key_at(token.index())?;
        if !token.is_for(key) {
            return None;
        }
        self.slots.get_mut(key.index as usize)?.as_deref_mut().map(|slot| (key, slot))
    }

    /// Returns the key of the current or last source in a slot.
    #[inline]
    fn key_at(&self, index: u32) -> Option<Key> {
        let generation = *self.generations.get(index as usize)?;
        Some(Key { index, generation })
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let used =
            self.slots.iter().zip(&self.generations).enumerate().filter(|(_, (slot, _))| slot.is_some());
        used.map(|(index, (_, generation))| Key { index: index as u32, generation: *generation }).collect()
    }

    /// Returns all sources.
    pub(crate) fn slots(&self) -> impl Iterator<Item = &Slot> {
        self.slots.iter().filter_map(|slot| slot.as_deref())
    }

    /// Returns whether there is a source with this key.
    #[cfg(feature = "simulation")]
    pub(crate) fn has(&self, key: Key) -> bool {
        self.key_at(key.index) == Some(key) && self.slots[key.index as usize].is_some()
    }

    /// Returns whether there is a source that a timer belongs to.
    #[cfg(feature = "simulation")]
    pub(crate) fn has_timer_owner(&self, token: TimerToken) -> bool {
        self.key_at(token.index()).is_some_and(|key| token.is_for(key) && self.has(key))
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{ChannelCore, ChannelState, Watch};
    use std::mem::size_of;

    /// The minimum memory of each connection, even if it is idle. Allocators round sizes up to 16
    /// bytes, so an extra word may cost nothing or two words. If this fails, move fields that few
    /// channels need into an `Option<Box<..>>`, like the existing ones in `ChannelState`, and
    /// measure the total cost of a connection with `tests/system/rss.rs`. Raise the bounds only for
    /// fields that every channel always needs.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_channel_stays_small() {
        let (state, core, slot) = (size_of::<ChannelState>(), size_of::<ChannelCore>(), size_of::<Slot>());
        assert!(state <= 176, "ChannelState: {state} bytes");
        // The pipeline, a fat pointer.
        assert_eq!(core - state, 2 * size_of::<usize>());
        // One allocation: 224 bytes with a header of 8. With debug assertions, sockets of mio are
        // two words larger.
        assert!(slot <= 216 + 16 * usize::from(cfg!(debug_assertions)), "Slot: {slot} bytes");
        // 80 bytes with its header.
        assert!(size_of::<Watch>() <= 64);
        assert_eq!(size_of::<ChannelSlot>(), slot, "no other kind of source may be larger than a channel");
    }

    /// The size of an idle channel with frames and an idle timeout, as stated in
    /// docs/performance.md for glibc. `tests/system/rss.rs` measures the same in the kernel's count
    /// of pages.
    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn an_idle_channel_has_the_documented_size() {
        // A header of 8 bytes, rounded up to 16.
        let allocated = |size: usize| (size + 8).next_multiple_of(16).max(32);
        // Without the two words of debug assertions, as above.
        let slot = allocated(size_of::<Slot>() - 16 * usize::from(cfg!(debug_assertions)));
        let watch = allocated(size_of::<Watch>());
        let pipeline = allocated(size_of::<crate::codec::LengthField>());
        let entry = 24 + size_of::<TimerToken>();
        let lists = size_of::<Option<Box<Slot>>>() + size_of::<u32>();
        assert_eq!([slot, watch, pipeline, entry, lists], [224, 80, 32, 32, 12]);
    }
}
