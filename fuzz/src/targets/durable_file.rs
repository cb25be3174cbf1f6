//! A damaged file of durable timers: opening fails with an error, or the timers work.

use crate::support::input;
use arbitrary::Arbitrary;
use netwheel::{
    EventLoopGroup, Result,
    durable::{Due, DurableTimers, Late, Retry, SqliteStore, TimerFilter, Topic},
};
use std::{
    fs,
    path::{Path, PathBuf},
    sync::{LazyLock, mpsc::channel},
    time::Duration,
};
use tempfile::TempDir;

/// Damage to one page of the file.
#[derive(Debug, Arbitrary)]
enum Damage<'a> {
    /// Bytes are overwritten.
    Overwrite { page: u8, offset: u16, bytes: &'a [u8] },
    /// Bits are flipped.
    Flip { page: u8, offset: u16, bits: u8 },
    /// A page takes the place of another one.
    Copy { from: u8, to: u8 },
    /// The file ends in this page.
    Truncate { page: u8, offset: u16 },
}

const MOST: usize = 8;
const PAGE: usize = 4096;
const HOUR: Duration = Duration::from_secs(3600);

/// An operation that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(30);

static GROUP: LazyLock<EventLoopGroup> =
    LazyLock::new(|| EventLoopGroup::builder().threads(1).build().expect("a group"));

/// A valid file, with timers of all kinds.
static VALID: LazyLock<Vec<u8>> = LazyLock::new(|| valid().expect("a store"));

pub fn durable_file(data: &[u8]) {
    let Some(damages) = input::<Vec<Damage<'_>>>(data) else { return };
    let mut bytes = VALID.clone();
    for damage in damages.iter().take(MOST) {
        damage.apply(&mut bytes);
    }
    let directory = TempDir::new().expect("a directory");
    let path = path(&directory);
    fs::write(&path, &bytes).expect("a file");
    // Each error is as good as success.
    let _ = use_store(&path);
}

fn path(directory: &TempDir) -> PathBuf {
    directory.path().join("timers.db")
}

impl Damage<'_> {
    fn apply(&self, file: &mut Vec<u8>) {
        let place = |page: u8, offset: u16| {
            (usize::from(page) * PAGE + usize::from(offset) % PAGE) % file.len().max(1)
        };
        match *self {
            Damage::Overwrite { page, offset, bytes } => {
                let at = place(page, offset);
                for (old, new) in file.iter_mut().skip(at).zip(bytes) {
                    *old = *new;
                }
            }
            Damage::Flip { page, offset, bits } => {
                let at = place(page, offset);
                if let Some(byte) = file.get_mut(at) {
                    *byte ^= bits;
                }
            }
            Damage::Copy { from, to } => {
                let (from, to) = (place(from, 0), place(to, 0));
                if file.len() >= PAGE.max(from + PAGE).max(to + PAGE) {
                    file.copy_within(from..from + PAGE, to);
                }
            }
            Damage::Truncate { page, offset } => file.truncate(place(page, offset)),
        }
    }
}

/// Opens a store, and starts, lists and cancels timers.
fn use_store(path: &Path) -> Result {
    let timers =
        DurableTimers::builder(SqliteStore::open(path)?).topic(done()).topic(failing()).start(&GROUP)?;
    let used = operate(&timers);
    within(timers.close(), "close")?;
    used
}

fn operate(timers: &DurableTimers) -> Result {
    let listed = within(timers.list(TimerFilter::new()), "list")?;
    within(timers.at("done", HOUR, "new").key("key").start(), "start")?;
    within(timers.at("done", Duration::ZERO, "now").start(), "start")?;
    for timer in listed.iter().take(3) {
        within(timers.cancel(timer.id), "cancel")?;
    }
    Ok(())
}

fn within<T: Send + 'static>(completion: netwheel::Completion<T>, what: &str) -> Result<T> {
    completion.wait_timeout(PATIENCE).unwrap_or_else(|_| panic!("`{what}` hangs"))
}

fn done() -> Topic {
    Topic::new("done", Late::RunOnce, Retry::never(), |due: Due<String>| due.done())
}

fn failing() -> Topic {
    Topic::new("failing", Late::RunOnce, Retry::never(), |due: Due<String>| due.fail("on purpose"))
}

fn valid() -> Result<Vec<u8>> {
    let directory = TempDir::new()?;
    let path = path(&directory);
    let (sender, fired) = channel();
    let first = Topic::new("done", Late::RunOnce, Retry::never(), move |due: Due<String>| {
        due.done();
        sender.send(()).expect("the receiver waits");
    });
    let timers =
        DurableTimers::builder(SqliteStore::open(&path)?).topic(first).topic(failing()).start(&GROUP)?;
    for n in 0..12_u32 {
        timers.at("done", HOUR * (n + 1), &format!("payload {n}")).key(format!("key {n}")).start().wait()?;
    }
    timers.every("done", HOUR, "periodic").start().wait()?;
    timers.cron("done", "*/5 * * * *", "UTC", "cron")?.start().wait()?;
    timers.at("failing", Duration::ZERO, "dead").start().wait()?;
    timers.at("done", Duration::ZERO, "ended").key("ended").start().wait()?;
    fired.recv_timeout(PATIENCE).expect("the timer fires");
    timers.close().wait()?;
    Ok(fs::read(&path)?)
}
