//! Replays the corpus of each target.

use netwheel_fuzz::{TARGETS, Target};
use std::{
    fs, panic,
    path::{Path, PathBuf},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

/// The limits of a target's folder, so that the repository stays small and the tests fast.
const MAX_FILES: usize = 60;
const MAX_BYTES: usize = 64 * 1024;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Whether a thread has panicked. Loops catch the panics of callbacks, so that a target returns.
static PANICKED: AtomicBool = AtomicBool::new(false);

fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panicked| {
            PANICKED.store(true, Ordering::SeqCst);
            report(panicked);
        }));
    });
}

/// Calls a target with each file of its folder, and without any input.
fn replay(name: &str) {
    let (_, target): &(_, Target) = TARGETS.iter().find(|(known, _)| *known == name).expect("a target");
    let files = files(&corpus().join(name));
    assert!((1..=MAX_FILES).contains(&files.len()), "{} files", files.len());
    watch_panics();
    target(b"");
    let mut bytes = 0;
    for file in files {
        println!("{}", file.display());
        let input = fs::read(&file).unwrap();
        bytes += input.len();
        target(&input);
        assert!(!PANICKED.load(Ordering::SeqCst), "a panic was caught");
    }
    assert!(bytes <= MAX_BYTES, "{bytes} bytes");
}

macro_rules! replays {
    ($($name:ident)*) => {
        $(#[test] fn $name() { replay(stringify!($name)); })*

        #[test]
        fn each_target_and_each_folder_is_replayed() {
            let mut replayed = vec![$(stringify!($name)),*];
            replayed.sort_unstable();
            assert_eq!(TARGETS.map(|(name, _)| name).to_vec(), replayed);
            let folders = files(&corpus()).into_iter();
            let folders: Vec<_> = folders.map(|path| path.file_name().unwrap().to_owned()).collect();
            assert_eq!(folders, replayed);
            // The programs of libFuzzer, which these tests do not build.
            let root = Path::new(env!("CARGO_MANIFEST_DIR"));
            let programs = files(&root.join("fuzz_targets"));
            assert_eq!(programs.len(), TARGETS.len());
            for (program, name) in programs.iter().zip(replayed) {
                assert_eq!(program.file_stem().unwrap(), name);
                let call = format!("fuzz_target!(|data: &[u8]| {name}(data));");
                assert!(fs::read_to_string(program).unwrap().contains(&call), "{}", program.display());
            }
        }
    };
}

replays! {
    client_hello cron durable_file embedded_channel http_client http_server length_field prometheus
    proxy resp separators varint websocket
}
