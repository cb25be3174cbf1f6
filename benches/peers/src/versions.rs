//! Versions of the compared programs and libraries, for the headings of tables.

use crate::{
    peer::{Origin, Peer},
    workshop::{BUN, WS},
};
use std::{collections::BTreeMap, fmt::Write, fs, io, path::Path};

/// Versions by server.
#[derive(Default)]
pub(crate) struct Versions(BTreeMap<String, String>);

impl Versions {
    /// Adds the version of a server, if it has one. `here` is the folder of this package.
    ///
    /// # Errors
    /// If a file with versions cannot be read.
    pub(crate) fn add(&mut self, peer: &Peer, here: &Path) -> io::Result<()> {
        let version = match peer.origin {
            Origin::Netty | Origin::NettyTls(_) => Some(crate::netty::version()?),
            Origin::Node => Some(WS.to_string()),
            Origin::Bun => Some(BUN.to_string()),
            _ => package(peer.name)
                .map(|package| locked(&fs::read_to_string(here.join("../Cargo.lock"))?, package))
                .transpose()?,
        };
        self.0.extend(version.map(|version| (peer.name.to_string(), version)));
        Ok(())
    }

    /// Returns the name of a server, followed by its version if it has one.
    pub(crate) fn heading(&self, server: &str) -> String {
        self.0.get(server).map_or(server.to_string(), |version| format!("{server} {version}"))
    }

    /// Returns the names and versions in one line.
    pub(crate) fn line(&self) -> String {
        self.0.keys().map(|server| self.heading(server)).collect::<Vec<_>>().join(", ")
    }

    pub(crate) fn csv(&self) -> String {
        let mut csv = "server,version\n".to_string();
        for (server, version) in &self.0 {
            let _ = writeln!(csv, "{server},{version}");
        }
        csv
    }

    /// Parses what `csv` returns. Ignores lines of another form.
    pub(crate) fn read(csv: &str) -> Self {
        let rows = csv.lines().skip(1).filter_map(|line| line.split_once(','));
        Versions(rows.map(|(server, version)| (server.to_string(), version.to_string())).collect())
    }
}

/// Returns the crate that a server shows.
fn package(server: &str) -> Option<&str> {
    match server {
        "mio" | "monoio" | "tokio" | "rs-netty" | "tokio-rustls" | "hyper" | "tokio-websockets"
        | "fastwebsockets" => Some(server),
        "tokio-128" => Some("tokio"),
        "epoll-rustls" | "netwheel-tls" | "netwheel-offload" => Some("rustls"),
        "epoll-httparse" => Some("httparse"),
        "tungstenite" => Some("tokio-tungstenite"),
        _ => None,
    }
}

/// Returns the version of a package in a lock file; the newest if there are several.
fn locked(lock: &str, package: &str) -> io::Result<String> {
    let name = format!("name = \"{package}\"");
    let mut lines = lock.lines().rev().zip(lock.lines().rev().skip(1));
    lines
        .find_map(|(line, before)| {
            (before == name).then_some(line)?.strip_prefix("version = \"")?.strip_suffix('"')
        })
        .map(String::from)
        .ok_or_else(|| io::Error::other(format!("Cargo.lock has no package {package}")))
}

#[cfg(test)]
mod tests {
    use super::{Versions, locked};

    #[test]
    fn the_newest_version_in_the_lock_file_is_used() {
        let lock = "[[package]]\nname = \"mio\"\nversion = \"0.8.0\"\n\n[[package]]\nname = \"mio\"\nversion = \"1.2.0\"\n";
        assert_eq!(locked(lock, "mio").unwrap(), "1.2.0");
        assert!(locked(lock, "tokio").is_err());
    }

    #[test]
    fn versions_are_read_as_they_were_written() {
        let versions = Versions::read("server,version\nnetty,4.2.13\n");
        assert_eq!(versions.csv(), "server,version\nnetty,4.2.13\n");
        assert_eq!(
            (versions.heading("netty"), versions.heading("epoll")),
            ("netty 4.2.13".into(), "epoll".into())
        );
    }
}
