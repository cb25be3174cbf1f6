//! `HostName`: a DNS name of a server, or a wildcard.

use crate::error::{Error, Result};
use rustls::pki_types::DnsName;
use std::fmt;

/// In lower case and without a trailing dot. A wildcard begins with `*.`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct HostName(Box<str>);

impl HostName {
    /// # Errors
    /// [`Error::Setting`] if `name` is not a DNS name.
    pub(super) fn parse(name: &str) -> Result<Self> {
        let lower = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
        match DnsName::try_from(lower.strip_prefix("*.").unwrap_or(&lower)) {
            Ok(_) => Ok(HostName(lower.into())),
            Err(_) => Err(Error::setting("host", name, "a DNS name, or one after `*.`")),
        }
    }

    /// Returns the wildcard that covers this name.
    pub(super) fn wildcard(&self) -> Option<HostName> {
        let (_, parent) = self.0.split_once('.')?;
        Some(HostName(format!("*.{parent}").into()))
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
