//! Settings of a server: trusted networks, accepted versions, the limit of a header.

use super::{header::ProxyHeader, proxy_error::ProxyError, proxy_version::ProxyVersion};
use crate::{
    admission::IpRule,
    error::{Error, Result},
};
use std::{
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

/// Settings of a server behind load balancers that announce their clients.
///
/// The header decides which address a connection has, so only trusted networks may send it: those
/// of the load balancers. Whether a connection begins with a header depends on its address alone.
/// It is never guessed from the bytes, because a client could then announce any address.
///
/// | connection from | [`required`](Self::required) | [`optional`](Self::optional) |
/// |---|---|---|
/// | a trusted network | begins with a header, or is closed | begins with a header, or is closed |
/// | elsewhere | is closed | is direct: a header is not interpreted |
///
/// ```
/// use netwheel::proxy::{ProxyError, ProxyProtocol};
///
/// let protocol = ProxyProtocol::required().trust("10.1.0.0/16")?.trust("fd00:1::/32")?;
/// assert_eq!(protocol.expects_header(Some("10.1.2.3:5000".parse().unwrap())), Ok(true));
///
/// let client = Some("192.0.2.7:5000".parse().unwrap());
/// assert_eq!(protocol.expects_header(client), Err(ProxyError::Untrusted));
/// let optional = ProxyProtocol::optional().trust("10.1.0.0/16")?;
/// assert_eq!(optional.expects_header(client), Ok(false));
/// # Ok::<(), netwheel::Error>(())
/// ```
#[doc(alias = "HAProxyMessageDecoder")]
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyProtocol {
    required: bool,
    /// Shared with the filters of connections.
    trusted: Arc<Vec<IpRule>>,
    trusts_unix: bool,
    /// The only version that is accepted, if not both.
    version: Option<ProxyVersion>,
    max_len: usize,
}

impl ProxyProtocol {
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if no peer is trusted, or for `max_len`.
    pub(crate) fn check(&self) -> Result {
        if self.trusted.is_empty() && !self.trusts_unix {
            return Err(Error::setting("trust", "empty", "one network or more"));
        }
        if !(52..=ProxyHeader::MAX_LEN).contains(&self.max_len) {
            return Err(Error::setting("max_len", self.max_len, "52 to 65551"));
        }
        Ok(())
    }

    /// Requires a header and rejects peers outside the trusted networks. Add networks with
    /// [`trust`](Self::trust).
    pub fn required() -> Self {
        ProxyProtocol {
            required: true,
            trusted: Arc::default(),
            trusts_unix: false,
            version: None,
            max_len: ProxyHeader::DEFAULT_MAX_LEN,
        }
    }

    /// Requires a header from peers in the trusted networks, and treats other connections as
    /// direct. Add networks with [`trust`](Self::trust).
    pub fn optional() -> Self {
        ProxyProtocol { required: false, ..Self::required() }
    }

    /// Adds a network of load balancers in CIDR notation, for example `10.1.0.0/16`. It is
    /// interpreted as in an [`IpRule`].
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if `network` is not an address, a slash and a valid number of bits.
    pub fn trust(mut self, network: &str) -> Result<Self> {
        Arc::make_mut(&mut self.trusted).push(IpRule::allow(network)?);
        Ok(self)
    }

    /// Trusts connections without an IP address: those of Unix sockets, whose file permissions
    /// control access.
    pub fn trust_unix_sockets(mut self) -> Self {
        self.trusts_unix = true;
        self
    }

    /// Accepts only headers of this version. The default accepts both.
    pub fn version(mut self, version: ProxyVersion) -> Self {
        self.version = Some(version);
        self
    }

    /// Sets the limit of a header of version 2, in bytes: from 52, the length of a header of IPv6,
    /// to [`ProxyHeader::MAX_LEN`]. The default is [`ProxyHeader::DEFAULT_MAX_LEN`]. Version 1 has
    /// a limit of 107.
    ///
    /// `bind` of a server refuses other values.
    pub fn max_len(mut self, max_len: usize) -> Self {
        self.max_len = max_len;
        self
    }

    /// Returns whether a connection from this address begins with a header. `None` is the address
    /// of a Unix socket.
    ///
    /// # Errors
    ///
    /// [`ProxyError::Untrusted`] if the connection must be closed.
    pub fn expects_header(&self, address: Option<SocketAddr>) -> std::result::Result<bool, ProxyError> {
        match self.trusts(address.map(|address| address.ip())) {
            true => Ok(true),
            false if self.required => Err(ProxyError::Untrusted),
            false => Ok(false),
        }
    }

    fn trusts(&self, address: Option<IpAddr>) -> bool {
        match address {
            Some(address) => self.trusted.iter().any(|rule| rule.matches(address)),
            None => self.trusts_unix,
        }
    }

    /// Parses a header at the beginning of `input`, with the accepted versions and the limit of
    /// these settings. See [`ProxyHeader::parse`].
    ///
    /// # Errors
    ///
    /// [`ProxyError`] if `input` does not begin with a valid header that is accepted.
    pub fn parse(&self, input: &[u8]) -> std::result::Result<Option<(ProxyHeader, usize)>, ProxyError> {
        let version = match input.first() {
            Some(b'P') => Some(ProxyVersion::V1),
            Some(b'\r') => Some(ProxyVersion::V2),
            _ => None,
        };
        match (version, self.version) {
            (Some(version), Some(accepted)) if version != accepted => {
                Err(ProxyError::VersionNotAccepted(version))
            }
            _ => ProxyHeader::parse(input, self.max_len),
        }
    }
}
