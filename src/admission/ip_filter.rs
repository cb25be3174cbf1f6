//! Which addresses may connect: rules in CIDR notation, the first that matches decides.
//!
//! Always holds: a rule's network is valid, since it was parsed when the rule was made; an IPv4 address is the same
//! address when it comes mapped into IPv6, as it does from a socket that serves both. Pure; any thread may ask.

use crate::{Error, Result};
use ipnet::IpNet;
use std::{fmt, net::IpAddr};

/// Allows or denies a range of IP addresses, in CIDR notation: `192.0.2.0/24`, `2001:db8::/32`.
///
/// The bits behind the prefix are not looked at: `10.1.2.3/8` is `10.0.0.0/8`. A rule for IPv4 also matches addresses
/// that come mapped into IPv6 (`::ffff:10.1.2.3`), and may be written like that; `::/0` is every other IPv6 address, but
/// no IPv4 one.
///
/// ```
/// use netwheel::IpRule;
///
/// let rule = IpRule::deny("10.0.0.0/8")?;
/// assert!(rule.matches("10.1.2.3".parse().unwrap()));
/// assert!(rule.matches("::ffff:10.1.2.3".parse().unwrap()));
/// assert!(IpRule::deny("10.0.0.0/33").is_err());
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IpRule {
    network: IpNet,
    allows: bool,
}

/// What is told of a rule that does not parse.
const CIDR: &str = "an IP address, a slash and 0 to 32 (IPv4) or 0 to 128 (IPv6) bits";

impl IpRule {
    /// Lets these addresses in.
    ///
    /// # Errors
    /// If `network` is not an address, a slash and a number of bits in the range; the error names the text.
    pub fn allow(network: &str) -> Result<Self> {
        Ok(IpRule { network: parse(network)?, allows: true })
    }

    /// Keeps these addresses out.
    ///
    /// # Errors
    /// As for [`IpRule::allow`].
    pub fn deny(network: &str) -> Result<Self> {
        Ok(IpRule { network: parse(network)?, allows: false })
    }

    /// Whether it lets in what it matches.
    pub fn allows(&self) -> bool {
        self.allows
    }

    /// Whether the address is one of these.
    pub fn matches(&self, address: IpAddr) -> bool {
        self.network.contains(&address.to_canonical())
    }
}

fn parse(text: &str) -> Result<IpNet> {
    let network: IpNet = text.parse().map_err(|_| Error::setting("network", text, CIDR))?;
    // A range of mapped addresses is a range of IPv4 addresses, which is what is compared.
    if let (IpAddr::V4(v4), Some(bits)) =
        (network.addr().to_canonical(), network.prefix_len().checked_sub(96))
        && matches!(network, IpNet::V6(_))
    {
        return IpNet::new(v4.into(), bits).map_err(|_| Error::setting("network", text, CIDR));
    }
    Ok(network)
}

impl fmt::Display for IpRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", if self.allows { "allow" } else { "deny" }, self.network.trunc())
    }
}

/// Rules in order: of those that match an address the first decides; one that none matches is let in.
///
/// To let in only what is listed, end with rules that deny the rest: `0.0.0.0/0` and `::/0`. Rules are looked at one
/// after the other, for each connection: meant for hundreds of them, not for a list of a million addresses.
///
/// ```
/// use netwheel::{IpFilter, IpRule};
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
    /// These rules, in this order.
    pub fn new(rules: impl IntoIterator<Item = IpRule>) -> Self {
        IpFilter { rules: rules.into_iter().collect() }
    }

    /// The rules, in order.
    pub fn rules(&self) -> &[IpRule] {
        &self.rules
    }

    /// Whether the address is let in.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.deciding(address).is_none_or(IpRule::allows)
    }

    /// The rule that decides over the address, if one does.
    pub fn deciding(&self, address: IpAddr) -> Option<&IpRule> {
        self.rules.iter().find(|rule| rule.matches(address))
    }
}

impl FromIterator<IpRule> for IpFilter {
    fn from_iter<I: IntoIterator<Item = IpRule>>(rules: I) -> Self {
        Self::new(rules)
    }
}
