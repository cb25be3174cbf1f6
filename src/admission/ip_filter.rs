//! IP filters: a list of rules in CIDR notation, of which the first match decides.
//!
//! Invariants: a rule's network is valid, and all bits after its prefix are zero, because it was
//! parsed when the rule was created. An IPv4 address mapped into IPv6, as reported by a dual-stack
//! socket, is treated as the IPv4 address. No I/O; any thread may evaluate a filter.

use crate::error::{Error, Result};
use ipnet::IpNet;
use std::{fmt, net::IpAddr};

/// A rule that allows or denies a range of IP addresses, in CIDR notation: `192.0.2.0/24`,
/// `2001:db8::/32`.
///
/// Bits after the prefix are ignored: `10.1.2.3/8` equals `10.0.0.0/8`. A rule for IPv4 also
/// matches IPv4 addresses mapped into IPv6 (`::ffff:10.1.2.3`), and may be written in that form.
/// `::/0` matches all other IPv6 addresses, but no IPv4 address.
///
/// ```
/// use netwheel::admission::IpRule;
///
/// let rule = IpRule::deny("10.0.0.0/8")?;
/// assert!(rule.matches("10.1.2.3".parse().unwrap()));
/// assert!(rule.matches("::ffff:10.1.2.3".parse().unwrap()));
/// assert_eq!(rule, IpRule::deny("10.1.2.3/8")?);
/// assert_eq!(rule, IpRule::deny("::ffff:10.1.2.3/104")?);
/// assert!(IpRule::deny("10.0.0.0/33").is_err());
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpRule {
    network: IpNet,
    allows: bool,
}

/// The allowed format, for errors.
const CIDR: &str = "an IP address, a slash and 0 to 32 (IPv4) or 0 to 128 (IPv6) bits";

impl IpRule {
    /// Creates a rule that allows the addresses of `network`.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `network` is not an address, a slash and a valid number of bits. The
    /// error contains the text.
    pub fn allow(network: &str) -> Result<Self> {
        Ok(IpRule { network: parse(network)?, allows: true })
    }

    /// Creates a rule that denies the addresses of `network`.
    ///
    /// # Errors
    ///
    /// The errors of [`IpRule::allow`].
    pub fn deny(network: &str) -> Result<Self> {
        Ok(IpRule { network: parse(network)?, allows: false })
    }

    /// Returns `true` if the rule allows the addresses that it matches, `false` if it denies them.
    pub fn allows(&self) -> bool {
        self.allows
    }

    /// Returns whether the rule matches the address.
    pub fn matches(&self, address: IpAddr) -> bool {
        self.network.contains(&address.to_canonical())
    }
}

fn parse(text: &str) -> Result<IpNet> {
    let network: IpNet = text.parse().map_err(|_| Error::setting("network", text, CIDR))?;
    // Addresses are compared as IPv4 addresses, so a range of mapped addresses is converted to one
    // of IPv4.
    if let (IpAddr::V4(v4), Some(bits)) =
        (network.addr().to_canonical(), network.prefix_len().checked_sub(96))
        && matches!(network, IpNet::V6(_))
    {
        let network = IpNet::new(v4.into(), bits).map_err(|_| Error::setting("network", text, CIDR))?;
        return Ok(network.trunc());
    }
    Ok(network.trunc())
}

impl fmt::Display for IpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.allows { "allow" } else { "deny" }, self.network)
    }
}

/// An ordered list of rules. The first rule that matches an address decides. An address that
/// matches none is allowed.
///
/// To allow only listed addresses, end the list with rules that deny all others: `0.0.0.0/0` and
/// `::/0`. Rules are evaluated one by one for each connection. The filter is designed for hundreds
/// of rules, not for a list of a million addresses.
///
/// ```
/// use netwheel::admission::{IpFilter, IpRule};
///
/// let only_inside_but_one = IpFilter::new([
///     IpRule::deny("10.0.0.13/32")?,
///     IpRule::allow("10.0.0.0/8")?,
///     IpRule::deny("0.0.0.0/0")?,
///     IpRule::deny("::/0")?,
/// ]);
/// assert!(only_inside_but_one.allows("10.0.0.14".parse().unwrap()));
/// assert!(!only_inside_but_one.allows("10.0.0.13".parse().unwrap()));
/// assert!(!only_inside_but_one.allows("192.0.2.1".parse().unwrap()));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct IpFilter {
    rules: Vec<IpRule>,
}

impl IpFilter {
    /// Creates a filter with these rules, in this order.
    pub fn new(rules: impl IntoIterator<Item = IpRule>) -> Self {
        IpFilter { rules: rules.into_iter().collect() }
    }

    /// Returns the rules, in order.
    pub fn rules(&self) -> &[IpRule] {
        &self.rules
    }

    /// Returns whether the address is allowed.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.deciding(address).is_none_or(IpRule::allows)
    }

    /// Returns the first rule that matches the address, if any.
    pub fn deciding(&self, address: IpAddr) -> Option<&IpRule> {
        self.rules.iter().find(|rule| rule.matches(address))
    }
}

impl FromIterator<IpRule> for IpFilter {
    fn from_iter<I: IntoIterator<Item = IpRule>>(rules: I) -> Self {
        Self::new(rules)
    }
}
