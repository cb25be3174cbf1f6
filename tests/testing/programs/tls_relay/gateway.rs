//! The gateway, and the certificate of its TLS.

use super::{
    super::support::{Calm, SECOND, deploy},
    backend::{Life, options},
    transfer::Transfers,
};
use netwheel::{
    codec::RawBytes,
    prelude::*,
    relay::Relay,
    tls::{TlsCertificate, TlsRoots, TlsServer, TlsVersion},
};
use rcgen::{CertificateParams, KeyPair};
use std::sync::{Arc, Mutex, OnceLock};

/// A key for this test only.
const KEY: &str = "-----BEGIN PRIVATE KEY-----
MC4CAQAwBQYDK2VwBCIEIOuzVXNqiTKE8ZcP0FPbp8Tra0vfAPRa2HcaBloFDUx+
-----END PRIVATE KEY-----
";

pub(crate) const HOST: &str = "gateway";

/// Returns the certificate in PEM format. It is the same in each process.
fn certificate() -> &'static str {
    static CERTIFICATE: OnceLock<String> = OnceLock::new();
    CERTIFICATE.get_or_init(|| {
        let key = KeyPair::from_pem(KEY).expect("a key");
        let mut params = CertificateParams::new(vec![HOST.to_owned()]).expect("a name");
        params.serial_number = Some(1_u64.into());
        params.self_signed(&key).expect("a certificate").pem()
    })
}

pub(crate) fn roots() -> Result<TlsRoots> {
    TlsRoots::from_pem(certificate().as_bytes())
}

/// Returns the TLS settings of the server.
pub(crate) fn server_tls() -> Result<TlsServer> {
    let certificate = TlsCertificate::from_pem(certificate().as_bytes(), KEY.as_bytes())?;
    TlsServer::builder(certificate).min_version(TlsVersion::Tls13).build()
}

pub(super) fn serve(transfers: &Arc<Mutex<Transfers>>, calm: &Calm) -> Result {
    let tls = server_tls()?;
    let _life = Life(transfers.clone());
    let time = || 1000 * SECOND;
    deploy(calm, time, |group| {
        let client = ClientBootstrap::new(group).channel_options(options()).connect_timeout(5 * SECOND);
        let idle = IdleTimeouts::new().all(20 * SECOND);
        let server = ServerBootstrap::new(group)
            .channel_options(options())
            .handshake_timeout(5 * SECOND)
            .tls(tls.clone())
            .pipeline(move |_peer| {
                let client = client.clone();
                let relay = Relay::dial(move |front| {
                    client
                        .pipeline(move |_peer| {
                            Pipeline::codec(RawBytes).idle(idle).handler(Relay::to(front.clone()))
                        })
                        .connect("backend:7001")
                });
                Pipeline::codec(RawBytes).idle(idle).handler(relay)
            })
            .bind("10.0.0.2:443")?;
        Ok(server.closed())
    });
    Ok(())
}
