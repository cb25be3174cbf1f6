//! `Zone`: the offsets of a time zone from UTC.

use jiff::{
    Timestamp,
    tz::{TimeZone, TimeZoneDatabase},
};

/// The rules of a time zone.
#[derive(Debug, Clone)]
pub(super) struct Zone(TimeZone);

/// An instant at which the rules of a zone change.
#[derive(Debug, Clone, Copy)]
pub(super) struct ZoneTransition {
    /// Seconds since 1970 in UTC.
    pub(super) at: i64,
    /// Seconds that the wall clock is ahead of UTC from then on.
    pub(super) offset: i64,
}

/// Longest name of a zone. The longest of the IANA database has 32 bytes.
pub(super) const MAX_NAME: usize = 64;

impl Zone {
    /// Looks up a zone in the database of the system, and then in the bundled one. The system's has
    /// newer rules, and the bundled one has old names that Debian keeps in a package of its own.
    pub(super) fn get(name: &str) -> Option<Zone> {
        Zone::known(jiff::tz::db(), name).or_else(|| Zone::bundled(name))
    }

    /// Looks up a zone in the bundled database.
    pub(super) fn bundled(name: &str) -> Option<Zone> {
        Zone::known(&TimeZoneDatabase::bundled(), name)
    }

    fn known(database: &TimeZoneDatabase, name: &str) -> Option<Zone> {
        if name.len() > MAX_NAME {
            return None;
        }
        let zone = database.get(name).ok()?;
        // `Etc/Unknown` is in each database, and behaves like UTC.
        (!zone.is_unknown()).then_some(Zone(zone))
    }

    /// Returns the offset at `second` and the transitions after it. `None` if `second` is outside
    /// the years that jiff supports.
    pub(super) fn from(&self, second: i64) -> Option<(i64, impl Iterator<Item = ZoneTransition>)> {
        let start = Timestamp::from_second(second).ok()?;
        let transitions = self.0.following(start).map(|transition| ZoneTransition {
            at: transition.timestamp().as_second(),
            offset: transition.offset().seconds().into(),
        });
        Some((self.0.to_offset(start).seconds().into(), transitions))
    }
}
