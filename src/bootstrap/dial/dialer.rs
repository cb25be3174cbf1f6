//! Opens connections to one server: looks up its name on a thread for lookups, and remembers its
//! addresses.
//!
//! A name is looked up again when its addresses are too old, and when none of them could be
//! connected to. If a lookup fails or is refused, the addresses of the last one are used. For some
//! time after a failure, no other lookup begins while connections succeed, because each lookup may
//! wait for a name server. The address that was connected to last is tried first the next time. An
//! address that fails, or drops its connections, is tried last.
//!
//! Lookups have threads of their own. A worker of the group may wait for a connection, and must not
//! occupy the thread that looks up its name.
//!
//! Invariants: one lookup at a time is in progress, and all attempts that need addresses wait for
//! it. The callback of each attempt is called once, or dropped with a lookup that panics. Several
//! attempts that fail at the same time move on by one address only. No lock is held while a
//! callback is called. Runs on any thread.

use crate::{
    channel::ChannelShared,
    clock::nanos,
    error::{Error, Resource, Result},
    event_loop::{Attempt, ConnectCallback, WATCHING},
    group::EventLoopGroup,
    machine::Mutex,
    transport::{Address, BINDING, ToAddress},
};
use std::{
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

/// The longest time for which the known addresses are used after a lookup that has failed: the
/// failure recheck timer of RFC 8767, section 5.
const RECHECK: Duration = Duration::from_secs(30);

/// Opens a connection to one of these addresses.
type ConnectAny = dyn Fn(Vec<Address>, Attempt, Box<dyn ConnectCallback>) + Send + Sync;

/// A server, as the program has named it.
pub(in crate::bootstrap) struct Target {
    /// `None` if the program has given the addresses.
    host: Option<Arc<str>>,
    port: u16,
    /// Empty before the first lookup.
    addresses: Vec<Address>,
}

impl Target {
    /// Resolves the address, which may block on a name server.
    ///
    /// # Errors
    /// [`Error::Io`] if a name does not have an address.
    pub(in crate::bootstrap) fn resolve(address: impl ToAddress) -> Result<Self> {
        let host = address.host();
        let addresses = resolve(address)?;
        let port = addresses.first().and_then(Address::as_tcp).map_or(0, |address| address.port());
        Ok(Target { host, port, addresses })
    }

    /// Returns a target that is looked up before the first connection, unless the host is an
    /// address.
    #[cfg(any(feature = "http", feature = "redis"))]
    pub(in crate::bootstrap) fn later(host: Arc<str>, port: u16) -> Self {
        match host.parse::<std::net::IpAddr>() {
            Ok(ip) => Target { host: None, port, addresses: vec![SocketAddr::new(ip, port).into()] },
            Err(_) => Target { host: Some(host), port, addresses: Vec::new() },
        }
    }

    /// Returns a target whose name has these addresses.
    #[cfg(all(test, any(feature = "http", feature = "redis"), not(netwheel_loom)))]
    pub(in crate::bootstrap) fn known(host: &str, addresses: Vec<Address>) -> Self {
        Target { host: Some(host.into()), port: 7, addresses }
    }
}

/// Opens connections to one server.
pub(in crate::bootstrap) struct Dialer {
    group: EventLoopGroup,
    host: Option<Arc<str>>,
    port: u16,
    /// How long the addresses of a name are used.
    lookup_ttl: Duration,
    lookup: Mutex<Lookup>,
    connect: Box<ConnectAny>,
}

/// The addresses of a server.
#[derive(Default)]
struct Lookup {
    addresses: Vec<Address>,
    /// Until when they are used.
    until: u64,
    /// Whether they were just resolved. They are then used once, however short their time is.
    is_new: bool,
    /// The number of the address that is tried first.
    first: usize,
    /// The attempts that wait for the lookup in progress, which owns them.
    waiting: Weak<WaitingAttempts>,
}

/// An attempt and the callback for its result.
type PendingAttempt = (Attempt, Box<dyn ConnectCallback>);

/// Attempts that wait for a lookup. `None` once it has ended.
struct WaitingAttempts(Mutex<Option<Vec<PendingAttempt>>>);

impl Dialer {
    pub(in crate::bootstrap) fn new(
        group: &EventLoopGroup,
        target: Target,
        lookup_ttl: Duration,
        connect: Box<ConnectAny>,
    ) -> Arc<Self> {
        let Target { host, port, addresses } = target;
        let until = group.now().saturating_add(nanos(lookup_ttl));
        let is_new = !addresses.is_empty();
        let lookup = Mutex::new(Lookup { addresses, until, is_new, ..Lookup::default() });
        Arc::new(Dialer { group: group.clone(), host, port, lookup_ttl, lookup, connect })
    }

    /// Opens a connection.
    pub(in crate::bootstrap) fn dial(self: &Arc<Self>, attempt: Attempt, done: Box<dyn ConnectCallback>) {
        let Some(host) = self.host.clone() else { return self.connect(attempt, done) };
        let now = self.group.now();
        let (waiting, begins) = {
            let mut lookup = self.lookup.lock();
            if lookup.take_fresh(now) {
                drop(lookup);
                return self.connect(attempt, done);
            }
            lookup.wait((attempt, done))
        };
        if !begins {
            return;
        }
        let (me, attempts) = (self.clone(), waiting.clone());
        let refused = self.group.lookups().execute(move || {
            let result = me.look_up(&host);
            me.proceed(&attempts, result);
        });
        if let Err(refused) = refused {
            let reason = refused.into_parts().1;
            // Old addresses are better than none.
            self.proceed(&waiting, self.first_address().map(drop).ok_or(reason));
        }
    }

    /// Ends the wait of these attempts.
    fn proceed(self: &Arc<Self>, waiting: &WaitingAttempts, result: Result) {
        for (attempt, done) in waiting.take() {
            match &result {
                Ok(()) => self.connect(attempt, done),
                Err(error) => done.failed(error.clone()),
            }
        }
    }

    /// Looks up the name, which blocks.
    ///
    /// # Errors
    /// [`Error::Io`] if the lookup fails, and none has succeeded before.
    fn look_up(&self, host: &str) -> Result {
        let found = resolve((host, self.port));
        let now = self.group.now();
        let mut lookup = self.lookup.lock();
        match found {
            Ok(addresses) => {
                lookup.replace(addresses);
                lookup.until = now.saturating_add(nanos(self.lookup_ttl));
                Ok(())
            }
            // A name server that does not answer must not end connections to known addresses, nor
            // delay each of them.
            Err(_) if !lookup.addresses.is_empty() => {
                lookup.until = now.saturating_add(nanos(self.lookup_ttl.min(RECHECK)));
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    fn connect(self: &Arc<Self>, attempt: Attempt, done: Box<dyn ConnectCallback>) {
        // The consumer may have gone during the lookup. The server must not see a connection then.
        if !done.is_wanted() {
            return done.failed(Error::Cancelled);
        }
        let (addresses, first) = {
            let lookup = self.lookup.lock();
            (lookup.in_order(), lookup.first)
        };
        let done = Dialing { dialer: self.clone(), first, done };
        (self.connect)(addresses, attempt, Box::new(done));
    }

    /// Returns the address that is tried first, as far as it is known.
    pub(in crate::bootstrap) fn first_address(&self) -> Option<Address> {
        let lookup = self.lookup.lock();
        lookup.addresses.get(lookup.first).cloned()
    }

    /// Returns all known addresses.
    pub(in crate::bootstrap) fn addresses(&self) -> Vec<Address> {
        self.lookup.lock().addresses.clone()
    }

    /// Tries another address first the next time, because the connection to this one did not last.
    pub(in crate::bootstrap) fn avoid(&self, address: Option<SocketAddr>) {
        let mut lookup = self.lookup.lock();
        if let Some(at) = lookup.position(address) {
            lookup.move_on_from(at);
        }
    }
}

impl WaitingAttempts {
    /// Adds an attempt, or hands it back if the lookup has ended.
    fn add(&self, attempt: PendingAttempt) -> Result<(), PendingAttempt> {
        match &mut *self.0.lock() {
            Some(attempts) => {
                attempts.push(attempt);
                Ok(())
            }
            None => Err(attempt),
        }
    }

    /// Ends the wait. Returns the attempts.
    fn take(&self) -> Vec<PendingAttempt> {
        self.0.lock().take().unwrap_or_default()
    }
}

impl Lookup {
    /// Returns whether the known addresses are used for the next connection.
    fn take_fresh(&mut self, now: u64) -> bool {
        let is_new = std::mem::take(&mut self.is_new);
        is_new || !self.addresses.is_empty() && now < self.until
    }

    /// Lets the attempt wait for the lookup in progress. Returns the attempts that wait for it, and
    /// whether the lookup is a new one, which the caller begins.
    fn wait(&mut self, mut attempt: PendingAttempt) -> (Arc<WaitingAttempts>, bool) {
        if let Some(waiting) = self.waiting.upgrade() {
            match waiting.add(attempt) {
                Ok(()) => return (waiting, false),
                Err(refused) => attempt = refused,
            }
        }
        let waiting = Arc::new(WaitingAttempts(Mutex::new(Some(vec![attempt]))));
        self.waiting = Arc::downgrade(&waiting);
        (waiting, true)
    }

    /// Replaces the addresses. The one that is tried first stays the first if it is among them.
    fn replace(&mut self, addresses: Vec<Address>) {
        let first = self.addresses.get(self.first).cloned();
        self.first = addresses.iter().position(|address| Some(address) == first.as_ref()).unwrap_or(0);
        self.addresses = addresses;
    }

    /// Returns the addresses in the order in which they are tried.
    fn in_order(&self) -> Vec<Address> {
        let (before, from) = self.addresses.split_at(self.first.min(self.addresses.len()));
        [from, before].concat()
    }

    fn position(&self, address: Option<SocketAddr>) -> Option<usize> {
        let address = Address::Tcp(address?);
        self.addresses.iter().position(|other| *other == address)
    }

    /// Moves on to the next address, unless another failure has done so.
    fn move_on_from(&mut self, first: usize) {
        if self.first == first && !self.addresses.is_empty() {
            self.first = (first + 1) % self.addresses.len();
        }
    }

    /// Records that no address could be connected to. `first` was tried first.
    fn note_failure(&mut self, first: usize, error: &Error) {
        if is_about_the_address(error) {
            self.move_on_from(first);
            self.until = 0;
        }
    }
}

fn resolve(address: impl ToAddress) -> Result<Vec<Address>> {
    address.addresses()
}

/// Returns whether another address may do better. A loop that is full or ends, a connect that is
/// cancelled, and a process without free descriptors say nothing about the address.
pub(super) fn is_about_the_address(error: &Error) -> bool {
    match error {
        Error::Io { operation, source } => {
            let is_local = matches!(*operation, BINDING | WATCHING);
            !is_local && !lacks_descriptors(source)
        }
        Error::TimedOut { .. } | Error::Peer(_) => true,
        _ => false,
    }
}

/// Returns whether the loop is full, or the process is out of descriptors.
pub(super) fn lacks_room(error: &Error) -> bool {
    match error {
        Error::Full { resource, .. } => *resource == Resource::Connections,
        Error::Io { source, .. } => lacks_descriptors(source),
        _ => false,
    }
}

/// Returns whether the process or the system is out of descriptors.
fn lacks_descriptors(error: &io::Error) -> bool {
    const ENFILE: i32 = 23;
    const EMFILE: i32 = 24;
    cfg!(unix) && matches!(error.raw_os_error(), Some(ENFILE | EMFILE))
}

/// A connection that is being opened.
struct Dialing {
    dialer: Arc<Dialer>,
    /// The address that was tried first.
    first: usize,
    done: Box<dyn ConnectCallback>,
}

impl ConnectCallback for Dialing {
    fn is_wanted(&self) -> bool {
        self.done.is_wanted()
    }

    fn connected(self: Box<Self>, channel: Arc<ChannelShared>) {
        {
            let mut lookup = self.dialer.lookup.lock();
            if let Some(at) = lookup.position(channel.peer_address()) {
                lookup.first = at;
            }
        }
        self.done.connected(channel);
    }

    fn failed(self: Box<Self>, error: Error) {
        self.dialer.lookup.lock().note_failure(self.first, &error);
        self.done.failed(error);
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::io::ErrorKind;

    fn address(n: u8) -> Address {
        SocketAddr::from(([10, 0, 0, n], 80)).into()
    }

    fn lookup() -> Lookup {
        Lookup { addresses: (0..3).map(address).collect(), until: 100, ..Lookup::default() }
    }

    fn refused() -> Error {
        Error::io("connecting", ErrorKind::ConnectionRefused.into())
    }

    #[test]
    fn failures_at_the_same_time_move_on_by_one_address() {
        for failures in [1, 2, 3, 4, 8] {
            let mut lookup = lookup();
            // All were begun with the same address.
            for _ in 0..failures {
                lookup.note_failure(0, &refused());
            }
            assert_eq!((lookup.first, lookup.until), (1, 0), "{failures} failures");
            assert_eq!(lookup.in_order(), [address(1), address(2), address(0)]);
        }
    }

    #[test]
    fn errors_that_are_not_about_the_address_move_nothing() {
        let mut lookup = lookup();
        for error in [Error::Cancelled, Error::ShutDown, Error::Closed] {
            lookup.note_failure(0, &error);
        }
        for operation in [BINDING, WATCHING] {
            lookup.note_failure(0, &Error::io(operation, ErrorKind::Other.into()));
        }
        #[cfg(unix)]
        for code in [23, 24] {
            lookup.note_failure(0, &Error::io("opening a socket", io::Error::from_raw_os_error(code)));
        }
        assert_eq!((lookup.first, lookup.until), (0, 100));
    }

    #[test]
    fn a_lookup_keeps_the_address_that_works() {
        let mut lookup = lookup();
        lookup.first = 2;
        lookup.replace(vec![address(7), address(2)]);
        assert_eq!(lookup.in_order(), [address(2), address(7)]);
        lookup.replace(vec![address(8), address(9)]);
        assert_eq!(lookup.in_order(), [address(8), address(9)], "it is gone");
        lookup.move_on_from(1);
        assert_eq!(lookup.first, 0, "not the address that is tried first");
    }
}
