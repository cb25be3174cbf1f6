//! The gate of one server: lets connections in or not, and counts those that are inside.
//!
//! Always holds: never more than the limits say are inside, however many threads let in at once; who is inside is
//! counted by a value ([`Admitted`]) that travels with the connection and is dropped behind its
//! handler and its socket, wherever those end. Any thread lets in and lets out; the lock is taken
//! for limits per address only, and nothing of the program's
//! runs under it.

use super::{Admission, RejectReason};
use crate::sync::Permits;
use std::{
    collections::{HashMap, hash_map::Entry},
    net::{IpAddr, Ipv6Addr},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

pub(crate) struct Gate {
    settings: Admission,
    inside: Permits,
    /// How many are inside of each address that somebody is inside of.
    addresses: Mutex<HashMap<IpAddr, usize>>,
}

/// A place inside, until dropped.
pub(crate) struct Admitted {
    gate: Arc<Gate>,
    /// The address that it is counted under.
    address: Option<IpAddr>,
}

impl Gate {
    /// The gate of a server; the settings are checked.
    pub(crate) fn new(settings: Admission) -> Self {
        let inside = Permits::new(settings.max_connections.unwrap_or(usize::MAX));
        Gate { settings, inside, addresses: Mutex::default() }
    }

    pub(crate) fn settings(&self) -> &Admission {
        &self.settings
    }

    /// Lets a connection in; the value is to be kept as long as its socket is open. None if nobody counts.
    ///
    /// # Errors
    /// Why it is not let in.
    pub(crate) fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Option<Admitted>, RejectReason> {
        if let Some(rule) = address.and_then(|address| self.settings.filter.deciding(address))
            && !rule.allows()
        {
            return Err(RejectReason::Denied(*rule));
        }
        let limits = (self.settings.max_connections, self.settings.max_connections_per_ip);
        if limits == (None, None) {
            return Ok(None);
        }
        if !self.inside.take() {
            return Err(RejectReason::ServerFull { limit: self.inside.limit() });
        }
        // From here on it is let out again by its drop.
        let mut admitted = Admitted { gate: self.clone(), address: None };
        if let (Some(limit), Some(address)) = (limits.1, address) {
            let address = counted_as(address, self.settings.ipv6_prefix);
            let mut addresses = self.addresses();
            let inside = addresses.entry(address).or_insert(0);
            if *inside >= limit {
                return Err(RejectReason::IpFull { limit });
            }
            *inside += 1;
            admitted.address = Some(address);
        }
        Ok(Some(admitted))
    }

    fn addresses(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Admitted {
    fn drop(&mut self) {
        if let Some(address) = self.address
            && let Entry::Occupied(mut inside) = self.gate.addresses().entry(address)
        {
            *inside.get_mut() -= 1;
            if *inside.get() == 0 {
                inside.remove();
            }
        }
        self.gate.inside.give_back();
    }
}

/// The address that stands for all which count as one: an IPv4 address for itself, an IPv6 address for its prefix.
fn counted_as(address: IpAddr, ipv6_prefix: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(ipv6_prefix)).unwrap_or(0);
            Ipv6Addr::from(u128::from(v6) & mask).into()
        }
        v4 => v4,
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
    fn without_limits_nobody_counts() {
        let gate = gate(Admission::new());
        assert!(gate.admit(ip("192.0.2.1")).unwrap().is_none());
        assert_eq!(gate.inside.taken(), 0);
    }

    #[test]
    fn a_place_is_free_when_it_is_dropped_and_an_address_is_forgotten_with_its_last() {
        let gate = gate(Admission::new().max_connections(2).max_connections_per_ip(1));
        let one = gate.admit(ip("192.0.2.1")).unwrap();
        assert_eq!(gate.admit(ip("192.0.2.1")).err(), Some(RejectReason::IpFull { limit: 1 }));
        assert_eq!(gate.admit(ip("::ffff:192.0.2.1")).err(), Some(RejectReason::IpFull { limit: 1 }));
        let two = gate.admit(ip("192.0.2.2")).unwrap();
        assert_eq!(gate.admit(ip("192.0.2.3")).err(), Some(RejectReason::ServerFull { limit: 2 }));
        drop(one);
        drop(gate.admit(ip("192.0.2.1")).unwrap());
        drop(two);
        assert_eq!((gate.inside.taken(), gate.addresses().len()), (0, 0));
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
            assert!(gate.admit(ip(same)).is_err(), "{same} is the same one by {prefix} bits");
            assert!(gate.admit(ip(other)).is_ok(), "{other} is another one by {prefix} bits");
        }
        let gate = gate(Admission::new().max_connections_per_ip(1));
        let _one = gate.admit(ip("2001:db8::1")).unwrap();
        assert!(gate.admit(ip("2001:db8::ffff:0:0:1")).is_err(), "a /64 unless something else is said");
        let _v4 = gate.admit(ip("192.0.2.1")).unwrap();
        assert!(gate.admit(ip("192.0.2.2")).is_ok(), "each IPv4 address is one");
    }

    /// Threads that go in and out as fast as they can; there is one place.
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
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "both have passed");
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(admitted);
            }
            times
        };
        let times = thread::scope(|scope| {
            let threads = [scope.spawn(in_and_out), scope.spawn(in_and_out)];
            threads.map(|thread| thread.join().unwrap())
        });
        assert!(times[0] + times[1] > 0, "nobody has passed");
        assert_eq!((gate.inside.taken(), gate.addresses().len()), (0, 0));
    }

    #[test]
    fn h_08_two_that_race_for_an_address_never_both_pass() {
        race(Admission::new().max_connections_per_ip(1));
    }

    #[test]
    fn two_that_race_for_the_last_place_never_both_pass() {
        race(Admission::new().max_connections(1));
    }
}
