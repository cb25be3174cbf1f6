//! The gate of one server: admits or rejects connections and counts the admitted ones.
//!
//! Invariants: the number of admitted connections never exceeds the limits, regardless of how many
//! threads admit concurrently. Each is counted by a value ([`Admitted`]) that travels with the
//! connection. It is dropped after the connection's handler and socket. Any thread may admit and
//! release connections. The lock is taken only for limits per address and for shared counts, and
//! user code never runs under it.

use super::{Admission, RejectReason};
use crate::{lookup::LookupMap, machine::Mutex, sync::Permits};
use std::{
    collections::hash_map::Entry,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

pub(crate) struct Gate {
    settings: Admission,
    counts: Arc<Counts>,
}

/// The admitted connections of one server, or of several that share their limits.
pub(super) struct Counts {
    /// Each server has its own limit.
    inside: Permits,
    /// The number of admitted connections of each address that has any.
    addresses: Mutex<LookupMap<AddressKey, usize>>,
}

/// The key under which the connections of an address are counted: an IPv4 address itself, or the
/// prefix of an IPv6 address.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct AddressKey {
    address: IpAddr,
    /// Servers that share their counts may have different prefix lengths.
    prefix: u8,
}

impl Default for Counts {
    fn default() -> Self {
        Counts { inside: Permits::new(usize::MAX), addresses: Mutex::default() }
    }
}

/// A guard that counts one admitted connection. Dropping it releases the permit.
pub(crate) struct Admitted {
    gate: Arc<Gate>,
    address: CountedAddress,
}

/// The address or prefix under which a connection is counted.
enum CountedAddress {
    None,
    Fixed(AddressKey),
    /// A filter may announce another one.
    Movable(Arc<Mutex<Option<AddressKey>>>),
}

/// The right to count an admitted connection under another address, which a filter has announced.
pub(crate) struct AddressChange {
    gate: Arc<Gate>,
    /// `None` if the server has no limits.
    counted: Option<Arc<Mutex<Option<AddressKey>>>>,
}

impl Gate {
    /// Creates the gate of a server. The settings must be valid.
    pub(crate) fn new(settings: Admission) -> Self {
        let counts = settings.shared.clone().unwrap_or_default();
        Gate { settings, counts }
    }

    pub(crate) fn settings(&self) -> &Admission {
        &self.settings
    }

    /// Admits a connection. Keep the returned guard as long as the connection's socket is open.
    /// Returns `None` if the server is without limits and shares no counts with other servers.
    ///
    /// # Errors
    ///
    /// The reason if the connection is rejected.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Option<Admitted>, RejectReason> {
        self.check_filter(address)?;
        let limits = (self.settings.max_connections, self.settings.max_connections_per_ip);
        if limits == (None, None) && self.settings.shared.is_none() {
            return Ok(None);
        }
        let limit = limits.0.unwrap_or(usize::MAX);
        if !self.counts.inside.take_below(limit) {
            return Err(RejectReason::ServerFull { limit });
        }
        // From here on, dropping the guard releases the permit.
        let mut admitted = Admitted { gate: self.clone(), address: CountedAddress::None };
        if let Some(key) = address.map(|address| self.count_address(address)).transpose()?.flatten() {
            admitted.address = CountedAddress::Fixed(key);
        }
        Ok(Some(admitted))
    }

    /// # Errors
    ///
    /// The rule if it denies the address.
    fn check_filter(&self, address: Option<IpAddr>) -> Result<(), RejectReason> {
        match address.and_then(|address| self.settings.filter.deciding(address)) {
            Some(rule) if !rule.allows() => Err(RejectReason::Denied(*rule)),
            _ => Ok(()),
        }
    }

    /// Counts a connection of this address. Returns the key under which it is counted, or `None` if
    /// neither this server nor one that shares its counts limits the connections per address.
    fn count_address(&self, address: IpAddr) -> Result<Option<AddressKey>, RejectReason> {
        let limit = match self.settings.max_connections_per_ip {
            Some(limit) => limit,
            // The other servers may have a limit.
            None if self.settings.shared.is_some() => usize::MAX,
            None => return Ok(None),
        };
        let key = AddressKey::of(address, self.settings.ipv6_prefix);
        let mut addresses = self.counts.addresses.lock();
        let inside = addresses.entry(key).or_insert(0);
        if *inside >= limit {
            return Err(RejectReason::IpFull { limit });
        }
        *inside += 1;
        Ok(Some(key))
    }

    fn release_address(&self, key: AddressKey) {
        if let Entry::Occupied(mut inside) = self.counts.addresses.lock().entry(key) {
            *inside.get_mut() -= 1;
            if *inside.get() == 0 {
                inside.remove();
            }
        }
    }

    /// Returns the right to change the address of a connection that was admitted here. `admitted`
    /// is the connection's guard.
    pub(crate) fn address_change(self: &Arc<Self>, admitted: Option<&mut Admitted>) -> AddressChange {
        AddressChange { gate: self.clone(), counted: admitted.map(Admitted::make_movable) }
    }
}

impl Admitted {
    fn make_movable(&mut self) -> Arc<Mutex<Option<AddressKey>>> {
        let counted = match &self.address {
            CountedAddress::None => None,
            CountedAddress::Fixed(key) => Some(*key),
            CountedAddress::Movable(counted) => return counted.clone(),
        };
        let counted = Arc::new(Mutex::new(counted));
        self.address = CountedAddress::Movable(counted.clone());
        counted
    }
}

impl AddressChange {
    pub(crate) fn settings(&self) -> &Admission {
        self.gate.settings()
    }

    /// Counts the connection under `address`, and no longer under the one before.
    ///
    /// # Errors
    ///
    /// The reason if the address is not admitted.
    pub(crate) fn change(&self, address: IpAddr) -> Result<(), RejectReason> {
        self.gate.check_filter(Some(address))?;
        let Some(counted) = &self.counted else { return Ok(()) };
        // The address before is released first: the new one may have the same key.
        let mut counted = counted.lock();
        if let Some(before) = counted.take() {
            self.gate.release_address(before);
        }
        *counted = self.gate.count_address(address)?;
        Ok(())
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        let key = match &self.address {
            CountedAddress::None => None,
            CountedAddress::Fixed(key) => Some(*key),
            CountedAddress::Movable(counted) => counted.lock().take(),
        };
        if let Some(key) = key {
            self.gate.release_address(key);
        }
        self.gate.counts.inside.give_back();
    }
}

impl AddressKey {
    fn of(address: IpAddr, ipv6_prefix: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V6(v6) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or(0);
                let address = Ipv6Addr::from(u128::from(v6) & mask).into();
                AddressKey { address, prefix: ipv6_prefix }
            }
            v4 => AddressKey { address: v4, prefix: 32 },
        }
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;
    use std::{
        sync::{
            Barrier,
            atomic::{AtomicUsize, Ordering},
        },
        thread,
    };

    fn gate(settings: Admission) -> Arc<Gate> {
        settings.check().unwrap();
        Arc::new(Gate::new(settings))
    }

    fn ip(text: &str) -> Option<IpAddr> {
        Some(text.parse().unwrap())
    }

    #[test]
    fn without_limits_connections_are_not_counted() {
        let gate = gate(Admission::new());
        assert!(gate.admit(ip("192.0.2.1")).unwrap().is_none());
        assert_eq!(gate.counts.inside.taken(), 0);
    }

    #[test]
    fn dropping_a_guard_releases_its_permit_and_the_last_one_its_address() {
        let gate = gate(Admission::new().max_connections(2).max_connections_per_ip(1));
        let one = gate.admit(ip("192.0.2.1")).unwrap();
        assert_eq!(gate.admit(ip("192.0.2.1")).err(), Some(RejectReason::IpFull { limit: 1 }));
        assert_eq!(gate.admit(ip("::ffff:192.0.2.1")).err(), Some(RejectReason::IpFull { limit: 1 }));
        let two = gate.admit(ip("192.0.2.2")).unwrap();
        assert_eq!(gate.admit(ip("192.0.2.3")).err(), Some(RejectReason::ServerFull { limit: 2 }));
        drop(one);
        drop(gate.admit(ip("192.0.2.1")).unwrap());
        drop(two);
        assert_eq!((gate.counts.inside.taken(), gate.counts.addresses.lock().len()), (0, 0));
    }

    #[test]
    fn an_ipv6_address_counts_as_its_prefix() {
        for (prefix, other, same) in [
            (64, "2001:db8:0:1::2", "2001:db8::2"),
            (48, "2001:db8:1::1", "2001:db8:0:1::1"),
            (128, "2001:db8::2", "2001:db8::1"),
            (1, "8000::1", "2001:db8:ffff::1"),
        ] {
            let gate = gate(Admission::new().max_connections_per_ip(1).ipv6_prefix(prefix));
            let _one = gate.admit(ip("2001:db8::1")).unwrap();
            assert!(gate.admit(ip(same)).is_err(), "{same} has the same {prefix} bits");
            assert!(gate.admit(ip(other)).is_ok(), "{other} differs in the first {prefix} bits");
        }
        let gate = gate(Admission::new().max_connections_per_ip(1));
        let _one = gate.admit(ip("2001:db8::1")).unwrap();
        assert!(gate.admit(ip("2001:db8::ffff:0:0:1")).is_err(), "a /64 by default");
        let _v4 = gate.admit(ip("192.0.2.1")).unwrap();
        assert!(gate.admit(ip("192.0.2.2")).is_ok(), "IPv4 addresses are counted separately");
    }

    #[test]
    fn a_connection_counts_for_its_announced_address_only() {
        let filter = crate::admission::ip_filter::IpFilter::new([crate::admission::ip_filter::IpRule::deny(
            "203.0.113.0/24",
        )
        .unwrap()]);
        let gate = gate(Admission::new().max_connections_per_ip(1).ip_filter(filter));
        let (balancer, client) = (ip("192.0.2.1"), ip("198.51.100.1"));
        let mut one = gate.admit(balancer).unwrap().unwrap();
        gate.address_change(Some(&mut one)).change(client.unwrap()).unwrap();
        // A load balancer whose own address does not count.
        let mut two = gate.admit(None).unwrap().unwrap();
        let change = gate.address_change(Some(&mut two));
        assert_eq!(change.change(client.unwrap()), Err(RejectReason::IpFull { limit: 1 }));
        assert!(matches!(change.change(ip("203.0.113.9").unwrap()), Err(RejectReason::Denied(_))));
        drop(gate.admit(balancer).unwrap());
        assert_eq!((gate.counts.inside.taken(), gate.counts.addresses.lock().len()), (2, 1));
        // The right outlives the connection without counting.
        drop((one, two));
        assert_eq!((gate.counts.inside.taken(), gate.counts.addresses.lock().len()), (0, 0));
        drop(change);
        assert_eq!((gate.counts.inside.taken(), gate.counts.addresses.lock().len()), (0, 0));
    }

    #[test]
    fn servers_that_share_their_limits_count_their_connections_together() {
        let (one, other) = (ip("192.0.2.1"), ip("192.0.2.2"));
        let settings = Admission::new().max_connections(2).max_connections_per_ip(1).shared();
        let gates = [gate(settings.clone()), gate(settings.clone().max_connections(3))];
        let first = gates[0].admit(one).unwrap();
        assert_eq!(gates[1].admit(one).err(), Some(RejectReason::IpFull { limit: 1 }));
        let second = gates[1].admit(other).unwrap();
        assert_eq!(gates[0].admit(None).err(), Some(RejectReason::ServerFull { limit: 2 }));
        let third = gates[1].admit(None).unwrap();
        assert_eq!(gates[1].admit(None).err(), Some(RejectReason::ServerFull { limit: 3 }));
        assert!(gate(settings.shared()).admit(one).is_ok(), "a second call shares with nobody before");
        drop((first, second));
        assert!(gates[0].admit(one).is_ok());
        drop(third);
        // One without limits counts for the others.
        let open = gate(Admission { max_connections: None, ..gates[0].settings().clone() });
        let _open = [open.admit(None).unwrap(), open.admit(None).unwrap()];
        assert!(gates[0].admit(None).is_err() && gates[1].admit(None).is_ok());
    }

    #[test]
    fn a_shared_connection_counts_for_the_limits_per_address_of_other_servers() {
        let settings = Admission::new().shared();
        let (open, limited) =
            (gate(settings.clone()), gate(settings.clone().max_connections_per_ip(1).ipv6_prefix(48)));
        for address in ["192.0.2.1", "2001:db8::1"] {
            // A prefix of 64 bits is not one of 48 bits with the same address.
            let is_counted = address == "192.0.2.1";
            let first = [open.admit(ip(address)).unwrap(), open.admit(ip(address)).unwrap()];
            assert_eq!(limited.admit(ip(address)).is_err(), is_counted, "{address}");
            drop(first);
            assert!(limited.admit(ip(address)).is_ok());
        }
        let open = gate(settings.ipv6_prefix(48));
        let first = open.admit(ip("2001:db8::1")).unwrap();
        assert!(limited.admit(ip("2001:db8:0:1::1")).is_err(), "both have a prefix of 48 bits");
        drop(first);
        assert_eq!((open.counts.inside.taken(), open.counts.addresses.lock().len()), (0, 0));
    }

    /// Two threads admit and release connections as fast as they can, with a limit of one.
    fn race(settings: Admission) {
        const ROUNDS: usize = 100_000;
        let gate = gate(settings);
        let (begin, inside) = (Barrier::new(2), AtomicUsize::new(0));
        let in_and_out = || {
            begin.wait();
            let mut times = 0;
            for _ in 0..ROUNDS {
                let Ok(admitted) = gate.admit(ip("192.0.2.1")) else { continue };
                times += 1;
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "both were admitted");
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(admitted);
            }
            times
        };
        let times = thread::scope(|scope| {
            let threads = [scope.spawn(in_and_out), scope.spawn(in_and_out)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(times[0] + times[1] > 0, "no connection was admitted");
        assert_eq!((gate.counts.inside.taken(), gate.counts.addresses.lock().len()), (0, 0));
    }

    #[test]
    fn h_08_of_two_racing_connections_of_an_address_one_is_admitted() {
        race(Admission::new().max_connections_per_ip(1));
    }

    #[test]
    fn of_two_connections_racing_for_the_last_permit_one_is_admitted() {
        race(Admission::new().max_connections(1));
    }
}
