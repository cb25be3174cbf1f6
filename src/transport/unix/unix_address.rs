//! Names of Unix sockets.
//!
//! Invariant: a name is valid for the system: not too long, and without zero bytes where they are
//! not allowed.

use crate::error::{Error, Result};
use socket2::SockAddr;
use std::{
    fmt, io,
    os::unix::net::SocketAddr as StdAddress,
    path::{Path, PathBuf},
};

/// The name of a Unix socket: the path of a socket file or, on Linux, an abstract name (unix(7)).
///
/// Available on Unix only.
///
/// Permissions of a socket file and of its directories control access. An abstract name has no file
/// and no permissions: every process in the same network namespace may connect.
///
/// ```
/// # use netwheel::{net::UnixAddress, codec::RawBytes, prelude::*};
/// # struct Echo;
/// # impl Handler for Echo {
/// #   type Read = bytes::Bytes; type Write = bytes::Bytes;
/// #   fn read(&mut self, ctx: &mut Context<'_, Self>, m: bytes::Bytes) -> Result { ctx.write(m) }
/// # }
/// # fn main() -> Result {
/// # let path = std::env::temp_dir().join(format!("netwheel-doc-{}.sock", std::process::id()));
/// let group = EventLoopGroup::builder().threads(1).build()?;
/// let server = ServerBootstrap::new(&group)
///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
///     .bind(UnixAddress::path(&path)?)?;
/// let channel = ClientBootstrap::new(&group)
///     .pipeline(|_peer| Pipeline::codec(RawBytes).handler(Echo))
///     .connect(server.local_address())
///     .wait()?;
/// assert_eq!(channel.peer_address(), None, "only transports with IP addresses have one");
/// # server.close().wait()
/// # }
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct UnixAddress(Name);

#[derive(Clone, PartialEq, Eq, Hash)]
enum Name {
    Path(PathBuf),
    #[cfg(any(target_os = "linux", target_os = "android"))]
    Abstract(Vec<u8>),
}

impl UnixAddress {
    /// Creates the name of the socket file at `path`. A relative path is relative to the working
    /// directory of the process.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the path is empty, contains a zero byte, or is longer than the system
    /// allows: 107 bytes on Linux, 103 on BSDs and macOS.
    pub fn path(path: impl Into<PathBuf>) -> Result<Self> {
        let path = path.into();
        let bytes = path.as_os_str().as_encoded_bytes();
        if bytes.is_empty() || bytes.contains(&0) || SockAddr::unix(&path).is_err() {
            let allowed = "1 to 107 bytes (103 on BSDs and macOS), none of them zero";
            return Err(Error::setting("path", path.display(), allowed));
        }
        Ok(UnixAddress(Name::Path(path)))
    }

    /// Creates an abstract name, which has no file and disappears with its socket. Linux and
    /// Android only.
    ///
    /// # Errors
    ///
    /// [`Error::Setting`] if the name is empty or longer than 107 bytes. Zero bytes are allowed.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn abstract_name(name: impl Into<Vec<u8>>) -> Result<Self> {
        let name = name.into();
        if !(1..=107).contains(&name.len()) {
            return Err(Error::setting("abstract_name", name.escape_ascii(), "1 to 107 bytes"));
        }
        Ok(UnixAddress(Name::Abstract(name)))
    }

    /// Returns the path, if this is the name of a file.
    pub fn as_path(&self) -> Option<&Path> {
        match &self.0 {
            Name::Path(path) => Some(path),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Name::Abstract(_) => None,
        }
    }

    /// Returns the abstract name, if this is one. Linux and Android only.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    pub fn as_abstract_name(&self) -> Option<&[u8]> {
        match &self.0 {
            Name::Path(_) => None,
            Name::Abstract(name) => Some(name),
        }
    }

    /// Converts the name to the system's representation.
    pub(crate) fn to_system(&self) -> io::Result<SockAddr> {
        match &self.0 {
            Name::Path(path) => SockAddr::unix(path),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Name::Abstract(name) => {
                use std::{ffi::OsStr, os::unix::ffi::OsStrExt};
                let marked: Vec<u8> = std::iter::once(0).chain(name.iter().copied()).collect();
                SockAddr::unix(OsStr::from_bytes(&marked))
            }
        }
    }

    /// Converts the system's representation. Returns `None` for a socket without a name.
    pub(crate) fn of(address: &StdAddress) -> Option<Self> {
        #[cfg(target_os = "android")]
        use std::os::android::net::SocketAddrExt as _;
        #[cfg(target_os = "linux")]
        use std::os::linux::net::SocketAddrExt as _;
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(name) = address.as_abstract_name() {
            return Some(UnixAddress(Name::Abstract(name.to_vec())));
        }
        address.as_pathname().map(|path| UnixAddress(Name::Path(path.to_path_buf())))
    }
}

impl fmt::Display for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Name::Path(path) => write!(f, "unix:{}", path.display()),
            // The notation of ss(8) and socat.
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Name::Abstract(name) => write!(f, "unix:@{}", name.escape_ascii()),
        }
    }
}

impl fmt::Debug for UnixAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

#[cfg(all(test, not(netwheel_loom)))]
mod tests {
    use super::*;

    #[test]
    fn invalid_paths_are_refused() {
        assert!(UnixAddress::path("").is_err());
        assert!(UnixAddress::path("a\0b").is_err());
        assert!(UnixAddress::path("\0ab").is_err(), "not an abstract name by accident");
        assert!(UnixAddress::path("x".repeat(103)).is_ok());
        let refused = UnixAddress::path("x".repeat(200)).unwrap_err();
        assert!(matches!(&refused, Error::Setting(e) if e.setting() == "path"), "{refused}");
    }

    #[cfg(any(target_os = "linux", target_os = "android"))]
    #[test]
    fn an_abstract_name_takes_107_bytes_of_any_kind() {
        assert!(UnixAddress::abstract_name("").is_err());
        assert!(UnixAddress::abstract_name(vec![0; 107]).unwrap().to_system().is_ok());
        assert!(UnixAddress::abstract_name(vec![b'x'; 108]).is_err());
        assert!(UnixAddress::path("x".repeat(107)).is_ok());
        assert!(UnixAddress::path("x".repeat(108)).is_err());
        let name = UnixAddress::abstract_name(&b"a\0b"[..]).unwrap();
        assert_eq!((name.to_string(), name.as_path()), ("unix:@a\\x00b".into(), None));
        assert_eq!(name.as_abstract_name(), Some(&b"a\0b"[..]));
    }
}
