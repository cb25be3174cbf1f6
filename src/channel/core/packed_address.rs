//! An IP address and port in twenty bytes.
//!
//! `SocketAddr` takes 32 bytes, and a channel stores two of them.
//!
//! Invariants: unpacking returns the packed address, with two exceptions. The flow label of IPv6 is
//! lost, because it does not locate a peer. A scope beyond 65,532 is lost unless the address is in
//! `fe80::/64`, where the link-local addresses are. The scope of other addresses is irrelevant.
//! Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct PackedAddress {
    ip: [u8; 16],
    port: u16,
    /// The interface of a link-local IPv6 address, or the kind of address.
    scope: u16,
}

const NONE: u16 = u16::MAX;
const IPV4: u16 = u16::MAX - 1;
/// A link-local address whose scope is stored in place of its zeros. On hosts that create and
/// destroy many containers, interfaces get such large numbers, because numbers are not reused.
const WIDE: u16 = u16::MAX - 2;

/// The bits after the prefix of a link-local address are zero (RFC 4291, section 2.5.6). They have
/// room for a scope.
const ZEROS: std::ops::Range<usize> = 4..8;

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
                match u16::try_from(address.scope_id()) {
                    Ok(scope) if scope < WIDE => scope,
                    _ if ip.starts_with(&[0xFE, 0x80, 0, 0, 0, 0, 0, 0]) => {
                        ip[ZEROS].copy_from_slice(&address.scope_id().to_be_bytes());
                        WIDE
                    }
                    _ => 0,
                }
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
            WIDE => {
                let mut ip = self.ip;
                let [_, _, _, _, a, b, c, d, ..] = ip;
                ip[ZEROS].fill(0);
                Some(self.ipv6(ip, u32::from_be_bytes([a, b, c, d])))
            }
            scope => Some(self.ipv6(self.ip, u32::from(scope))),
        }
    }

    fn ipv6(self, ip: [u8; 16], scope: u32) -> SocketAddr {
        SocketAddr::V6(SocketAddrV6::new(Ipv6Addr::from(ip), self.port, 0, scope))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unpacking_returns_the_packed_address() {
        assert_eq!(size_of::<PackedAddress>(), 20);
        let addresses =
            ["127.0.0.1:0", "255.255.255.255:65535", "[::1]:80", "[fe80::1%7]:443", "[::ffff:1.2.3.4]:9"];
        for address in addresses {
            let address: SocketAddr = address.parse().expect("the address is valid");
            assert_eq!(PackedAddress::pack(Some(address)).unpack(), Some(address));
        }
        assert_eq!(PackedAddress::pack(None).unpack(), None);
    }

    #[test]
    fn link_local_addresses_keep_any_scope_and_others_small_scopes() {
        let address =
            |ip: &str, scope| SocketAddr::V6(SocketAddrV6::new(ip.parse().expect("an address"), 1, 0, scope));
        let unpacked = |address| PackedAddress::pack(Some(address)).unpack();
        for scope in [0, 1, 65_532, 65_533, 65_534, 65_535, 65_536, u32::MAX] {
            for ip in ["fe80::", "fe80::1", "fe80::ffff:ffff:ffff:ffff"] {
                assert_eq!(unpacked(address(ip, scope)), Some(address(ip, scope)));
            }
            for ip in ["::1", "2001:db8::1", "fe80:0:1::1", "fe80:0:0:1::1", "ff02::1"] {
                let kept = if scope <= 65_532 { scope } else { 0 };
                assert_eq!(unpacked(address(ip, scope)), Some(address(ip, kept)));
            }
        }
    }
}
