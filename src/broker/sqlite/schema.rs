//! The tables of a broker.

use crate::sqlite::FileFormat;

/// "nwbr" in the header of the file.
const APPLICATION_ID: i64 = 0x6e77_6272;

/// The migrations. Number n leads from version n to version n + 1.
const MIGRATIONS: &[&str] = &[
    // `sum` is the running total of the bytes of a topic, and `before` the total before a message.
    // The limit of bytes therefore does not sum over rows.
    "CREATE TABLE topics (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        kind INTEGER,
        epochs TEXT NOT NULL,
        top INTEGER NOT NULL,
        oldest INTEGER NOT NULL,
        sum INTEGER NOT NULL,
        entries INTEGER NOT NULL,
        expires INTEGER,
        used INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX topics_expires ON topics (expires) WHERE expires IS NOT NULL;
    CREATE INDEX topics_idle ON topics (used) WHERE expires IS NULL AND entries = 0;
    CREATE TABLE messages (
        topic INTEGER NOT NULL REFERENCES topics,
        offset INTEGER NOT NULL,
        before INTEGER NOT NULL,
        time INTEGER NOT NULL,
        payload BLOB NOT NULL,
        PRIMARY KEY (topic, offset)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE message_ids (
        topic INTEGER NOT NULL REFERENCES topics,
        id BLOB NOT NULL,
        epoch INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        ends INTEGER NOT NULL,
        PRIMARY KEY (topic, id)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX message_ids_end ON message_ids (ends);
    CREATE TABLE entries (
        topic INTEGER NOT NULL REFERENCES topics,
        key BLOB NOT NULL,
        value BLOB NOT NULL,
        owner TEXT,
        epoch INTEGER NOT NULL,
        offset INTEGER NOT NULL,
        PRIMARY KEY (topic, key)
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX entries_owner ON entries (owner, topic) WHERE owner IS NOT NULL;",
];

/// The tables of a broker.
pub(super) const FORMAT: FileFormat =
    FileFormat { application_id: APPLICATION_ID, backup_id: None, migrations: MIGRATIONS };
