//! The wire logs of a play: a logger that keeps their records, and the bytes in them.

use std::{
    cell::RefCell,
    collections::BTreeMap,
    sync::{
        Once,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
};

/// The first part of the targets that the logger keeps.
const PREFIX: &str = "wire log of a play ";

thread_local! {
    /// The records by target. All loops of a simulation run on the thread of its test.
    static RECORDS: RefCell<BTreeMap<String, Vec<String>>> = RefCell::default();
}

struct Logger;

impl log::Log for Logger {
    fn enabled(&self, metadata: &log::Metadata<'_>) -> bool {
        metadata.target().starts_with(PREFIX)
    }

    fn log(&self, record: &log::Record<'_>) {
        if self.enabled(record.metadata()) {
            let text = record.args().to_string();
            RECORDS.with_borrow_mut(|all| all.entry(record.target().to_owned()).or_default().push(text));
        }
    }

    fn flush(&self) {}
}

/// Installs the logger, and forgets the records of earlier plays.
pub(super) fn collect() {
    static INSTALLED: Once = Once::new();
    INSTALLED.call_once(|| {
        log::set_logger(&Logger).expect("no other logger is installed");
        log::set_max_level(log::LevelFilter::Warn);
    });
    RECORDS.with_borrow_mut(BTreeMap::clear);
}

/// Returns a target that no other channel has.
pub(super) fn new_target() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{PREFIX}{}", NEXT.fetch_add(1, SeqCst))
}

/// Returns the number of records of a target.
pub(super) fn len(target: &str) -> usize {
    RECORDS.with_borrow(|all| all.get(target).map_or(0, Vec::len))
}

/// Bytes of one kind in a log.
#[derive(Debug, Default)]
pub(super) struct Bytes {
    /// The bytes that the records show.
    pub(super) shown: Vec<u8>,
    /// The sum of the lengths in the records.
    pub(super) length: usize,
}

impl Bytes {
    /// Returns whether the shown bytes are all of the bytes.
    pub(super) fn are_whole(&self) -> bool {
        self.shown.len() == self.length
    }
}

/// The contents of a log.
#[derive(Debug, Default)]
pub(super) struct Wire {
    pub(super) read: Bytes,
    pub(super) written: Bytes,
    pub(super) opened: Bytes,
    pub(super) sealed: Bytes,
    pub(super) events: Vec<String>,
}

/// Reads the log of a target.
pub(super) fn contents(target: &str) -> Wire {
    let mut wire = Wire::default();
    let records = RECORDS.with_borrow(|all| all.get(target).cloned().unwrap_or_default());
    for record in records {
        let (_, text) = record.split_once(": ").expect("the id of a channel");
        let (head, dump) = text.split_once('\n').unwrap_or((text, ""));
        let kinds = [
            ("read ", &mut wire.read),
            ("written ", &mut wire.written),
            ("opened ", &mut wire.opened),
            ("sealed and written ", &mut wire.sealed),
        ];
        let bytes = kinds.into_iter().find_map(|(kind, bytes)| {
            let (length, rest) = head.strip_prefix(kind)?.split_once(" bytes")?;
            let length: usize = length.parse().ok()?;
            let shown = rest.rsplit(' ').next().and_then(|first| first.parse().ok());
            Some((bytes, length, shown.unwrap_or(if dump.is_empty() { 0 } else { length })))
        });
        match bytes {
            Some((bytes, length, shown)) => {
                bytes.length += length;
                add_dump(&mut bytes.shown, dump, shown);
            }
            None => wire.events.push(head.to_owned()),
        }
    }
    wire
}

/// Adds the bytes of a hex dump: 16 in a line, behind their offset.
fn add_dump(bytes: &mut Vec<u8>, dump: &str, length: usize) {
    let end = bytes.len() + length;
    for line in dump.lines() {
        let left = (end - bytes.len()).min(16);
        let words = line.split_whitespace().skip(1).take(left);
        bytes.extend(words.map(|word| u8::from_str_radix(word, 16).expect("a byte in hex")));
    }
    assert_eq!(bytes.len(), end, "a dump shows other bytes than its head says: {dump}");
}
