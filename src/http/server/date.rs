//! The header `Date`, formatted once per second on each thread.

use std::{
    cell::Cell,
    ops::Range,
    time::{Duration, SystemTime},
};

/// A line such as `Date: Sun, 06 Nov 1994 08:49:37 GMT`, with its CRLF.
type DateLine = [u8; 37];

/// The place of the date in the line.
const DATE: Range<usize> = 6..35;

thread_local! {
    /// The line of the last time. The times of a loop differ once per second.
    static LAST: Cell<Option<(SystemTime, DateLine)>> = const { Cell::new(None) };
}

/// The last second that has a date with four digits of the year.
const END_OF_DATES: u64 = 253_402_300_799;

/// Returns the header `Date` for `time` (RFC 9110, section 5.6.7).
#[inline]
pub(super) fn date_line(time: SystemTime) -> DateLine {
    match LAST.get() {
        Some((last, line)) if last == time => line,
        _ => format(time),
    }
}

#[cold]
fn format(time: SystemTime) -> DateLine {
    let second = time.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let date = SystemTime::UNIX_EPOCH + Duration::from_secs(second.min(END_OF_DATES));
    let text = httpdate::fmt_http_date(date);
    let mut line = *b"Date:                              \r\n";
    if text.len() == DATE.len() {
        line[DATE].copy_from_slice(text.as_bytes());
    }
    LAST.set(Some((time, line)));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_have_the_format_of_the_standard() {
        let at = |second| date_line(SystemTime::UNIX_EPOCH + Duration::from_secs(second));
        assert_eq!(&at(784_111_777), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
        assert_eq!(&at(784_111_777), b"Date: Sun, 06 Nov 1994 08:49:37 GMT\r\n", "from the cache");
        assert_eq!(&at(0), b"Date: Thu, 01 Jan 1970 00:00:00 GMT\r\n");
        assert_eq!(&at(u64::from(u32::MAX) << 8), b"Date: Fri, 31 Dec 9999 23:59:59 GMT\r\n");
    }
}
