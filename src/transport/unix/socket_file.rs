//! The file of a listening Unix socket, and the conditions for removing it.
//!
//! A listener on a path owns its `SocketFile` and drops it while the socket is still open. Until
//! then the inode is in use, so a file at the path with the same device and inode belongs to the
//! listener. A file is stale if and only if a connect to it is refused.
//!
//! Invariant: only socket files are removed. When it closes, a listener removes only the file that
//! it created. When it opens, and only on request, it removes a stale file. The calls block on the
//! file system. They run on the thread that binds and on the loop that closes the listener.

use socket2::{Domain, SockAddr, Socket, Type};
use std::{
    fs::{self, Metadata},
    io,
    os::unix::fs::{FileTypeExt, MetadataExt},
    path::{Path, PathBuf},
};

/// The file of a listener in this process. Dropping this removes the file, unless it was replaced.
#[derive(Debug)]
pub(crate) struct SocketFile {
    /// The absolute path, because the process may change its working directory.
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    /// Takes the file of a socket that was just bound to `path`.
    pub(crate) fn new(path: &Path) -> io::Result<Self> {
        let path = std::path::absolute(path)?;
        let identity = identity(&fs::symlink_metadata(&path)?);
        Ok(SocketFile { path, identity })
    }

    /// Removes a stale file that prevents binding a socket at `path`.
    ///
    /// # Errors
    ///
    /// `AddrInUse` if the file is or may be in use, or is not a socket. Other errors mean that the
    /// system does not allow the check.
    pub(crate) fn remove_stale(path: &Path) -> io::Result<()> {
        let in_use = |why| Err(io::Error::new(io::ErrorKind::AddrInUse, why));
        let found = fs::symlink_metadata(path)?;
        if !found.file_type().is_socket() {
            return in_use("the existing file is not a socket");
        }
        let probe = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        probe.set_nonblocking(true)?;
        match probe.connect(&SockAddr::unix(path)?) {
            // Only this error means that there is no listener. A busy one returns EAGAIN, one of
            // another type EPROTOTYPE.
            Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            _ => return in_use("the existing socket is in use"),
        }
        // Another server may have replaced the file since the check.
        if identity(&fs::symlink_metadata(path)?) != identity(&found) {
            return in_use("another socket was created there in the meantime");
        }
        log::info!("removing the stale socket file {}", path.display());
        fs::remove_file(path)
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // While the listener is open its inode is in use, so another file cannot have the same
        // number.
        let ours = fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.identity);
        if ours && let Err(e) = fs::remove_file(&self.path) {
            log::warn!("cannot remove the socket file {}: {e:#}", self.path.display());
        }
    }
}

/// Returns the numbers that distinguish a file from all others that exist at the same time.
fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}
