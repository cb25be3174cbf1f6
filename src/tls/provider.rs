//! The cryptography that rustls uses.

use super::info::TlsVersion;
use rustls::{SupportedProtocolVersion, crypto::CryptoProvider, server::ProducesTickets, version};
use std::sync::{Arc, OnceLock};

/// Returns the provider of this build: aws-lc-rs with the feature `tls-aws-lc`, otherwise ring. It
/// is passed to rustls explicitly, because a build with both has no default one.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    PROVIDER
        .get_or_init(|| {
            #[cfg(feature = "tls-aws-lc")]
            let provider = rustls::crypto::aws_lc_rs::default_provider();
            #[cfg(not(feature = "tls-aws-lc"))]
            let provider = rustls::crypto::ring::default_provider();
            Arc::new(provider)
        })
        .clone()
}

/// Returns what encrypts session tickets, with new keys, which rotate every six hours.
pub(super) fn ticketer() -> Result<Arc<dyn ProducesTickets>, rustls::Error> {
    #[cfg(feature = "tls-aws-lc")]
    return rustls::crypto::aws_lc_rs::Ticketer::new();
    #[cfg(not(feature = "tls-aws-lc"))]
    rustls::crypto::ring::Ticketer::new()
}

/// Returns the versions from `oldest` on.
pub(super) fn versions_from(oldest: TlsVersion) -> &'static [&'static SupportedProtocolVersion] {
    static NEWEST_FIRST: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
    match oldest {
        TlsVersion::Tls12 => &NEWEST_FIRST,
        TlsVersion::Tls13 => &NEWEST_FIRST[..1],
    }
}
