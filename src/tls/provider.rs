//! The cryptography that rustls uses.

use rustls::crypto::CryptoProvider;
use std::sync::{Arc, OnceLock};

/// Returns the provider of this build: aws-lc-rs with the feature `tls-aws-lc`, otherwise ring.
/// Callers pass it to rustls explicitly, because a build with both has no default provider.
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
