//! What a loop's poll watches: channels, connections in the making, listeners.
//!
//! Always holds: a key names at most one source for ever, since its generation grows when the slot is given up;
//! so events and mail for a source that is gone are recognised and dropped. Runs on the loop's thread.

use super::load::Assignment;
use crate::{
    Error, Result,
    buffer::RECEIVE_SIZE,
    channel::{ChannelConfig, ChannelCore},
    group::EventLoopGroup,
    id::Key,
    pipeline::AnyPipeline,
    sync::Completer,
    transport::{Listener, Stream, TcpOptions},
};
use slab::Slab;
use std::{
    net::SocketAddr,
    sync::{Arc, OnceLock},
};

/// Who is at the other end of a new connection; told to pipeline factories.
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
    pub(crate) address: SocketAddr,
    pub(crate) children: EventLoopGroup,
    pub(crate) setup: Arc<ChildSetup>,
    pub(crate) shared: ServerGuard,
    /// Whether the program wants connections accepted.
    pub(crate) accepting: bool,
    /// Whether it waits: for its retry timer, since accepting failed for want of descriptors or memory, or for the
    /// next turn, since it has had its share of this one.
    pub(crate) paused: bool,
    /// Whether accepting failed since the last success: said once, not at every retry.
    pub(crate) failing: bool,
}

/// What a server's handle shares with the listener's loop.
#[derive(Default)]
pub(crate) struct ServerShared {
    pub(crate) key: OnceLock<Key>,
    pub(crate) closed: std::sync::Mutex<ServerClosed>,
}

pub(crate) enum ServerClosed {
    Awaited(Vec<Completer>),
    Done,
}

/// The listener's end of [`ServerShared`]: wherever the listener ends, nobody is left waiting for it.
pub(crate) struct ServerGuard(pub(crate) Arc<ServerShared>);

impl std::ops::Deref for ServerGuard {
    type Target = ServerShared;

    fn deref(&self) -> &ServerShared {
        &self.0
    }
}

impl Drop for ServerGuard {
    fn drop(&mut self) {
        self.set_closed(|| Err(Error::ShutDown));
    }
}

impl Default for ServerClosed {
    fn default() -> Self {
        ServerClosed::Awaited(Vec::new())
    }
}

impl ServerShared {
    pub(crate) fn set_closed(&self, result: impl Fn() -> Result) {
        let mut closed = self.closed.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let before = std::mem::replace(&mut *closed, ServerClosed::Done);
        drop(closed);
        if let ServerClosed::Awaited(waiting) = before {
            for completer in waiting {
                completer.complete(result());
            }
        }
    }
}

/// A connection on its way to its loop.
pub(crate) struct Accepted {
    pub(crate) assignment: Assignment,
    pub(crate) stream: Stream,
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
    pub(crate) peer: SocketAddr,
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
    pub(crate) core: ChannelCore,
    /// None once it is closed and only `inactive` is still to come.
    pub(crate) stream: Option<Stream>,
    /// None as soon as the stream is.
    pub(crate) assignment: Option<Assignment>,
}

pub(crate) enum Slot {
    Channel(ChannelSlot),
    Listener(Listening),
    Connecting(Connecting),
}

pub(crate) struct Sources {
    slots: Slab<Box<Slot>>,
    /// Of every slot ever used: how often it was given up.
    generations: Vec<u32>,
}

const _: () = assert!(RECEIVE_SIZE <= u32::MAX as usize);

impl Sources {
    pub(crate) fn new() -> Self {
        Sources { slots: Slab::new(), generations: Vec::new() }
    }

    /// The key that the next source will get.
    ///
    /// # Errors
    /// If more sources exist than keys can tell apart.
    pub(crate) fn next_key(&self) -> Result<Key> {
        let index = self.slots.vacant_key();
        if index as u64 > Key::MAX_INDEX.min(u64::from(u32::MAX)) {
            let limit = usize::try_from(Key::MAX_INDEX).unwrap_or(usize::MAX);
            return Err(Error::Full { what: "sockets of one event loop", limit });
        }
        let generation = self.generations.get(index).copied().unwrap_or(0);
        Ok(Key { index: index as u32, generation })
    }

    /// Puts a source where [`Sources::next_key`] said.
    pub(crate) fn insert(&mut self, slot: Slot) {
        let index = self.slots.insert(Box::new(slot));
        if index >= self.generations.len() {
            self.generations.resize(index + 1, 0);
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
        let slot = self.slots.remove(key.index as usize);
        self.generations[key.index as usize] = key.generation.wrapping_add(1);
        Some(*slot)
    }

    #[inline]
    pub(crate) fn get(&mut self, key: Key) -> Option<&mut Slot> {
        if self.generations.get(key.index as usize) != Some(&key.generation) {
            return None;
        }
        self.slots.get_mut(key.index as usize).map(|slot| &mut **slot)
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
        let index = Key::index_of(token);
        let generation = *self.generations.get(index as usize)?;
        let key = Key { index, generation };
        if !key.matches(token) {
            return None;
        }
        self.slots.get_mut(index as usize).map(|slot| (key, &mut **slot))
    }

    pub(crate) fn keys(&self) -> Vec<Key> {
        let key = |index: usize| Key { index: index as u32, generation: self.generations[index] };
        self.slots.iter().map(|(index, _)| key(index)).collect()
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }
}
