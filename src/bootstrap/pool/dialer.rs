//! Opens connections to one host: looks up its name on a worker, and goes through its addresses.
//!
//! Invariants: the callback of each attempt is called once, or dropped with the work of a worker.
//! No lock is held while it is called. Runs on any thread.

use crate::{
    bootstrap::client::ConnectTo,
    channel::ChannelShared,
    clock::nanos,
    error::{Error, Result},
    event_loop::{Attempt, ConnectCallback, EventLoop},
    group::EventLoopGroup,
    transport::{Address, ToAddress},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

/// Opens connections to one host.
pub(super) struct Dialer {
    pub(super) group: EventLoopGroup,
    /// The loop whose clock is used.
    pub(super) clock: EventLoop,
    /// A name, or an address without brackets.
    pub(super) host: Arc<str>,
    pub(super) port: u16,
    /// How long the addresses of a name are used.
    pub(super) lookup_ttl: Duration,
    pub(super) lookup: Mutex<Lookup>,
    pub(super) connect: Box<ConnectTo>,
}

/// The addresses of a host.
#[derive(Default)]
pub(super) struct Lookup {
    addresses: Vec<Address>,
    /// Until when they are used.
    until: u64,
    /// The address of the next connection. Each failure moves on.
    next: usize,
}

impl Dialer {
    fn lock(&self) -> MutexGuard<'_, Lookup> {
        self.lookup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens a connection.
    pub(super) fn dial(self: &Arc<Self>, attempt: Attempt, done: Box<dyn ConnectCallback>) {
        if let Some(address) = self.known_address() {
            return self.connect(address, attempt, done);
        }
        // The work, or this thread if no worker takes it.
        let waiting = Arc::new(Mutex::new(Some((attempt, done))));
        let (me, taken) = (self.clone(), waiting.clone());
        let take = |waiting: &Mutex<Option<_>>| waiting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let refused = self.group.workers().execute(move || {
            let Some((attempt, done)) = take(&taken) else { return };
            match me.look_up() {
                Ok(address) => me.connect(address, attempt, done),
                Err(error) => done.failed(error),
            }
        });
        if let Err(refused) = refused
            && let Some((_, done)) = take(&waiting)
        {
            done.failed(refused.into_parts().1);
        }
    }

    /// Returns the address of a host that is an address, or of a recent lookup.
    fn known_address(&self) -> Option<Address> {
        if let Ok(ip) = self.host.parse::<IpAddr>() {
            return Some(SocketAddr::new(ip, self.port).into());
        }
        let lookup = self.lock();
        let is_fresh = !lookup.addresses.is_empty() && self.clock.now() < lookup.until;
        is_fresh.then(|| lookup.address())
    }

    /// Looks up the name, which blocks.
    fn look_up(&self) -> Result<Address> {
        let addresses = addresses((&*self.host, self.port))?;
        let mut lookup = self.lock();
        lookup.until = self.clock.now().saturating_add(nanos(self.lookup_ttl));
        lookup.addresses = addresses;
        Ok(lookup.address())
    }

    fn connect(self: &Arc<Self>, address: Address, attempt: Attempt, done: Box<dyn ConnectCallback>) {
        let done = Dialing { dialer: self.clone(), done };
        (self.connect)(address, attempt, Box::new(done));
    }

    /// Moves on to the next address. Behind the last one, the name is looked up again.
    fn connect_failed(&self) {
        let mut lookup = self.lock();
        lookup.next = lookup.next.wrapping_add(1);
        if !lookup.addresses.is_empty() && lookup.next.is_multiple_of(lookup.addresses.len()) {
            lookup.until = 0;
        }
    }
}

impl Lookup {
    /// Returns the address of the next connection. A lookup returns at least one.
    fn address(&self) -> Address {
        self.addresses[self.next % self.addresses.len()].clone()
    }
}

fn addresses(address: impl ToAddress) -> Result<Vec<Address>> {
    address.addresses()
}

/// A connection that is being opened.
struct Dialing {
    dialer: Arc<Dialer>,
    done: Box<dyn ConnectCallback>,
}

impl ConnectCallback for Dialing {
    fn is_wanted(&self) -> bool {
        self.done.is_wanted()
    }

    fn connected(self: Box<Self>, channel: Arc<ChannelShared>) {
        self.done.connected(channel);
    }

    fn failed(self: Box<Self>, error: Error) {
        self.dialer.connect_failed();
        self.done.failed(error);
    }
}
