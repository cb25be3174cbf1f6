//! What a loop's poll watches: channels, connections in the making, listeners, event sources of the
//! program's own.
//!
//! Always holds: a key names at most one source for ever, since its generation grows when the slot is given up;
//! so events and mail for a source that is gone are recognised and dropped. A source takes twelve bytes beside itself, and a
//! slot that was given up sixteen. Runs on the loop's thread.

#[cfg(unix)]
use super::foreign::ForeignSlot;
use super::{accept_retry::AcceptRetry, lingering::LingeringSocket, load::Assignment};
use crate::{
    Error, Result,
    admission::Gate,
    buffer::RECEIVE_SIZE,
    channel::{AnyPipeline, ChannelConfig, TimerToken, driver::ChannelDriver},
    datagram::DatagramSlot,
    group::EventLoopGroup,
    id::Key,
    resource::SOCKETS,
    sync::Completer,
    transport::{Address, Listener, Stream, TcpOptions},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

/// Who is at the other end of a new connection; told to pipeline factories. Of a Unix socket neither address is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Peer {
    /// The address of the other end, if the transport has one.
    pub address: Option<SocketAddr>,
    /// The address of this end, if the transport has one.
    pub local_address: Option<SocketAddr>,
}

/// Makes the pipeline of a new connection, on the connection's loop.
pub(crate) type PipelineFactory = dyn Fn(&Peer) -> Result<AnyPipeline> + Send + Sync;

/// What every connection that a listener accepts gets.
pub(crate) struct ChildSetup {
    pub(crate) factory: Box<PipelineFactory>,
    pub(crate) config: Arc<ChannelConfig>,
    pub(crate) options: TcpOptions,
}

/// A listener on its way to its loop, and there.
pub(crate) struct Listening {
    pub(crate) listener: Listener,
    pub(crate) address: Address,
    /// Whose loops serve the connections; none: the loop that accepts them.
    pub(crate) children: Option<EventLoopGroup>,
    pub(crate) setup: Arc<ChildSetup>,
    pub(crate) gate: Arc<Gate>,
    /// Connections that it accepts in one turn.
    pub(crate) accepts_per_turn: usize,
    pub(crate) shared: ListenerGuard,
    /// Whether the program wants connections accepted.
    pub(crate) accepting: bool,
    /// Whether it waits: for its retry timer, since accepting failed for want of descriptors or memory, or for the
    /// next turn, since it has had its share of this one.
    pub(crate) paused: bool,
    pub(crate) retry: AcceptRetry,
}

/// What a server's handle shares with its listeners.
pub(crate) struct ServerShared {
    pub(crate) closed: Mutex<ServerClosed>,
}

pub(crate) enum ServerClosed {
    /// How many listeners are left, and who waits for the last one to end.
    Awaited(usize, Vec<Completer>),
    Done,
}

/// What a server's handle shares with the loop of one of its listeners.
pub(crate) struct ListenerShared {
    pub(crate) key: OnceLock<Key>,
    ended: AtomicBool,
    server: Arc<ServerShared>,
}

/// The listener's end of [`ListenerShared`]: wherever the listener ends, nobody is left waiting for it.
pub(crate) struct ListenerGuard(pub(crate) Arc<ListenerShared>);

impl std::ops::Deref for ListenerGuard {
    type Target = ListenerShared;

    fn deref(&self) -> &ListenerShared {
        &self.0
    }
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.set_closed(|| Err(Error::ShutDown));
    }
}

impl ServerShared {
    /// Of a server with so many listeners.
    pub(crate) fn new(listeners: usize) -> Self {
        ServerShared { closed: Mutex::new(ServerClosed::Awaited(listeners, Vec::new())) }
    }

    /// One of the listeners has ended. With the last one the server has, as that one did.
    fn listener_ended(&self, result: impl Fn() -> Result) {
        let mut closed = self.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if let ServerClosed::Awaited(listeners @ 2.., _) = &mut *closed {
            *listeners -= 1;
            return;
        }
        let before = std::mem::replace(&mut *closed, ServerClosed::Done);
        drop(closed);
        if let ServerClosed::Awaited(_, waiting) = before {
            for completer in waiting {
                completer.complete(result());
            }
        }
    }
}

impl ListenerShared {
    pub(crate) fn new(server: Arc<ServerShared>) -> Self {
        ListenerShared { key: OnceLock::new(), ended: AtomicBool::new(false), server }
    }

    /// The listener has ended; only the first time counts.
    pub(crate) fn set_closed(&self, result: impl Fn() -> Result) {
        if !self.ended.swap(true, Ordering::AcqRel) {
            self.server.listener_ended(result);
        }
    }
}

/// A connection on its way to its loop.
pub(crate) struct Accepted {
    pub(crate) stream: Stream,
    /// Behind the stream, so that it is dropped with the socket closed.
    pub(crate) assignment: Assignment,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) local: Option<SocketAddr>,
    pub(crate) setup: Arc<ChildSetup>,
}

/// Names a connection in the making from before its loop has heard of it.
#[derive(Clone, Default)]
pub(crate) struct Attempt(pub(crate) Arc<OnceLock<Key>>);

/// A connection in the making.
pub(crate) struct Connecting {
    /// Before `done`: who hears that it failed finds it no longer counted, also where all of this is dropped.
    pub(crate) assignment: Assignment,
    pub(crate) stream: Stream,
    pub(crate) peer: Option<SocketAddr>,
    /// Makes the pipeline and tells who waits for the channel; called on the loop.
    pub(crate) setup: Arc<ChildSetup>,
    pub(crate) done: Box<dyn Connected>,
    pub(crate) attempt: Attempt,
    /// Nanoseconds; 0 for no limit.
    pub(crate) timeout: u64,
    pub(crate) deadline: Option<crate::timer::QueueKey>,
}

impl Connecting {
    /// It comes to nothing before the poll has heard of it.
    pub(crate) fn refuse(self, error: Error) {
        let Connecting { assignment, stream, done, .. } = self;
        drop((assignment, stream));
        done.failed(error);
    }
}

/// Who waits for a connection.
pub(crate) trait Connected: Send {
    /// Whether anybody still wants it: asked before the pipeline is made.
    fn is_wanted(&self) -> bool;

    /// It is there: called before `active`.
    fn connected(self: Box<Self>, shared: Arc<crate::channel::ChannelShared>);

    /// It will not be.
    fn failed(self: Box<Self>, error: Error);
}

/// A channel and its socket.
pub(crate) struct ChannelSlot {
    pub(crate) driver: ChannelDriver<Stream>,
    /// Dropped behind the driver: the connection counts until its handler is dropped. A socket that
    /// outlives the channel takes the assignment over.
    pub(crate) assignment: Option<Assignment>,
}

pub(crate) enum Slot {
    Channel(ChannelSlot),
    /// Boxed, as `Datagram`: a loop has few of them, and no slot is to be larger than a channel's.
    Listener(Box<Listening>),
    Connecting(Connecting),
    Datagram(Box<DatagramSlot>),
    Lingering(LingeringSocket),
    #[cfg(unix)]
    Foreign(Box<ForeignSlot>),
}

pub(crate) struct Sources {
    /// Every slot ever used.
    slots: Vec<Option<Box<Slot>>>,
    /// Of each of them: how often it was given up.
    generations: Vec<u32>,
    /// Those that are empty; the one that was given up last is used first. Apart from the slots, where a place in this list would
    /// take a word of each, used or not.
    free: Vec<u32>,
}

const _: () = assert!(RECEIVE_SIZE <= u32::MAX as usize);

impl Sources {
    pub(crate) fn new() -> Self {
        Sources { slots: Vec::new(), generations: Vec::new(), free: Vec::new() }
    }

    /// The key that the next source will get.
    ///
    /// # Errors
    /// If more sources exist than keys can tell apart.
    pub(crate) fn next_key(&self) -> Result<Key> {
        let index = self.free.last().map_or(self.slots.len(), |index| *index as usize);
        if index as u64 > Key::MAX_INDEX.min(u64::from(u32::MAX)) {
            let limit = usize::try_from(Key::MAX_INDEX).unwrap_or(usize::MAX);
            return Err(Error::Full { what: SOCKETS, limit });
        }
        let generation = self.generations.get(index).copied().unwrap_or(0);
        Ok(Key { index: index as u32, generation })
    }

    /// Puts a source where [`Sources::next_key`] said.
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

    /// Turns a connection in the making into a channel; the key stays.
    pub(crate) fn replace(&mut self, key: Key, slot: Slot) -> Option<Slot> {
        let old = self.get(key)?;
        let old = std::mem::replace(old, slot);
        Some(old)
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<Slot> {
        self.get(key)?;
        let slot = self.slots[key.index as usize].take()?;
        self.generations[key.index as usize] = key.generation.wrapping_add(1);
        self.free.push(key.index);
        Some(*slot)
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

    /// The source that an event is for; none if it is gone.
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

    /// The key of whatever is, or was last, in a slot.
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

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::{ChannelCore, ChannelState, Watch};
    use std::mem::size_of;

    /// What each connection costs at the least, idle as it may be. Allocators give memory in steps of 16 bytes, so a word more may
    /// cost nothing or two. If this fails, put what few channels need behind one
    /// `Option<Box<..>>` beside the others in `ChannelState`, and have `tests/system/rss.rs` say what a connection costs in all;
    /// raise the bounds only for what every channel needs at every time.
    #[test]
    #[cfg(target_pointer_width = "64")]
    fn a_channel_stays_small() {
        let (state, core, slot) = (size_of::<ChannelState>(), size_of::<ChannelCore>(), size_of::<Slot>());
        assert!(state <= 176, "ChannelState: {state} bytes");
        // The pipeline, a fat pointer.
        assert_eq!(core - state, 2 * size_of::<usize>());
        // One allocation, 224 bytes with a header of 8. Sockets of mio are two words larger where debug assertions are on.
        assert!(slot <= 216 + 16 * usize::from(cfg!(debug_assertions)), "Slot: {slot} bytes");
        // 80 with its header.
        assert!(size_of::<Watch>() <= 64);
        assert_eq!(size_of::<ChannelSlot>(), slot, "nothing else that is watched is larger than a channel");
    }

    /// What docs/performance.md says of an idle channel with frames and an idle timeout, on glibc; `tests/system/rss.rs` finds the
    /// same in the kernel's count of pages.
    #[test]
    #[cfg(all(target_os = "linux", target_pointer_width = "64"))]
    fn an_idle_channel_weighs_what_the_docs_say() {
        // A header of 8 bytes, in steps of 16.
        let allocated = |size: usize| (size + 8).next_multiple_of(16).max(32);
        // As above.
        let slot = allocated(size_of::<Slot>() - 16 * usize::from(cfg!(debug_assertions)));
        let watch = allocated(size_of::<Watch>());
        let pipeline = allocated(size_of::<crate::codec::LengthField>());
        let entry = 24 + size_of::<TimerToken>();
        let lists = size_of::<Option<Box<Slot>>>() + size_of::<u32>();
        assert_eq!([slot, watch, pipeline, entry, lists], [224, 80, 32, 32, 12]);
    }
}
