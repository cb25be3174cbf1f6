//! `KeyLogFile`: the secrets of sessions in a file, for tools that decrypt recordings.
//!
//! The file is opened when the settings are built. Writing blocks the loop, and a failed write is
//! reported once.

use crate::error::{Error, Result};
use rustls::KeyLog;
use std::{
    fmt::Write as _,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

/// A file in the format of NSS, which browsers write to `SSLKEYLOGFILE`
/// (draft-ietf-tls-keylogfile).
#[derive(Debug)]
pub(super) struct KeyLogFile {
    file: File,
    has_failed: AtomicBool,
}

impl KeyLogFile {
    /// Opens a file, to which secrets are appended. Creates it if it does not exist, readable by
    /// its owner only.
    ///
    /// # Errors
    /// [`Error::Setting`] if it cannot be opened.
    pub(super) fn open(path: &Path) -> Result<Arc<dyn KeyLog>> {
        let mut options = OpenOptions::new();
        options.append(true).create(true);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let failed = |error| {
            let value = format!("{} ({error})", path.display());
            Error::setting("key_log_file", value, "a file that can be written")
        };
        let file = options.open(path).map_err(failed)?;
        Ok(Arc::new(KeyLogFile { file, has_failed: AtomicBool::new(false) }))
    }
}

impl KeyLog for KeyLogFile {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut line = format!("{label} ");
        for byte in client_random {
            let _ = write!(line, "{byte:02x}");
        }
        line.push(' ');
        for byte in secret {
            let _ = write!(line, "{byte:02x}");
        }
        line.push('\n');
        // One write, so that the lines of several loops do not mix.
        if let Err(error) = (&self.file).write_all(line.as_bytes())
            && !self.has_failed.swap(true, Ordering::Relaxed)
        {
            log::warn!("the key log file cannot be written: {error}");
        }
    }
}
