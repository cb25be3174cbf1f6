//! `TlsCertificates`: the certificates of a server, which can be replaced while it runs.
//!
//! Invariant: a handshake uses one certificate to its end; a replacement affects the handshakes
//! that begin later. The lock of the table is held only to copy a pointer.

use super::{certificate::TlsCertificate, host_name::HostName};
use crate::{error::Result, machine::Mutex};
use rustls::{
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, PoisonError, RwLock},
};

/// The certificates of a running [`TlsServer`](super::TlsServer), to replace them.
///
/// New handshakes use the new certificates. Connections that are open go on, and so do their
/// resumed sessions. Clones refer to the same certificates. Any thread may use it.
///
/// ```no_run
/// # use netwheel::tls::{TlsCertificate, TlsServer};
/// let certificate = TlsCertificate::from_pem_files("chain.pem", "key.pem")?;
/// let tls = TlsServer::builder(certificate).build()?;
/// let certificates = tls.certificates().expect("not made from a configuration of rustls");
/// // Later, after the files have changed:
/// certificates.reload()?;
/// # Ok::<(), netwheel::Error>(())
/// ```
#[derive(Clone)]
pub struct TlsCertificates(Arc<Shared>);

struct Shared {
    table: RwLock<Arc<Table>>,
    /// Held while files are read.
    reload: Mutex<()>,
    /// Refuse host names without a certificate, instead of using the default one.
    known_hosts_only: bool,
}

#[derive(Debug, Clone)]
struct Table {
    default: TlsCertificate,
    hosts: BTreeMap<HostName, TlsCertificate>,
}

impl TlsCertificates {
    pub(super) fn new(
        default: TlsCertificate,
        hosts: BTreeMap<HostName, TlsCertificate>,
        known_hosts_only: bool,
    ) -> Self {
        let table = RwLock::new(Arc::new(Table { default, hosts }));
        TlsCertificates(Arc::new(Shared { table, reload: Mutex::new(()), known_hosts_only }))
    }

    /// Replaces the default certificate.
    pub fn replace(&self, certificate: TlsCertificate) {
        self.change(|table| table.default = certificate);
    }

    /// Replaces the certificate of a host, or adds one. `*.example.com` stands for all names with
    /// one more label.
    ///
    /// # Errors
    /// [`Error::Setting`](crate::Error::Setting) if the name is not a DNS name.
    pub fn replace_host(&self, host: &str, certificate: TlsCertificate) -> Result {
        let host = HostName::parse(host)?;
        self.change(|table| drop(table.hosts.insert(host, certificate)));
        Ok(())
    }

    /// Removes the certificate of a host. Returns whether there was one.
    pub fn remove_host(&self, host: &str) -> bool {
        let Ok(host) = HostName::parse(host) else { return false };
        let mut removed = false;
        self.change(|table| removed = table.hosts.remove(&host).is_some());
        removed
    }

    /// Reads all certificates again that come from files. Blocks.
    ///
    /// A certificate that another thread replaces, adds or removes during the call stays as that
    /// thread has left it. Calls run one after the other.
    ///
    /// # Errors
    /// The error of the first file that cannot be used. No certificate is replaced then.
    pub fn reload(&self) -> Result {
        let _one_at_a_time = self.0.reload.lock();
        let old = self.table();
        let default = old.default.read_again()?;
        let hosts = old.hosts.iter().map(|(host, old)| Ok((host, old, old.read_again()?)));
        let hosts: Vec<_> = hosts.collect::<Result<_>>()?;
        self.change(|table| {
            if table.default.is_same(&old.default) {
                table.default = default;
            }
            for (host, old, new) in hosts {
                if let Some(current) = table.hosts.get_mut(host)
                    && current.is_same(old)
                {
                    *current = new;
                }
            }
        });
        Ok(())
    }

    fn change(&self, change: impl FnOnce(&mut Table)) {
        let mut table = self.0.table.write().unwrap_or_else(PoisonError::into_inner);
        change(Arc::make_mut(&mut table));
    }

    fn table(&self) -> Arc<Table> {
        self.0.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns the certificate for the host that a client has named.
    pub(super) fn find(&self, host: Option<&str>) -> Option<Arc<CertifiedKey>> {
        let table = self.table();
        let of_host = host.and_then(|host| {
            let host = HostName::parse(host).ok()?;
            table.hosts.get(&host).or_else(|| table.hosts.get(&host.wildcard()?))
        });
        let found = match of_host {
            Some(certificate) => certificate,
            None if host.is_some() && self.0.known_hosts_only => return None,
            None => &table.default,
        };
        Some(found.key.clone())
    }
}

/// Chooses the certificate of a handshake, for rustls.
#[derive(Debug)]
pub(super) struct CertificateChoice(pub(super) TlsCertificates);

impl ResolvesServerCert for CertificateChoice {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.find(hello.server_name())
    }
}

impl fmt::Debug for TlsCertificates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TlsCertificates").field(&self.table()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::certificates::certificate_for;
    use super::*;
    use crate::error::Error;

    /// S-15.
    #[test]
    fn hosts_are_found_by_their_names_then_by_wildcards_then_by_default() {
        let [default, exact, wild] =
            ["default.example", "chat.example", "*.chat.example"].map(certificate_for);
        let hosts = [("chat.example", &exact), ("*.Chat.Example.", &wild)];
        let hosts = hosts.map(|(host, certificate)| (HostName::parse(host).unwrap(), certificate.clone()));
        let is = |found: Option<Arc<CertifiedKey>>, expected: &TlsCertificate| {
            found.is_some_and(|found| Arc::ptr_eq(&found, &expected.key))
        };
        for known_hosts_only in [false, true] {
            let certificates = TlsCertificates::new(default.clone(), hosts.clone().into(), known_hosts_only);
            assert!(is(certificates.find(None), &default));
            assert!(is(certificates.find(Some("CHAT.example.")), &exact));
            assert!(is(certificates.find(Some("a.chat.example")), &wild));
            // A wildcard stands for one label.
            for unknown in ["b.a.chat.example", "other.example"] {
                assert_eq!(certificates.find(Some(unknown)).is_none(), known_hosts_only, "{unknown}");
            }
        }
    }

    #[test]
    fn a_host_can_be_added_replaced_and_removed() {
        let certificates = TlsCertificates::new(certificate_for("a.example"), BTreeMap::new(), true);
        assert!(certificates.find(Some("b.example")).is_none());
        certificates.replace_host("b.example", certificate_for("b.example")).unwrap();
        let first = certificates.find(Some("b.example")).unwrap();
        certificates.replace_host("b.example", certificate_for("b.example")).unwrap();
        assert!(!Arc::ptr_eq(&first, &certificates.find(Some("b.example")).unwrap()));
        assert!(certificates.remove_host("B.example") && !certificates.remove_host("b.example"));
        assert!(certificates.find(Some("b.example")).is_none());
        assert!(matches!(
            certificates.replace_host("not a name", certificate_for("x")),
            Err(Error::Setting(_))
        ));
    }
}
