//! Wall time as milliseconds since the Unix epoch, the unit of stores.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The latest due time, 9999-12-31 23:59:59.999 UTC.
pub(super) const LATEST: i64 = 253_402_300_799_999;

/// Converts a time, and rounds up: a timer must not fire before the time that was asked for.
/// Limited to the years 1970 to 9999.
pub(super) fn due_millis(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            let up = since.as_nanos().div_ceil(1_000_000);
            i64::try_from(up).unwrap_or(LATEST).min(LATEST)
        }
        Err(_) => 0,
    }
}

/// Converts the present time, and rounds down. A time before 1970 counts as 1970.
pub(super) fn present_millis(time: SystemTime) -> i64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(LATEST).min(LATEST)
}

/// Converts a stored time.
pub(super) fn system_time(millis: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(millis.max(0).unsigned_abs())
}

/// Converts a duration, and rounds up.
pub(super) fn duration_millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(LATEST).min(LATEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_are_rounded_up_and_the_present_down() {
        let time = UNIX_EPOCH + Duration::from_nanos(1_000_001);
        assert_eq!((due_millis(time), present_millis(time)), (2, 1));
        assert_eq!(due_millis(UNIX_EPOCH - Duration::from_secs(1)), 0);
        assert_eq!(duration_millis(Duration::from_nanos(1)), 1);
        assert_eq!(duration_millis(Duration::MAX), LATEST);
    }

    #[test]
    fn times_beyond_9999_are_limited() {
        assert_eq!(due_millis(UNIX_EPOCH + Duration::from_secs(u64::MAX / 4)), LATEST);
        assert_eq!(system_time(-1), UNIX_EPOCH);
    }
}
