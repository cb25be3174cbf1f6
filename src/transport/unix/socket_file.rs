//! The file of a listening Unix socket, and when it may be removed.
//!
//! A listener on a path owns its `SocketFile` and drops it while the socket is still open. Until
//! then the inode is in use, so a file at the path with the same device and inode is ours. A file
//! is stale if and only if a connect to it is refused.
//!
//! Invariant: only socket files are removed. At its end a listener removes only the very file that
//! it created. At its start, and only on request, it removes a file that nobody listens on. The
//! calls block on the file system; they run on the thread that binds and on the loop that closes
//! the listener.

use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The file of a listener of our own; removed when this is dropped, if it is still the same one.
#[derive(Debug)]
pub(crate) struct SocketFile {
    /// Absolute: the process may change its directory meanwhile.
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Of a socket that was bound to `path` just now.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let identity = identity(&fs::symlink_metadata(&path)?);
        Ok(SocketFile { path, identity })
    }

    /// Removes the file at `path` that keeps a socket from being bound there, if nobody listens on it.
    ///
    /// # Errors
    /// `AddrInUse` if somebody does or might, or if it is no socket; others if the system does not let us look.
    pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
        let in_use = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        let found = fs::symlink_metadata(path)?;
        if !found.file_type().is_socket() {
            return in_use("there is a file that is not a socket");
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        probe.set_nonblocking(true)?;
        match probe.connect(&SockAddr::unix(path)?) {
            // Only this says that there is no listener: one that is too busy answers EAGAIN, one of another type EPROTOTYPE.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => return in_use("somebody listens on the socket"),
        }
        // Another server may have replaced it meanwhile.
        if identity(&fs::symlink_metadata(path)?) != identity(&found) {
            return in_use("another socket was made there just now");
        }
        log::info!("removing {}, a socket that nobody listens on", path.display());
        fs::remove_file(path)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // While the listener is open its inode is in use, so no other file can have got its number.
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if ours && let Err(e) = fs::remove_file(&self.path) {
            log::warn!("removing the socket {}: {e:#}", self.path.display());
        }
    }
}

/// What tells a file from all others that are there at the same time.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
