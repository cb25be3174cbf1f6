//! An IP address and port in twenty bytes.
//!
//! Always holds: what is unpacked is what was packed, but for the flow label of IPv6, which says nothing about where
//! somebody is, and for a scope beyond 65,533, which no interface has that anybody has seen. `SocketAddr` takes 32 bytes, a
//! channel keeps two of them, and there are many channels. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedAddress {
    ip: [u8; 16],
    port: u16,
    /// The interface of a link-local IPv6 address; or what kind of address it is.
    scope: u16,
}

const NONE: u16 = u16::MAX;
const IPV4: u16 = u16::MAX - 1;

impl PackedAddress {
    pub(crate) fn pack(address: Option<SocketAddr>) -> Self {
        let mut ip = [0; 16];
        let Some(address) = address else { return PackedAddress { ip, port: 0, scope: NONE } };
        let scope = match address {
            SocketAddr::V4(address) => {
                ip[..4].copy_from_slice(&address.ip().octets());
                IPV4
            }
            SocketAddr::V6(address) => {
                ip = address.ip().octets();
                u16::try_from(address.scope_id()).ok().filter(|scope| *scope < IPV4).unwrap_or(0)
            }
        };
        PackedAddress { ip, port: address.port(), scope }
    }

    pub(crate) fn unpack(self) -> Option<SocketAddr> {
        match self.scope {
            NONE => None,
            IPV4 => {
                let [a, b, c, d, ..] = self.ip;
                Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::new(a, b, c, d)), self.port))
            }
            scope => {
                let address = SocketAddrV6::new(Ipv6Addr::from(self.ip), self.port, 0, u32::from(scope));
                Some(SocketAddr::V6(address))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_is_unpacked() {
        assert_eq!(size_of::<PackedAddress>(), 20);
        let addresses =
            ["127.0.0.1:0", "255.255.255.255:65535", "[::1]:80", "[fe80::1%7]:443", "[::ffff:1.2.3.4]:9"];
        for address in addresses {
            let address: SocketAddr = address.parse().expect("an address");
            assert_eq!(PackedAddress::pack(Some(address)).unpack(), Some(address));
        }
        assert_eq!(PackedAddress::pack(None).unpack(), None);
    }

    #[test]
    fn a_scope_that_does_not_fit_is_none() {
        let address = |scope| SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::LOCALHOST, 1, 0, scope));
        for scope in [65_534, 65_535, 65_536, u32::MAX] {
            assert_eq!(PackedAddress::pack(Some(address(scope))).unpack(), Some(address(0)));
        }
        assert_eq!(PackedAddress::pack(Some(address(65_533))).unpack(), Some(address(65_533)));
    }
}
