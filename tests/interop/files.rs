//! A directory of files for one test, which is removed on drop.

use std::{
    env, fs,
    path::PathBuf,
    process,
    sync::atomic::{AtomicUsize, Ordering},
};

pub(crate) struct Files(PathBuf);

impl Files {
    pub(crate) fn new() -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = env::temp_dir().join(format!("netwheel-interop-{}-{n}", process::id()));
        fs::create_dir(&directory).unwrap();
        Files(directory)
    }

    /// Returns the path of a file, which need not exist.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// Writes a file and returns its path.
    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let path = self.path(name);
        fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}
